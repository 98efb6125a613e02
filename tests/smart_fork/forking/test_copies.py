"""Tests of copies of a session up to an earlier message (B-001…B-010, B-070…B-075, B-090, B-091)."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from indexer.safe_files import STALE_SECONDS
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.agents.codex.session_writer import history_records
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import ForkRefused, NotFound, Usage
from smart_fork.forking.copies import write_branch, write_copy
from smart_fork.forking.fork_points import branch_point
from tests.smart_fork.forks import NEW, SESSION, codex_path, codex_records, said, snapshot, text, write_log
from tests.support.exhaustive import full_or_sample

NOW = datetime(2026, 5, 6, 7, 8, 9)  # noqa: DTZ001 - Codex names its files by local time


def records(path: Path) -> list[dict]:
    raw = path.read_bytes()
    assert raw.endswith(b"\n")
    return [json.loads(line) for line in raw.splitlines()]


def write(agent, source: Path, at: str, target: Path):
    return write_branch(READERS[agent].read(source).session, at=at, becomes=NewSession(NEW, target, NOW))


def session_of(agent, path: Path):
    return READERS[agent].read(path, keep_raw=True).session


# Claude Code


def test_claude_copies_what_was_said_up_to_the_message(claude_session, repo):
    """B-001, B-002, B-003, B-004, B-007, B-050, B-060, B-066: no sub-agent or abandoned turn; thinking is kept, and so is
    what the program told its model between two messages.
    """
    source = {r["uuid"]: r for r in records(claude_session) if "uuid" in r}

    branch = write("claude", claude_session, "a4", repo)

    copy = records(branch.path)
    assert ["u1", "x1", "a1", "a2", "a3", "r1", "a4"] == [r["uuid"] for r in copy]
    assert [None, "u1", "x1", "a1", "a2", "a3", "r1"] == [r["parentUuid"] for r in copy]
    for record in copy:
        expected = source[record["uuid"]] | {
            "sessionId": NEW,
            "parentUuid": record["parentUuid"],
            "forkedFrom": {"sessionId": SESSION, "messageUuid": record["uuid"]},
        }
        assert expected == record
    assert (NEW, SESSION, 6, "a4", False) == (
        branch.session_id, branch.source_session_id, branch.copied, branch.at, branch.moved,
    )  # fmt: skip


def test_bytes_that_are_not_utf_8_do_not_stop_a_branch(claude_session, repo):
    """X-001: what was shown with a question mark is copied with one."""
    said_so = records(claude_session)
    text_of_u1 = next(r for r in said_so if r.get("uuid") == "u1")["message"]["content"]
    damaged = claude_session.read_bytes().replace(json.dumps(text_of_u1).encode(), b'"caf\xe9 opens"', 1)
    claude_session.write_bytes(damaged)

    branch = write("claude", claude_session, "a4", repo)

    assert records(branch.path)[0]["message"]["content"] == "caf? opens"


def test_claude_finds_the_copy_from_the_target_and_it_says_where_it_works(claude_session, tmp_path):
    """B-010, B-071."""
    branch = write("claude", claude_session, "a5", tmp_path)

    assert {str(tmp_path)} == {r["cwd"] for r in records(branch.path) if "cwd" in r}
    session = session_of("claude", branch.path)
    assert (NEW, SESSION, str(tmp_path)) == (session.session_id, session.parent_id, session.cwd)
    assert [t.text for t in session_of("claude", claude_session).turns] == [t.text for t in session.turns]


def test_claude_keeps_both_answers_to_parallel_calls(home, repo):
    calls = [{"type": "tool_use", "id": name, "name": "Read", "input": {}} for name in ("t1", "t2")]
    one, two = (said(f"c{i}", f"c{i - 1}" if i else "u1", "assistant", [call]) for i, call in enumerate(calls))
    two["message"]["id"] = one["message"]["id"]
    answers = [
        said(f"r{i}", f"c{i}", "user", [{"type": "tool_result", "tool_use_id": f"t{i + 1}", "content": "ok"}])
        for i in (0, 1)
    ]
    path = write_log(
        repo / f"{SESSION}.jsonl",
        [said("u1", None, "user", "go"), one, two, *answers, said("a1", "r1", "assistant", text("Done"))],
    )

    assert ["u1", "c0", "c1", "r0", "r1", "a1"] == [r["uuid"] for r in records(write("claude", path, "a1", repo).path)]


# Codex


def test_codex_gets_a_file_with_a_header_of_its_own_and_no_ordinals(codex_session, repo, home):
    """B-091."""
    branch = write("codex", codex_session, "6", repo)

    header, *copy = records(branch.path)
    assert home / ".codex/sessions/2026/05/06" / f"rollout-2026-05-06T07-08-09-{NEW}.jsonl" == branch.path
    assert ("session_meta", NEW, NEW, SESSION) == (
        header["type"], header["payload"]["id"], header["payload"]["session_id"], header["payload"]["forked_from_id"],
    )  # fmt: skip
    assert set() == {"history_mode", "history_base"} & set(header["payload"])
    assert not any("ordinal" in record for record in (header, *copy))
    source = [{k: v for k, v in record.items() if k != "ordinal"} for record in records(codex_session)]
    assert source[1:9] == copy
    assert "task_complete" == copy[-1]["payload"]["type"]


def test_codex_takes_the_beginning_from_the_sessions_that_it_was_forked_from(home, codex_session, repo):
    """Copy-on-write, through two levels."""
    ids = ["60309e1e-0000-4000-8000-00000000000" + end for end in "ab"]
    base = {"thread_id": SESSION, "end_ordinal_exclusive": 9}
    first = codex_records(ids[0], repo, ["second"], start=9, forked_from_id=SESSION, history_base=base)
    write_log(codex_path(home, ids[0]), first)
    base = {"thread_id": ids[0], "end_ordinal_exclusive": 18}
    last = codex_records(
        ids[1], repo, ["third"], start=18, forked_from_id=ids[0], history_base=base, git={"branch": "b"}
    )
    path = write_log(codex_path(home, ids[1]), last)

    branch = write("codex", path, session_of("codex", path).turns[-1].id, repo)

    header, *copy = records(branch.path)
    assert "and the docs" not in branch.path.read_text()
    assert 8 * 3 == len(copy)
    assert (ids[1], {"branch": "b"}) == (header["payload"]["forked_from_id"], header["payload"]["git"])
    session = session_of("codex", branch.path)
    assert ["add retry", "second", "third"] == [turn.text for turn in session.turns if turn.prompt]
    assert ids[1] == session.parent_id
    assert ["session_meta"] == [r["type"] for r in (header, *copy) if r["type"] == "session_meta"]

    shorter = branch_point(session_of("codex", path), "15")
    assert "Done: second" == session_of("codex", path).turns[shorter].text
    codex_path(home, ids[0]).unlink()
    with pytest.raises(NotFound, match=ids[0]):
        list(history_records(path))


def test_codex_files_of_the_first_versions_become_todays(home, repo):
    old = [
        {"id": SESSION, "timestamp": "2025-08-01T00:00:00.000Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "add retry"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done"}]},
    ]
    path = write_log(codex_path(home, SESSION), old)

    header, *copy = records(write("codex", path, "4", repo).path)

    assert (NEW, ["response_item"] * 2) == (header["payload"]["id"], [record["type"] for record in copy])
    # What Codex does not load a session without.
    assert {"id", "timestamp", "cwd", "originator", "cli_version"} <= header["payload"].keys()
    assert old[2:] == [record["payload"] for record in copy]


# Both


@st.composite
def conversations(draw: st.DrawFn) -> list[dict]:
    """Generate logs with rewinds, parallel calls, sub-agents, repeated lines, early answers, and cycles of parents."""
    log: list[dict] = []
    leaf: str | None = None
    for number in range(draw(st.integers(1, 6))):
        if log and draw(st.booleans()):
            leaf = draw(st.sampled_from([*(r["uuid"] for r in log), None]))
        asked = said(f"u{number}", leaf, "user", f"prompt {number}")
        log.append(asked)
        leaf = asked["uuid"]
        calls = [f"t{number}-{i}" for i in range(draw(st.integers(0, 3)))]
        for call in calls:
            block = {"type": "tool_use", "id": call, "name": "Read", "input": {}}
            one = said(f"c{call}", leaf, "assistant", [block])
            one["message"]["id"] = f"calls{number}"
            log.append(one)
            leaf = one["uuid"]
        for call in draw(st.permutations(calls))[: draw(st.integers(0, 3))]:
            block = {"type": "tool_result", "tool_use_id": call, "content": "ok"}
            log.append(said(f"r{call}", f"c{call}", "user", [block]))
            leaf = log[-1]["uuid"]
        if draw(st.booleans()):
            log.append(
                said(f"x{number}", leaf, "attachment", "")
                | {"attachment": {"type": "queued_command", "prompt": "hurry"}}
            )
            leaf = log[-1]["uuid"]
        if draw(st.booleans()):
            log.append(said(f"l{number}", leaf, "attachment", "") | {"attachment": {"type": "skill_listing"}})
            leaf = log[-1]["uuid"]
        if draw(st.booleans()):
            log.append(said(f"s{number}", leaf, "assistant", text("sub-agent"), isSidechain=True))
        if draw(st.booleans()):
            log.append(said(f"a{number}", leaf, "assistant", text(f"answer {number}")))
            leaf = log[-1]["uuid"]
    for _ in range(draw(st.integers(0, 2))):
        one = draw(st.sampled_from(log))
        again = draw(st.sampled_from([{}, {"odd": "again"}, {"isSidechain": True}]))
        log.insert(draw(st.integers(0, len(log))), one | again)
    if draw(st.integers(0, 4)) == 0:  # a circle, or a parent that is not there
        place = draw(st.integers(0, len(log) - 1))
        log[place] = log[place] | {"parentUuid": draw(st.sampled_from([*(r["uuid"] for r in log), "missing"]))}
    if draw(st.booleans()):
        place = draw(st.integers(0, len(log) - 1))
        log.insert(draw(st.integers(0, len(log))), log.pop(place))
    return log


@given(conversations(), st.data())
@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=full_or_sample(40, 15),
)
def test_whatever_the_log_the_copy_is_what_the_agent_remembers_as_one_line(home, repo, log, data):
    """B-003, B-004, B-050, B-060, B-061, B-074, B-077."""
    source = write_log(folder_of(repo) / f"{SESSION}.jsonl", log)
    before = source.read_bytes()
    session = session_of("claude", source)
    assume(session is not None)
    at = data.draw(st.sampled_from([turn.id for turn in session.turns]))
    try:
        branch = write("claude", source, at, repo)
    except ForkRefused:
        assert [source.name] == [one.name for one in source.parent.iterdir()]
        return
    try:
        copy = records(branch.path)
        end = next(i for i, turn in enumerate(session.turns) if turn.id == branch.at)
        first = {record["uuid"]: record for record in reversed(log) if record.get("isSidechain") is not True}
        expected = [turn.id for turn in session.turns[: end + 1]]
        line = [record["uuid"] for record in copy]
        assert expected == [one for one in line if not one.startswith("l")]
        assert len(line) == len(set(line))
        assert [None, *line[:-1]] == [record["parentUuid"] for record in copy]
        for record in copy:
            ours = {"sessionId": NEW, "parentUuid": record["parentUuid"], "cwd": str(repo)}
            ours["forkedFrom"] = {"sessionId": SESSION, "messageUuid": record["uuid"]}
            assert first[record["uuid"]] | ours == record
        copied = session_of("claude", branch.path)
        if any(first[turn.id]["type"] == "user" and turn.prompt for turn in session.turns[: end + 1]):
            assert expected == [turn.id for turn in copied.turns]
            assert (NEW, SESSION) == (copied.session_id, copied.parent_id)
        assert before == source.read_bytes()
    finally:
        branch.undo()


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_long_session_is_copied_record_by_record(agent, home, repo):
    """B-061: with much less memory than it is long."""
    megabyte = "x" * (1 << 20)
    number = 80
    if agent == "claude":
        log, parent = [], None
        for i in range(number):
            call = {"type": "tool_use", "id": f"t{i}", "name": "Read", "input": {}}
            result = {"type": "tool_result", "tool_use_id": f"t{i}", "content": megabyte}
            for kind, what in (
                ("user", f"prompt {i}"),
                ("assistant", [call]),
                ("user", [result]),
                ("assistant", text("ok")),
            ):
                log.append(said(f"{len(log)}", parent, kind, what))
                parent = log[-1]["uuid"]
        path = write_log(folder_of(repo) / f"{SESSION}.jsonl", log)
    else:
        log = codex_records(SESSION, repo, [f"prompt {i}" for i in range(number)])
        for record in log:
            if record["payload"].get("type") == "function_call_output":
                record["payload"]["output"] = megabyte
        path = write_log(codex_path(home, SESSION), log)
    del log
    code = f"""
