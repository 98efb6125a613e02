"""Tests of copies of Qwen Code's sessions: the messages that the program remembers, and the copy's place."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import Excerpt, NewSession
from smart_fork.agents.qwen.log_files import QwenAdapter
from smart_fork.errors import ForkRefused
from tests.indexer.transcripts.records import CWD, SESSION, id_of, linked, qwen_log, read_qwen, texts
from tests.smart_fork.agents.qwen.test_log import fixture

NEW = id_of(9)


def new(cwd: Path | None = None, title: str = "") -> NewSession:
    return NewSession(NEW, cwd, datetime(2026, 7, 2, 10, tzinfo=UTC), title)


def copied(session: Session, end: int, becomes: NewSession, excerpt: Excerpt | None = None) -> tuple[Path, list[dict]]:
    copier = AGENTS.copier_of("qwen")
    target = copier.place(session.source_path, becomes)
    copy = copier.copy(session, excerpt, becomes) if excerpt else copier.copy(session, end, becomes)
    lines = list(copy)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(b"".join(line + b"\n" for line in lines))
    copy.copy_beside(target, [])
    return target, [json.loads(line) for line in lines]


@pytest.mark.parametrize("name", ["person", "tools", "fork", "rewound", "declined"])
def test_a_copy_reads_back_as_what_was_copied(home, name):
    session = read_qwen(fixture(home, name))

    target, records = copied(session, len(session.turns) - 1, new())
    copy = read_qwen(target)

    assert texts(copy) == texts(session)
    assert [turn.id for turn in copy.turns] == [
        turn.id for turn in session.turns if turn.role != "system" or name == "tools"
    ]
    assert (copy.session_id, copy.parent_id, copy.root_id) == (NEW, session.session_id, session.root_id)
    assert {record["sessionId"] for record in records} == {NEW}
    assert [record["parentUuid"] for record in records] == [None, *(record["uuid"] for record in records[:-1])]


def test_a_copy_up_to_a_message_ends_there(home):
    session = read_qwen(fixture(home, "person"))

    target, records = copied(session, 1, new())

    assert texts(read_qwen(target)) == ["Please remember zebra", "zebra it is"]
    assert [record["forkedFrom"]["messageUuid"] for record in records] == [turn.id for turn in session.turns[:2]]


def test_a_copy_without_its_beginning_is_of_the_same_family(home):
    session = read_qwen(fixture(home, "person"))
    last = len(session.turns) - 1

    target, _ = copied(session, last, new(), Excerpt(frozenset({last - 1, last}), last, {last - 1: "left: one"}))

    assert texts(read_qwen(target)) == texts(session)[-2:]
    assert read_qwen(target).root_id == session.root_id


def test_a_copy_that_leaves_something_out_counts_each_record_once(home):
    session = read_qwen(fixture(home, "person"))
    last = len(session.turns) - 1

    copy = AGENTS.copier_of("qwen").copy(
        session, Excerpt(frozenset({last - 1, last}), last, tokens=(1,) * (last + 1)), new()
    )

    assert len(list(copy)) == copy.copied == 2


def test_a_copy_begins_with_what_a_compaction_left(home):
    session = read_qwen(fixture(home, "compressed"))

    target, records = copied(session, len(session.turns) - 1, new())

    assert records[0]["subtype"] == "chat_compression"
    assert texts(read_qwen(target)) == ["Where are the tests", "Noted: Where are the tests"]
    assert read_qwen(target).compactions == 1


def test_a_copy_for_another_directory_is_found_from_there(home):
    session = read_qwen(fixture(home, "person"))
    worktree = home / "shop-w1"
    worktree.mkdir()

    target, records = copied(session, 1, new(worktree))

    assert target.parent.parent.name.endswith("-shop-w1")
    assert {record["cwd"] for record in records} == {str(worktree)}
    assert read_qwen(target).cwd == str(worktree)
    assert QwenAdapter().locate(NEW) == (target,)
    assert not QwenAdapter().is_copy(target)


def test_a_title_is_written_as_qwen_code_writes_it(home):
    session = read_qwen(fixture(home, "person"))

    target, records = copied(session, 1, new(title="zoo (Branch)"))

    assert read_qwen(target).title == "zoo (Branch)"
    assert read_qwen(target).named
    assert (records[-1]["subtype"], records[-1]["parentUuid"]) == ("custom_title", records[-2]["uuid"])
    assert QwenAdapter().glance(target).title == "zoo (Branch)"


def test_what_sub_agents_have_said_is_copied_beside(home):
    path = fixture(home, "tools")
    agents = path.parent.parent / "subagents" / path.stem
    agents.mkdir(parents=True)
    (agents / "agent-look-call_1.jsonl").write_text("{}\n")
    session = read_qwen(path)

    target, _ = copied(session, 3, new())

    assert (target.parent.parent / "subagents" / NEW / "agent-look-call_1.jsonl").read_text() == "{}\n"


def test_records_that_came_before_their_parents_are_put_in_order(home):
    path = qwen_log(
        home,
        linked("user", "u1", None, "one"),
        linked("user", "u2", "a1", "two"),
        linked("assistant", "a1", "u1", "first"),
        linked("assistant", "a2", "u2", "second"),
    )
    session = read_qwen(path)

    _, records = copied(session, 3, new())

    assert [record["uuid"] for record in records] == ["u1", "a1", "u2", "a2"]


def test_a_log_that_was_rewritten_meanwhile_is_refused(home):
    path = qwen_log(home, linked("user", "u1", None, "one"), linked("assistant", "a1", "u1", "first"))
    session = read_qwen(path)
    qwen_log(home, linked("user", "u1", None, "one"))

    with pytest.raises(ForkRefused, match="changed during reading"):
        copied(session, 1, new())


def test_records_that_are_chosen_are_copied_as_they_are_but_for_whose_they_are(home):
    path = qwen_log(home, linked("user", "u1", None, "one"), linked("system", "s1", "u1", subtype="x"))
    session = read_qwen(path)
    chosen = [(line.encode(), json.loads(line)) for line in path.read_text().splitlines()]

    records = [json.loads(line) for line in AGENTS.copier_of("qwen").of_records(session, chosen, new())]

    same = ("uuid", "parentUuid", "type", "timestamp", "cwd")
    assert [[record[key] for key in same] for record in records] == [[one[key] for key in same] for _, one in chosen]
    assert {(record["sessionId"], record["forkedFrom"]["sessionId"]) for record in records} == {(NEW, SESSION)}
    assert {record["cwd"] for record in records} == {CWD}
