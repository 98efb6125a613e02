"""Tests of copies of Gemini CLI's sessions: the messages that the program remembers, and the copy's place."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt, NewSession
from smart_fork.agents.gemini.log_files import GeminiAdapter, project_for
from smart_fork.agents.storage import Storage
from smart_fork.errors import ForkRefused, NotFound
from smart_fork.forking.budget_parts import costs
from smart_fork.system.processes import Machine, Processes
from tests.indexer.transcripts.records import SESSION, gemini_log, id_of, listed, ran, read_gemini, spoken, texts
from tests.smart_fork.agents.gemini.test_log import fixture

NEW = id_of(9)


def new(cwd: Path | None = None, title: str = "") -> NewSession:
    return NewSession(NEW, cwd, datetime(2026, 7, 2, 10, tzinfo=UTC), title)


def copied(session: Session, end: int, becomes: NewSession, excerpt: Excerpt | None = None) -> tuple[Path, list[dict]]:
    copier = AGENTS.copier_of("gemini")
    copy = copier.copy(session, excerpt, becomes) if excerpt else copier.copy(session, end, becomes)
    target = copier.place(session.source_path, becomes)
    written = copier.write(copy, target, becomes, Machine(Processes(), {}), lambda: None)
    return written.path, [json.loads(line) for line in target.read_text().splitlines()]


@pytest.mark.parametrize("name", ["person", "tools", "imported"])
def test_a_copy_reads_back_as_what_was_copied(home, name):
    """A copy has no description of the workspace, and each result once."""
    session = read_gemini(fixture(home, name))

    target, (head, *messages) = copied(session, len(session.turns) - 1, new())
    copy = read_gemini(target)

    assert texts(copy) == texts(session)
    assert (copy.session_id, copy.parent_id, copy.root_id) == (NEW, session.session_id, session.root_id)
    assert target.name == f"session-2026-07-02T10-00-{NEW}.jsonl"
    assert head["forkedFrom"] == {"sessionId": session.session_id, "root": session.root_id}
    assert [one["id"] for one in messages] == [turn.id for turn in session.turns if turn.role != "system"]
    assert json.dumps(messages).count("functionResponse") == (name != "person")


def test_a_copy_up_to_a_message_that_was_compressed_has_what_was_remembered_then(home):
    session = read_gemini(fixture(home, "compressed"))

    target, _ = copied(session, 1, new())

    assert texts(read_gemini(target)) == texts(session)[:2]


def test_a_copy_of_what_is_remembered_has_what_was_left_of_the_rest_and_not_that(home):
    session = read_gemini(fixture(home, "compressed"))

    _, (_, *messages) = copied(session, len(session.turns) - 1, new())

    assert "first step" not in json.dumps(messages)
    assert [one["content"][0]["text"] for one in messages[:3]] == [
        "PONG 4: t the exact same <state_snapshot> again.", "Got it. Thanks for the additional context!", "second step",
    ]  # fmt: skip


def test_a_result_that_stands_in_a_message_alone_is_kept(home):
    """After a compression, some calls have their results only in messages."""
    answer = {"functionResponse": {"id": "c", "name": "x", "response": {"output": "found"}}}
    asked = spoken("user", "u", "one"), spoken("gemini", "a", toolCalls=[ran("c", "x", "found")])
    kept = spoken("gemini", "m", {"functionCall": {"id": "c", "name": "x", "args": {}}}), spoken("user", "r", answer)
    log = gemini_log(home, *asked, listed(spoken("user", "s", "all"), *kept), spoken("gemini", "b", "done"))
    session = read_gemini(log)

    _, (_, *messages) = copied(session, len(session.turns) - 1, new())

    assert [one["id"] for one in messages] == ["s", "m", "r", "b"]


def measured_alike(log: Path) -> None:
    with bounded(measures=True):
        measured = GeminiAdapter().read(log).session

    again = costs(replace(measured, sizes=()))

    assert len(measured.turns) == len(measured.sizes)
    assert 0 < sum(again.turns)
    assert again == costs(measured)


@pytest.mark.parametrize("name", ["person", "tools", "imported", "compressed"])
def test_what_a_budget_counts_is_measured_while_the_log_is_read(home, name):
    measured_alike(fixture(home, name))


def test_what_is_said_again_in_a_call_rewound_or_compressed_is_measured_as_it_is_remembered(home):
    answer = {"functionResponse": {"id": "c", "name": "x", "response": {"output": "found " * 500}}}
    asked = spoken("user", "u", "one"), spoken("gemini", "a", toolCalls=[ran("c", "x", "found " * 500)])
    kept = spoken("gemini", "m", {"functionCall": {"id": "c", "name": "x", "args": {}}}), spoken("user", "r", answer)
    rewound = spoken("user", "v", "no"), {"$rewindTo": "v"}
    again = spoken("user", "t", {"functionResponse": answer["functionResponse"]})
    for records in (
        (*asked, listed(spoken("user", "s", "all"), *kept), spoken("gemini", "b", "done")),
        (*asked, again, spoken("gemini", "b", "done")),
        (*asked, *rewound, spoken("gemini", "b", "done")),
    ):
        measured_alike(gemini_log(home, *records))


def test_what_is_left_out_is_told_in_its_place(home):
    session = read_gemini(fixture(home, "person"))
    number = next(i for i, turn in enumerate(session.turns) if turn.text == "second one")
    kept = frozenset({number, number + 1})

    target, (_, line, *messages) = copied(session, 0, new(), Excerpt(kept, number + 1, {number: "left: one"}))

    assert "left: one" in line["content"][0]["text"]
    assert [one["id"] for one in messages] == [turn.id for turn in session.turns[number : number + 2]]
    assert texts(read_gemini(target)) == ["second one", "PONG 3: second one"]
    assert read_gemini(target).root_id == session.root_id


def test_a_copy_goes_where_gemini_cli_looks_from_its_directory(home, tmp_path):
    """A directory without a folder gets one that names it. The folder of another directory is never used."""
    session = read_gemini(fixture(home, "person"))
    elsewhere = tmp_path / "shop"
    elsewhere.mkdir()

    target, (head, *_) = copied(session, len(session.turns) - 1, new(elsewhere, "Downloads"))

    assert target.parent == home / ".gemini/tmp/shop-1/chats"
    assert (target.parents[1] / ".project_root").read_text() == str(elsewhere)
    assert project_for(elsewhere) == target.parents[1]
    copy = read_gemini(target)
    assert (copy.cwd, copy.copied, copy.title) == (str(elsewhere), False, "Downloads")
    assert head["startTime"] == "2026-07-02T10:00:00.000Z"


def test_a_copy_that_cannot_be_made_leaves_nothing(home, tmp_path):
    session = read_gemini(fixture(home, "person"))
    session.source_path.unlink()
    before = sorted(home.rglob("*"))

    with pytest.raises(NotFound, match="log is gone"):
        copied(session, len(session.turns) - 1, new(tmp_path))

    assert [path for path in sorted(home.rglob("*")) if path.is_file()] == [path for path in before if path.is_file()]


def test_a_session_that_was_rewound_meanwhile_is_not_copied(home):
    session = read_gemini(fixture(home, "person"))
    with session.source_path.open("a") as file:
        file.write(json.dumps({"$rewindTo": session.turns[-1].id}) + "\n")

    with pytest.raises(ForkRefused, match="changed during reading"):
        copied(session, len(session.turns) - 1, new())


def test_a_second_name_is_of_the_same_file_and_takes_no_other_s_place(home):
    log = gemini_log(home, spoken("user", "u", "one"))
    name = log.with_name(f"session-2026-07-03T10-00-{SESSION}.jsonl")

    for _ in range(2):
        Storage.add_path(log, name)
    assert log.samefile(name)
    name.unlink()
    name.write_text("another")
    with pytest.raises(ForkRefused, match="Another version"):
        Storage.add_path(log, name)
    assert name.read_text() == "another"