import resource
from datetime import datetime
from pathlib import Path
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.copier import NewSession
from smart_fork.forking.copies import write_branch
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
agent = READERS[{agent!r}]
session = agent.read(Path({str(path)!r})).session
new = NewSession({NEW!r}, Path({str(repo)!r}), datetime(2026, 1, 2))
write_branch(session, at=session.turns[-1].id, becomes=new)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert int(done.stdout) < 40 * 1024  # KiB on Linux, of 80 MiB
    assert number << 20 < next(home.rglob(f"*{NEW}.jsonl")).stat().st_size


def test_a_writer_that_is_killed_leaves_nothing_that_an_agent_sees_and_the_next_one_sweeps(claude_session, repo):
    """B-059, B-073."""
    code = f"""
import sys
from datetime import datetime
from pathlib import Path
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.claude import session_writer
from smart_fork.agents.copier import NewSession
from smart_fork.forking import copies
class Slow(session_writer.ClaudeCopy):
    def __iter__(self):
        for line in super().__iter__():
            yield line + b" " * 100_000
            print("written", flush=True)
            sys.stdin.read()
session_writer.ClaudeCopier.copies = Slow
session = READERS["claude"].read(Path({str(claude_session)!r})).session
copies.write_branch(session, at="a5", becomes=NewSession({NEW!r}, Path({str(repo)!r}), datetime(2026, 1, 2)))
"""
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
        assert writer.stdout.readline() == b"written\n"
        writer.kill()
    folder = claude_session.parent
    (staged,) = [one for one in folder.iterdir() if one != claude_session]
    assert staged.name.startswith(f".{NEW}.jsonl.")
    assert [SESSION] == [READERS["claude"].id_of(file.path) for file in READERS["claude"].discover()]

    other = NEW.replace("7a1c", "7a1d")
    session = session_of("claude", claude_session)
    write_branch(session, NewSession(other, repo, NOW), at="a5")
    assert staged.exists()  # its writer may still be at work
    os.utime(staged, (time.time() - 2 * STALE_SECONDS,) * 2)
    write_branch(session, NewSession(NEW, repo, NOW), at="a5")
    assert {f"{one}.jsonl" for one in (SESSION, other, NEW)} == {one.name for one in folder.iterdir()}


