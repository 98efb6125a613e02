"""Tests of the documents that OpenCode imports as copies of its sessions."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from indexer.transcripts.lines import bounded
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt, NewSession
from smart_fork.agents.opencode.log_files import OpenCodeAdapter
from smart_fork.errors import ForkRefused, NotFound, ProgramFailed
from smart_fork.forking.budget_parts import costs
from smart_fork.forking.family import parents
from smart_fork.system.processes import Machine
from tests.smart_fork.agents.opencode.database import COMPACTED, FORK, TAKEN_BACK, TOOLS, change, make, take
from tests.smart_fork.forks import FakeProcesses

#: As if all parts of messages were very long.
LONG_PARTS = "SELECT CAST(id AS BLOB), NULL, rowid FROM part WHERE message_id = CAST(? AS TEXT) ORDER BY id"
NEW = NewSession("ses_00112233445566778899aabbcc", Path("/"), datetime(2026, 11, 23, tzinfo=UTC), "A copy")


@pytest.fixture
def path():
    return make()


def session(path, identity):
    return OpenCodeAdapter().read(path / identity).session


def document(path, identity, end):
    return json.loads(b"".join(AGENTS.copier_of("opencode").copy(session(path, identity), end, NEW)))


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


@pytest.mark.parametrize("identity", [TOOLS, COMPACTED, FORK, TAKEN_BACK])
def test_what_a_budget_counts_is_measured_while_the_session_is_read(path, identity):
    with bounded(measures=True):
        measured = session(path, identity)

    again = costs(replace(measured, sizes=()))

    assert len(measured.turns) == len(measured.sizes)
    assert 0 < sum(again.turns)
    assert again == costs(measured)


def test_what_is_too_long_to_be_read_is_measured_again(path, monkeypatch):
    """A very long text is shortened while it is read."""
    monkeypatch.setattr("smart_fork.agents.opencode.database._PARTS", LONG_PARTS)
    with bounded(measures=True):
        measured = session(path, TOOLS)

    assert () == measured.sizes
    assert 0 < sum(costs(measured).turns)


@pytest.mark.thorough
def test_a_text_of_more_than_16_mebibytes_counts_and_is_copied_as_it_is(path, tmp_path):
    before = session(path, TOOLS)
    number = next(at for at, turn in enumerate(before.turns) if turn.prompt)
    text = "zebra " * 3_000_000
    change(
        path, "UPDATE part SET data = json_set(data, '$.text', ?) WHERE message_id = ? AND data ->> '$.type' = 'text'",
        text, before.turns[number].id,
    )  # fmt: skip

    now = session(path, TOOLS)

    assert f"[a text of {len(text):,} bytes, too long to be read]" == now.turns[number].text
    assert [turn.id for turn in before.turns] == [turn.id for turn in now.turns]
    assert text in json.dumps(document(path, TOOLS, 5))


def test_what_was_taken_back_is_not_copied_and_a_summary_is(path):
    assert "second try" not in json.dumps(document(path, TAKEN_BACK, 1))
    assert "revert" not in document(path, TAKEN_BACK, 1)["info"]
    made = document(path, COMPACTED, 7)
    assert [True] == [one["info"]["summary"] for one in made["messages"] if one["info"].get("summary") is True]


def test_a_session_that_changes_while_it_is_read_is_not_copied(path):
    read = session(path, TOOLS)
    change(path, "DELETE FROM message WHERE id = ?", read.turns[0].id)
    with pytest.raises(ForkRefused, match="changed during reading"):
        list(AGENTS.copier_of("opencode").copy(read, 5, NEW))

    change(path, "DELETE FROM session WHERE id = ?", TOOLS)
    with pytest.raises(NotFound):
        list(AGENTS.copier_of("opencode").copy(read, 5, NEW))


def test_a_session_that_is_there_is_never_written_over(path, programs):
    copier, machine = AGENTS.copier_of("opencode"), Machine(FakeProcesses({}), {})
    there = NewSession(FORK, None, NEW.now)
    with pytest.raises(ForkRefused, match="already exists"):
        copier.write(copier.copy(session(path, TOOLS), 5, there), path / FORK, there, machine, lambda: None)


def test_a_copy_that_is_not_taken_is_an_error(path, programs):
    (programs / "opencode").write_text("#!/bin/sh\n")
    (programs / "opencode").chmod(0o755)
    copier = AGENTS.copier_of("opencode")
    machine = Machine(FakeProcesses({"opencode": lambda _: (0, "Imported session")}), {"PATH": str(programs)})
    with pytest.raises(ProgramFailed, match="refused the copy"):
        copier.write(copier.copy(session(path, TOOLS), 5, NEW), path / NEW.id, NEW, machine, lambda: None)


def distilled(path, *parts):
    """Return the document of a copy with these turns of these sessions, and the lines before some of the turns."""
    copies = []
    for identity, kept, told in parts:
        read = session(path, identity)
        end = len(read.turns) - 1
        excerpt = Excerpt(frozenset(kept), end, told, (10,) * (end + 1), frozenset(kept) & {1})
        copies.append(AGENTS.copier_of("opencode").copy(read, excerpt, NEW))
    first, *first.following = copies
    return json.loads(b"\n".join(first))


def read_back(folder, made):
    (folder / NEW.id).write_text(json.dumps(made))
    return OpenCodeAdapter().read(folder / NEW.id).session


def test_of_what_is_left_out_a_line_is_told_and_answers_name_a_question_that_is_there(path, tmp_path):
    above = session(path, TOOLS)

    made = distilled(path, (TOOLS, {0, 2, 7, 8}, {7: "left: three"}))

    back = read_back(tmp_path, made)
    assert [above.turns[number].text for number in (0, 2)] == [turn.text for turn in back.turns[:2]]
    assert ("system", "") == (back.turns[2].role, back.turns[2].text)
    line = made["messages"][2]
    assert "left: three" in line["parts"][0]["text"]
    assert {"providerID": "mock", "modelID": "mock"} == line["info"]["model"]
    call = made["messages"][3]["info"]
    assert (line["info"]["id"], line["info"]["time"]["created"]) == (call["parentID"], call["time"]["created"])
    order = [(one["info"]["time"]["created"], one["info"]["id"]) for one in made["messages"]]
    assert order == sorted(order)
    assert [0, 20, 0, 30, 40] == [turn.loaded for turn in back.turns]
    assert {call.id for turn in back.turns for call in turn.tool_calls} == {
        result.tool_use_id for turn in back.turns for result in turn.tool_results
    }
    assert {NEW.id} == {part["sessionID"] for one in made["messages"] for part in one["parts"]}


def test_what_is_forked_without_its_beginning_is_of_the_same_family(path, tmp_path):
    above = session(path, TOOLS)
    made = distilled(path, (TOOLS, {3, 4, 5}, {3: "left: one"}))

    assert above.root_id == read_back(tmp_path, made).root_id
    take(path, made)
    heads = AGENTS.ancestry_of("opencode")
    family = heads.family(NEW.id, "", {})
    assert {TOOLS, FORK, NEW.id} <= {kin.session_id for kin in family}
    assert TOOLS == parents(family, {})[NEW.id]
    own = {kin.session_id: kin for kin in family}
    copy = OpenCodeAdapter().read(path / NEW.id).session
    assert 6 == heads.shared(own[NEW.id], own[TOOLS], above, lambda: copy)


def test_a_session_that_was_said_later_comes_first_and_a_summary_is_told(path, tmp_path):
    made = distilled(path, (COMPACTED, {6, 7}, {6: "from one"}), (TOOLS, {0, 1, 2}, {0: "from the other"}))

    back = read_back(tmp_path, made)
    assert ["go on after that", "PONG 3: go on after that"] == [turn.text for turn in back.turns[2:4]]
    assert ["system", "system", "user", "assistant", "system", "user", "assistant", "assistant"] == [
        turn.role for turn in back.turns
    ]
    assert (0, True) == (back.compactions, sorted(times := [turn.timestamp for turn in back.turns]) == times)
    summary, *_ = made["messages"]
    assert "PONG" in summary["parts"][0]["text"]


def test_a_long_result_is_shortened_with_what_its_screen_shows(path):
    (row,) = [one for one in rows_of(path, TOOLS) if '"tool":"read"' in one[1]]
    part = json.loads(row[1])
    part["state"] |= {"output": "line\n" * 400, "metadata": {"preview": "line\n" * 400, "exit": 0}}
    change(path, "UPDATE part SET data = ? WHERE id = ?", json.dumps(part), row[0])

    made = distilled(path, (TOOLS, {0, 1, 2}, {}))

    (short,) = [one["state"] for one in made["messages"][1]["parts"] if one["type"] == "tool"]
    assert "characters dropped from this copy" in short["output"]
    assert ("characters dropped from this copy" in short["metadata"]["preview"], 0) == (True, short["metadata"]["exit"])
    sizes = [
        (one.characters, one.short)
        for one in AGENTS.copier_of("opencode").live(session(path, TOOLS))
        if one.number == 1
    ]
    assert all(size > 2000 and small < 1000 for size, small in sizes)


def rows_of(path, identity):
    with closing(sqlite3.connect(path)) as db:
        return db.execute("SELECT id, data FROM part WHERE session_id = ?", (identity,)).fetchall()
