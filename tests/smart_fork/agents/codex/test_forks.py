"""Codex forks: copy-on-write since 0.169, copies before (F-155)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from indexer.transcripts import lines
from indexer.transcripts.base import UNREAD
from smart_fork.agents import AGENTS
from smart_fork.agents.codex.log_files import CodexAdapter
from smart_fork.forking.budget_parts import costs
from tests.indexer.transcripts.records import (
    codex_log,
    codex_path,
    event,
    id_of,
    item,
    message,
    meta,
    prompts,
    read_codex,
    texts,
)  # fmt: skip


def exchange(text: str, ordinal: int) -> list[object]:
    return [message("user", text, ordinal), message("assistant", f"done {text}", ordinal + 1)]


def fork_meta(session: str, parent: str, end: object, **more: object) -> dict[str, object]:
    base = {"thread_id": parent, "end_ordinal_exclusive": end, "end_byte_offset": 1}
    return meta(
        session,
        end if isinstance(end, int) else 0,
        forked_from_id=parent,
        history_mode="paginated",
        history_base=base,
        **more,
    )


@pytest.fixture
def line(home):
    """Write four sessions, each forked from the one before it; each parent continued after its fork. Return their ids."""
    ids = [id_of(number) for number in range(1, 5)]
    codex_log(home, ids[0], meta(ids[0], 0), *exchange("one", 1), *exchange("not theirs", 3))
    for number, parent in enumerate(ids[:-1], 2):
        end = 2 * number - 1
        records = [
            fork_meta(ids[number - 1], parent, end),
            *exchange(f"fork {number}", end),
            *exchange("not theirs either", end + 2),
        ]
        codex_log(home, ids[number - 1], *records)
    return ids


def test_a_fork_of_a_fork_of_a_fork_has_what_was_said_before(home, line):
    session = read_codex(codex_path(home, line[-1]))

    assert prompts(session) == ["one", "fork 2", "fork 3", "fork 4", "not theirs either"]
    assert (session.session_id, session.parent_id, session.root_id) == (line[3], line[2], line[0])
    assert session.title == "fork 4"


def measured_alike(log: Path) -> None:
    with lines.bounded(measures=True):
        measured = CodexAdapter().read(log).session

    assert measured.sizes
    assert sum(costs(measured).turns)
    assert costs(replace(measured, sizes=())) == costs(measured)


def test_what_a_budget_counts_is_measured_while_a_fork_and_its_parents_are_read(home, line):
    for identity in line:
        measured_alike(codex_path(home, identity))


def test_a_fork_whose_parent_is_gone_is_not_measured_as_if_it_were_whole(home, line):
    codex_path(home, line[1]).unlink()
    with lines.bounded(measures=True):
        measured = CodexAdapter().read(codex_path(home, line[-1])).session

    assert () == measured.sizes


def test_the_family_has_one_root(home, line):
    assert {line[0]} == {read_codex(codex_path(home, identity)).root_id for identity in line}


def test_the_index_reads_all_of_a_parent_also_while_somebody_looks_at_it(home, line, monkeypatch):
    monkeypatch.setattr(lines, "LOOK_BYTES", 1)
    monkeypatch.setattr(lines, "LOOK_SECONDS", 0.0)
    with lines.bounded():
        read = CodexAdapter().read(codex_path(home, line[-1]), UNREAD)

    assert read.session is not None
    assert prompts(read.session) == ["one", "fork 2", "fork 3", "fork 4", "not theirs either"]


def test_a_fork_s_turns_have_ids_of_their_own(home, line):
    identities = [turn.id for turn in read_codex(codex_path(home, line[-1])).turns]

    assert len(set(identities)) == len(identities)


def test_names_that_were_seen_before_the_fork_are_the_fork_s_too(home):
    one, two = id_of(1), id_of(2)
    outputs = [item("function_call_output", n, call_id="c", output=f"name_{n}") for n in (2, 5)]
    codex_log(home, one, meta(one, 0), message("user", "one", 1), *outputs)
    codex_log(
        home,
        two,
        fork_meta(two, one, 4),
        message("user", "two", 5),
        item("function_call_output", 6, call_id="d", output="own_name"),
    )

    assert read_codex(codex_path(home, two)).symbols == ("name_2", "own_name")


def test_what_the_parent_rolled_back_after_the_fork_is_still_the_fork_s(home):
    one, two = id_of(1), id_of(2)
    codex_log(
        home,
        one,
        meta(one, 0),
        *exchange("one", 1),
        *exchange("two", 3),
        event("thread_rolled_back", num_turns=1) | {"ordinal": 5},
    )
    codex_log(home, two, fork_meta(two, one, 5), *exchange("three", 6))

    assert prompts(read_codex(codex_path(home, one))) == ["one"]
    assert prompts(read_codex(codex_path(home, two))) == ["one", "two", "three"]


def test_a_fork_can_roll_back_what_it_inherited(home):
    one, two = id_of(1), id_of(2)
    codex_log(home, one, meta(one, 0), *exchange("one", 1), *exchange("two", 3))
    back = event("thread_rolled_back", num_turns=1) | {"ordinal": 6}
    path = codex_log(home, two, fork_meta(two, one, 5), back, *exchange("three", 7))

    assert prompts(read_codex(path)) == ["one", "three"]

    checkpoint = CodexAdapter().read(path, UNREAD).checkpoint
    again = event("thread_rolled_back", num_turns=2) | {"ordinal": 9}
    codex_log(home, two, fork_meta(two, one, 5), back, *exchange("three", 7), again, *exchange("four", 10))
    grown = CodexAdapter().read(path, checkpoint)
    assert grown.resumed
    assert grown.session == read_codex(path)
    assert prompts(read_codex(path)) == ["four"]


def test_without_its_parent_a_fork_has_its_own_words_and_is_of_the_parent_s_family(home):
    gone, two = id_of(1), id_of(2)
    path = codex_log(home, two, fork_meta(two, gone, 5), *exchange("two", 6))
    before = CodexAdapter().read(path, UNREAD)
    assert before.session is not None
    assert (texts(before.session), before.session.root_id) == (["two", "done two"], gone)

    codex_log(home, gone, meta(gone, 0), *exchange("one", 1))
    after = CodexAdapter().read(path, before.checkpoint)
    assert after.resumed
    assert after.session is not None
    assert prompts(after.session) == ["one", "two"]


def test_a_fork_that_was_first_seen_empty_still_finds_its_parent(home):
    """Codex makes the file before it writes the first record."""
    one, two = id_of(1), id_of(2)
    codex_log(home, one, meta(one, 0), *exchange("one", 1))
    path = codex_path(home, two)
    path.write_text("")
    checkpoint = CodexAdapter().read(path, UNREAD).checkpoint
    codex_log(home, two, fork_meta(two, one, 3), *exchange("two", 4))

    session = CodexAdapter().read(path, checkpoint).session

    assert session is not None
    assert (prompts(session), session.root_id) == (["one", "two"], one)


@pytest.mark.parametrize("parents", [{1: 1}, {1: 2, 2: 1}, {1: 2, 2: 3, 3: 1}])
def test_forks_in_a_circle_end(home, parents):
    for number, parent in parents.items():
        own = id_of(number)
        codex_log(home, own, fork_meta(own, id_of(parent), 10), *exchange(f"prompt {number}", 20))

    assert "prompt 1" in prompts(read_codex(codex_path(home, id_of(1))))


def test_a_line_of_forks_without_end_is_cut(home):
    last = AGENTS.MAX_FORK_DEPTH + 5
    for number in range(last + 1):
        own = id_of(number)
        codex_log(home, own, fork_meta(own, id_of(number + 1), 10), *exchange(f"prompt {number}", 1))

    assert prompts(read_codex(codex_path(home, id_of(0))))[-1] == "prompt 0"


def test_a_fork_of_an_old_version_is_a_copy_and_its_id_is_its_own(home):
    """F-155: the source's header comes second; in 0.36 nothing else names the parent."""
    one, two = id_of(1), id_of(2)
    codex_log(home, one, meta(one), message("user", "one"))
    path = codex_log(
        home,
        two,
        meta(two, originator="codex_cli_rs"),
        meta(one, cwd="/elsewhere"),
        message("user", "one"),
        message("user", "two"),
    )

    session = read_codex(path)

    assert (session.session_id, session.parent_id, session.root_id, session.cwd) == (two, one, one, "/srv/shop")
    assert prompts(session) == ["one", "two"]