def test_a_log_that_is_rewritten_while_it_is_read_is_no_source(claude_session, repo, monkeypatch):
    """B-073."""
    session = session_of("claude", claude_session)
    claude_session.write_text(claude_session.read_text().replace('"a4"', '"b4"'))
    before = snapshot(claude_session.parent)

    with pytest.raises(ForkRefused, match="changed during reading"):
        write_copy(session, len(session.turns) - 1, becomes=NewSession(NEW, repo, NOW))

    assert before == snapshot(claude_session.parent)


@pytest.fixture(params=["claude", "codex"])
def any_session(request):
    return request.param, request.getfixturevalue(f"{request.param}_session")


def test_the_source_is_only_read(any_session, repo):
    """B-005, F-095."""
    agent, path = any_session
    before = snapshot(path.parent)

    branch = write(agent, path, session_of(agent, path).turns[-1].id, repo)

    assert before == {name: value for name, value in snapshot(path.parent).items() if name != branch.path.name}
    assert 0o600 == stat.S_IMODE(branch.path.stat().st_mode)


def test_a_point_inside_an_exchange_moves_to_where_the_agent_had_finished(any_session, repo):
    """B-074: no tool call is left without its answer."""
    agent, path = any_session
    session = session_of(agent, path)
    first = [index for index, turn in enumerate(session.turns) if turn.prompt][1] - 1

    points = {branch_point(session, turn.id) for turn in session.turns[: first + 1]}

    assert {first} == points
    branch = write(agent, path, session.turns[0].id, repo)
    assert (session.turns[first].id, True) == (branch.at, branch.moved)


