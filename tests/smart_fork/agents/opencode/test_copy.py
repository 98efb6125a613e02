"""Copies of OpenCode's sessions, as they are handed to it."""

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from smart_fork.agents.copier import NewSession
from smart_fork.agents.opencode.copy import OpenCodeCopier
from smart_fork.agents.opencode.log import OpenCodeAdapter
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed
from smart_fork.processes import Machine
from tests.smart_fork.agents.opencode.database import COMPACTED, FORK, TAKEN_BACK, TOOLS, change, make
from tests.smart_fork.forks import FakeProcesses

NEW = NewSession("ses_00112233445566778899aabbcc", Path("/"), datetime(2026, 11, 23, tzinfo=UTC), "A copy")


@pytest.fixture
def path():
    return make()


def session(path, identity):
    return OpenCodeAdapter().read(path / identity).session


def document(path, identity, end):
    (line,) = OpenCodeCopier().up_to(session(path, identity), end, NEW)
    return json.loads(line)


def test_a_copy_says_the_same_at_the_same_times_under_ids_of_its_own(path, tmp_path):
    above = session(path, TOOLS)
    made = document(path, TOOLS, 5)
    file = tmp_path / NEW.id
    file.write_text(json.dumps(made))
    copy = OpenCodeAdapter().read(file).session

    assert [(turn.role, turn.text, turn.timestamp) for turn in above.turns[:6]] == [
        (turn.role, turn.text, turn.timestamp) for turn in copy.turns
    ]
    assert (above.root_id, NEW.id, "A copy") == (copy.root_id, copy.session_id, copy.title)
    ids = [one["info"]["id"] for one in made["messages"]]
    assert ids == sorted(ids)
    assert not set(ids) & {turn.id for turn in above.turns}
    assert all(one["info"]["parentID"] in ids for one in made["messages"] if one["info"]["role"] == "assistant")
    parts = [part for one in made["messages"] for part in one["parts"]]
    assert {NEW.id} == {part["sessionID"] for part in parts} | {one["info"]["sessionID"] for one in made["messages"]}
    assert {part["messageID"] for part in parts} == set(ids)
    assert TOOLS not in json.dumps(made)


def test_what_was_taken_back_is_not_copied_and_a_summary_is(path):
    assert "second try" not in json.dumps(document(path, TAKEN_BACK, 1))
    assert "revert" not in document(path, TAKEN_BACK, 1)["info"]
    made = document(path, COMPACTED, 7)
    assert [True] == [one["info"]["summary"] for one in made["messages"] if one["info"].get("summary") is True]


def test_a_session_that_changes_while_it_is_read_is_not_copied(path):
    read = session(path, TOOLS)
    change(path, "DELETE FROM message WHERE id = ?", read.turns[0].id)
    with pytest.raises(ForkRefused, match="changed while it was read"):
        list(OpenCodeCopier().up_to(read, 5, NEW))

    change(path, "DELETE FROM session WHERE id = ?", TOOLS)
    with pytest.raises(NotFound):
        list(OpenCodeCopier().up_to(read, 5, NEW))


def test_a_session_that_is_there_is_never_written_over(path, programs):
    copier, machine = OpenCodeCopier(), Machine(FakeProcesses({}), {})
    there = NewSession(FORK, None, NEW.now)
    with pytest.raises(ForkRefused, match="already exists"):
        copier.write(copier.up_to(session(path, TOOLS), 5, there), path / FORK, there, machine, lambda: None)


def test_a_copy_that_is_not_taken_is_an_error(path, programs):
    (programs / "opencode").write_text("#!/bin/sh\n")
    (programs / "opencode").chmod(0o755)
    copier = OpenCodeCopier()
    machine = Machine(FakeProcesses({"opencode": lambda _: (0, "Imported session")}), {"PATH": str(programs)})
    with pytest.raises(ProgramFailed, match="did not take"):
        copier.write(copier.up_to(session(path, TOOLS), 5, NEW), path / NEW.id, NEW, machine, lambda: None)
