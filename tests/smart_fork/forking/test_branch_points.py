"""Tests of the points where a copy may end, and of copied texts being byte-equal."""

from __future__ import annotations

import pytest

from smart_fork.agents.claude.log_files import folder_of
from smart_fork.errors import ForkRefused
from smart_fork.forking.fork_points import branch_point
from tests.smart_fork.forking.test_copies import session_of, write
from tests.smart_fork.forks import SESSION, codex_path, codex_records, said, text, write_log

EXACT = b'"n": 9007199254740993, "big": 123456789012345678901234567890, "half": "\\ud83d", "f": 1.50E+2'


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_what_need_not_change_is_copied_as_it_is_spelled(agent, request, repo):
    """Numbers that are no doubles, and half surrogates, are copied as well."""
    source = request.getfixturevalue(f"{agent}_session")
    key = b'"role": "' if agent == "claude" else b'"type": "message"'
    source.write_bytes(source.read_bytes().replace(key, EXACT + b", " + key))

    branch = write(agent, source, "a4" if agent == "claude" else "6", repo)

    lines = [line for line in branch.path.read_bytes().splitlines() if key in line]
    assert lines
    assert all(EXACT in line for line in lines)
    assert all(line.count(b"9007199254740993") == 1 for line in lines)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_branch_point_is_never_in_a_later_exchange(agent, home, repo):
    """After an interrupted and continued answer, the copy ends with the message itself, or is refused."""
    if agent == "claude":
        records = [
            said("u1", None, "user", "add retry"), said("a1", "u1", "assistant", text("I look")),
            said("a2", "a1", "assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}]),
            said("u2", "a2", "user", "rather the docs"), said("a3", "u2", "assistant", text("Docs are there")),
        ]  # fmt: skip
        path = write_log(folder_of(repo) / f"{SESSION}.jsonl", records)
    else:
        first, second = codex_records(SESSION, repo, ["add retry"])[1:], codex_records(SESSION, repo, ["the docs"])
        records = [second[0], *first[:3], first[5], first[3], *second[1:]]
        path = write_log(codex_path(home, SESSION), [one | {"ordinal": i} for i, one in enumerate(records)])
    session = session_of(agent, path)
    prompt, look, call, later = [turn.id for turn in session.turns if turn.text or turn.tool_calls][:4]
    index = {turn.id: i for i, turn in enumerate(session.turns)}

    assert index[look] == branch_point(session, look)
    for wrong in (prompt, call):
        with pytest.raises(ForkRefused, match="the agent has not finished its answer") as caught:
            branch_point(session, wrong)
        assert str(branch_point(session, later)) in caught.value.hint
    assert index[later] < branch_point(session, later)