def test_a_point_that_the_agent_does_not_remember_is_refused(any_session, repo):
    """B-074."""
    agent, path = any_session
    before = snapshot(path.parent)
    for at in ("dead", "s1", "x1", "nothing", ""):
        with pytest.raises(ForkRefused, match=f"Invalid or inactive branch point: {at}"):
            write(agent, path, at, repo)

    assert before == snapshot(path.parent)


def test_an_answer_that_was_never_finished_cannot_be_forked_at(claude_session):
    """B-026, B-074."""
    grown = [
        *records(claude_session),
        said("u3", "a5", "user", "one more"),
        said("a6", "u3", "assistant", text("I look")),
        said("a7", "a6", "assistant", [{"type": "tool_use", "id": "t9", "name": "Bash", "input": {}}]),
    ]
    session = session_of("claude", write_log(claude_session, grown))

    for at in ("u3", "a6", "a7"):
        with pytest.raises(ForkRefused, match="not finished") as caught:
            branch_point(session, at)
    (number,) = (i for i, turn in enumerate(session.turns) if turn.id == "a5")
    assert caught.value.hint.endswith(f": {number}.")


def test_a_word_said_before_a_call_is_answered_is_not_the_last_one(home, repo):
    """B-074."""
    call = said("a1", "u1", "assistant", [{"type": "tool_use", "id": "t1", "name": "Bash", "input": {}}])
    path = write_log(
        repo / f"{SESSION}.jsonl", [said("u1", None, "user", "go"), call, said("a2", "a1", "assistant", text("Wait"))]
    )

    with pytest.raises(ForkRefused, match="not finished"):
        branch_point(session_of("claude", path), "a2")


