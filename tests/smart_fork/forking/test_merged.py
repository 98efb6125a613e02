"""Tests of several sessions merged in one fork: each part names its origin, and the written log is complete (C-022)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import Usage
from smart_fork.excise import Request, cut
from smart_fork.excise.cut_plan import broken_links, calls_without_result, results_without_call
from smart_fork.excise.lookup import load_with_tool
from smart_fork.forking.lineage import lineage
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import Budget, ForkRequest
from tests.smart_fork.forking.test_within import claude_records, codex_log, prompts_of
from tests.smart_fork.forks import SESSION, FakeProcesses, codex_path, write_log
from tests.support.cases import thorough_except_first

OTHER = "81b2c3d4-0000-4000-8000-000000000009"


def claude_log(repo: Path, session_id: str, *, prefix: str) -> Path:
    """Write the long session under another id, with other record ids."""
    records = claude_records(repo)
    for record in records:
        record |= {"sessionId": session_id, "timestamp": "2025-06-01T00:00:00.000Z"}
        for name in ("uuid", "parentUuid"):
            record[name] = record[name] and prefix + record[name]
        for block in record["message"]["content"] if isinstance(record["message"]["content"], list) else ():
            for name in ("id", "tool_use_id"):
                if name in block:
                    block[name] = prefix + block[name]
    return write_log(folder_of(repo) / f"{session_id}.jsonl", records)


@pytest.fixture
def merge(repo, programs, no_waiting, monkeypatch):
    def run(*ids: str, budget: int = 600, **how: object):
        options = Options("go on", place="process")
        asked = ForkRequest(ids[0], options, merge=tuple(ids[1:]), budget=Budget(budget), intent="", **how)
        with monkeypatch.context() as played:
            played.setattr("smart_fork.system.processes.Processes", FakeProcesses)
            forked = fork_session(asked)
        (path,) = READERS[forked.agent_type].locate(forked.new_session_id) if not how else (None,)
        return forked, path

    return run


@pytest.mark.parametrize(
    "agents",
    thorough_except_first([["claude", "claude"], ["codex", "codex"], ["claude", "codex"], ["codex", "claude"]]),
)
def test_two_sessions_become_one_that_says_from_where_each_part_is(agents, merge, home, repo):
    for agent, session_id in zip(agents, (SESSION, OTHER), strict=True):
        if agent == "claude":
            claude_log(repo, session_id, prefix=session_id[:2])
        else:
            records = codex_log(repo)
            records[0]["payload"]["id"] = session_id
            text = json.dumps(records).replace('"call_id": "c', f'"call_id": "{session_id[:2]}')
            write_log(codex_path(home, session_id), json.loads(text))

    forked, path = merge(SESSION[:8], OTHER)

    back, cut = READERS[agents[0]].read(path).session, load_with_tool(agents[0], path)
    assert agents[0] == back.agent
    assert [] == results_without_call(cut.turns)
    assert set() == calls_without_result(cut.turns)
    assert [] == broken_links(cut)
    assert [2, 2] == [prompts_of(back).count(asked) for asked in ("build a shop", "say goodbye to them")]
    (first,) = READERS[agents[0]].locate(SESSION)
    assert (SESSION, READERS[agents[0]].read(first).session.root_id) == (back.parent_id, back.root_id)  # of its family
    log = path.read_text()
    begin, then = (
        log.index(f"What follows is from session {SESSION}"),
        log.index(f"What follows is from session {OTHER}"),
    )
    assert begin < then
    assert (SESSION, [OTHER]) == (forked.selection.session_id, [one.session_id for one in forked.merged])

    new = forked.new_session_id
    for asked in (SESSION, OTHER, new):
        family = {one.session_id: (one.agent_type, one.parent, one.merged_from) for one in lineage(asked).sessions}
        assert {
            SESSION: (agents[0], None, ()), OTHER: (agents[1], None, ()), new: (agents[0], SESSION, (OTHER,))
        } == family  # fmt: skip
    begun = {one.session_id: one.begun for one in lineage(new).sessions}
    assert max(begun, key=lambda one: begun[one]) == new  # when it was made, not when what it has was said


@pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))
def test_what_is_cut_from_any_of_them_is_cut_from_what_they_were_merged_into(agent, merge, home, repo):
    claude_log(repo, SESSION, prefix="aa")
    if agent == "claude":
        claude_log(repo, OTHER, prefix="bb")
    else:
        write_log(
            codex_path(home, OTHER),
            [{**codex_log(repo)[0], "payload": {"id": OTHER, "cwd": str(repo)}}, *codex_log(repo)[1:]],
        )
    forked, path = merge(SESSION, OTHER)
    turns = load_with_tool(agent, READERS[agent].locate(OTHER)[0]).turns
    said = next(turn.id for turn in reversed(turns) if turn.prompt)

    done = cut(Request(OTHER, ids=(said,), force=True))

    left = READERS["claude"].read(path).session
    if agent == "claude":
        assert [1, 2] == [prompts_of(left).count(asked) for asked in ("say goodbye to them", "build a shop")]
    else:  # it is told there, in other records
        assert any(forked.new_session_id in one for one in done["remains"])


def test_what_both_have_from_the_same_beginning_is_there_once(merge, repo):
    claude_log(repo, SESSION, prefix="aa")
    claude_log(repo, OTHER, prefix="aa")

    _, path = merge(SESSION, OTHER)

    back = READERS["claude"].read(path).session
    ids = [turn.id for turn in back.turns]
    assert len(set(ids)) == len(ids)
    assert [1, 1] == [prompts_of(back).count(asked) for asked in ("build a shop", "say goodbye to them")]


def test_what_cannot_be_merged_is_refused(merge, repo):
    claude_log(repo, SESSION, prefix="aa")
    with pytest.raises(Usage, match="with itself"):
        merge(SESSION, SESSION[:8])
    with pytest.raises(Usage, match="Between 2 and"):
        merge(SESSION)