def test_a_copy_of_a_copy_is_of_the_first_one_s_family(home):
    one, two, three = id_of(1), id_of(2), id_of(3)
    codex_log(home, one, meta(one), message("user", "one"))
    codex_log(home, two, meta(two, forked_from_id=one), meta(one), message("user", "one"))
    path = codex_log(home, three, meta(three, forked_from_id=two), meta(two), message("user", "one"))

    assert read_codex(path).root_id == one


def test_a_resumed_session_that_repeats_its_header_is_no_fork(home):
    one = id_of(1)
    session = read_codex(codex_log(home, one, meta(one), message("user", "one"), meta(one), message("user", "two")))

    assert (session.parent_id, session.root_id) == (None, one)


@pytest.mark.parametrize(("source", "origin"), [("vscode", "person"), ("exec", "automated")])
def test_who_started_the_parent_says_whether_a_fork_is_a_person_s(home, source, origin):
    """Forks inherit the originator, and smart-fork runs them with ``exec``. A glance says the same as a reading."""
    one, two, three = id_of(1), id_of(2), id_of(3)
    codex_log(home, one, meta(one, 0, source=source), *exchange("one", 1))
    codex_log(home, two, fork_meta(two, one, 3, source="exec"), *exchange("two", 4))
    path = codex_log(home, three, fork_meta(three, two, 6, source="exec"), *exchange("three", 7))
    glance = CodexAdapter().glance(path)

    assert read_codex(path).origin == origin
    assert glance is not None
    assert (glance.origin, glance.root_id, prompts(glance)) == (origin, one, ["three"])


@pytest.mark.parametrize("end", [True, "3", None, -1, 2**64 - 1, 1.5])
def test_a_base_of_another_type_is_survived(home, end):
    one, two = id_of(1), id_of(2)
    codex_log(home, one, meta(one, 0), *exchange("one", 1))

    assert prompts(read_codex(codex_log(home, two, fork_meta(two, one, end), *exchange("two", 4))))[-1] == "two"