def test_claude_gets_what_was_typed_while_it_worked(claude_session, repo):
    queued = {"type": "queued_command", "prompt": "and hurry"}
    grown = [
        *records(claude_session),
        said("q1", "a5", "attachment", "") | {"attachment": queued},
        said("a6", "q1", "assistant", text("Done")),
    ]
    path = write_log(claude_session, grown)
    assert "and hurry" in [turn.text for turn in session_of("claude", path).turns]

    assert queued in [record.get("attachment") for record in records(write("claude", path, "a6", repo).path)]


def test_a_call_that_was_interrupted_does_not_block_what_came_after(claude_session):
    grown = [
        *records(claude_session),
        said("a6", "a5", "assistant", [{"type": "tool_use", "id": "t9", "name": "Bash", "input": {}}]),
        said("u3", "a6", "user", "stop that"),
        said("a7", "u3", "assistant", text("Stopped")),
    ]
    session = session_of("claude", write_log(claude_session, grown))

    assert "a7" == session.turns[branch_point(session, "u3")].id


def test_a_session_that_exists_is_not_touched(any_session, repo):
    """B-023, B-024."""
    agent, path = any_session
    last = session_of(agent, path).turns[-1].id
    branch = write(agent, path, last, repo)
    before = snapshot(path.parent)

    with pytest.raises(ForkRefused, match="already exists"):
        write(agent, path, session_of(agent, path).turns[0].id, repo)

    assert before == snapshot(path.parent)
    assert branch.path.is_file()


def test_what_is_no_session_cannot_be_forked(any_session, repo, home):
    """B-020, B-021."""
    agent, path = any_session
    with pytest.raises(Usage, match="Invalid new sessionId"):
        write_branch(session_of(agent, path), at="a4", becomes=NewSession("../x", repo, NOW))


def test_a_fork_can_be_forked_again(any_session, repo):
    """B-008, B-074: it names its direct parent."""
    agent, path = any_session
    first = write(agent, path, session_of(agent, path).turns[-1].id, repo)
    other = NEW.replace("7a1c", "7a1d")

    second = write_branch(
        session_of(agent, first.path),
        at=session_of(agent, first.path).turns[0].id,
        becomes=NewSession(other, repo, NOW),
    )

    assert NEW == session_of(agent, second.path).parent_id
