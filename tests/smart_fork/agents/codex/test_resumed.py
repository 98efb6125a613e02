"""The turns of a session that Codex loads, as 0.169.0 and 0.171.0 sent them to a model on loopback."""

from __future__ import annotations

import pytest

from indexer.masking import mask
from indexer.session_export import pieces_of
from indexer.transcripts.base import UNREAD
from smart_fork.agents.codex.log_files import CodexAdapter
from tests.indexer.transcripts.records import (
    codex_log,
    codex_path,
    enveloped,
    event,
    id_of,
    message,
    meta,
    read_codex,
    write,
)  # fmt: skip
from tests.smart_fork.agents.codex.test_forks import measured_alike

ONE, TWO = id_of(1), id_of(2)
SUMMARY = "Another model began this: …"


def said(*words: str) -> list[object]:
    return [one for word in words for one in (message("user", word), message("assistant", f"did {word}"))]


def compacted(*kept: object) -> object:
    summary = message("user", SUMMARY)["payload"]
    return enveloped("compacted", message="", replacement_history=[*(one["payload"] for one in kept), summary])


def turn(word: str, *first: object) -> list[object]:
    """Return the records of a turn. A compaction before its prompt is part of the turn."""
    return [event("task_started", turn_id=word), *first, *said(word), event("task_complete", turn_id=word)]


def back(prompts: int) -> object:
    return event("thread_rolled_back", num_turns=prompts)


A, B = message("user", "a"), message("user", "b")
#: The records, what is loaded of them, and why not all.
LOADED = {
    "no compaction": ([*said("a", "b")], "a, did a, b, did b", ""),
    "a compaction": ([*said("a", "b"), compacted(A, B), *said("c")], "a, b, c, did c", "compaction"),
    "with final answers": (
        [*said("a", "b"), compacted(B, message("assistant", "did b")), *said("c")], "b, did b, c, did c", "compaction",
    ),
    "at the end": ([*said("a"), compacted(A)], "a", "compaction"),
    "a prompt that was said twice": ([*said("a", "a"), compacted(A), *said("c")], "a, c, did c", "compaction"),
    "the last of two": (
        [*said("a"), compacted(A), *said("b"), compacted(A, B), *said("c")], "a, b, c, did c", "compaction",
    ),
    "what follows was rolled back": (
        [*said("a", "b"), compacted(A, B), *said("c"), back(1), *said("d")], "a, b, d, did d", "compaction",
    ),
    "it was rolled back itself": (
        [*said("a", "b"), compacted(A, B), *said("c"), back(2), *said("d")], "a, did a, d, did d", "",
    ),
    "the second was rolled back": (
        [*said("a"), compacted(A), *said("b", "c"), compacted(A, B), *said("d"), back(2), *said("e")],
        "a, b, did b, e, did e", "compaction",
    ),
    "in the middle of a turn": (
        [*said("a"), B, message("assistant", "on it"), compacted(A, B), message("assistant", "did b")],
        "a, b, did b", "compaction",
    ),
    "before the prompt": ([*turn("a"), *turn("b", compacted(A)), *turn("d")], "a, b, did b, d, did d", "compaction"),
    "before a prompt that was rolled back": (
        [*turn("a"), *turn("b", compacted(A)), back(1), *turn("d")], "a, did a, d, did d", "",
    ),
    "in a turn of its own before one that was rolled back": (
        [*turn("a"), event("task_started", turn_id="c"), compacted(A), *turn("b"), back(1), *turn("d")],
        "a, d, did d", "compaction",
    ),
    "before a prompt that stays": (
        [*turn("a"), *turn("b", compacted(A)), *turn("c"), back(1), *turn("d")],
        "a, b, did b, d, did d", "compaction",
    ),
}  # fmt: skip


def loaded(session) -> str:
    start, _, kept = session.resumed
    turns = [*(session.turns[at] for at in kept), *session.turns[start:]]
    return ", ".join(turn.text for turn in turns if turn.text)


@pytest.mark.parametrize("name", LOADED)
def test_what_is_loaded(home, name):
    records, expected, reason = LOADED[name]
    path = codex_log(home, ONE, meta(ONE), *records)
    for session in (read_codex(path), CodexAdapter().read(path, UNREAD).session):
        assert (expected, reason) == (loaded(session), session.resumed.reason)


@pytest.mark.parametrize("name", LOADED)
def test_what_a_budget_counts_is_measured_while_it_is_read(home, name):
    measured_alike(codex_log(home, ONE, meta(ONE), *LOADED[name][0]))


def test_a_log_that_has_grown_since_it_was_read_is_as_one_that_was_read_once(home):
    path = codex_log(home, ONE, meta(ONE), *said("a", "b"), compacted(A, B))
    before = CodexAdapter().read(path, UNREAD)
    write(path, meta(ONE), *said("a", "b"), compacted(A, B), *said("c"))
    after = CodexAdapter().read(path, before.checkpoint)

    assert "a, b, c, did c" == loaded(after.session)


@pytest.mark.parametrize(
    ("end", "expected"), [(5, "a, did a, b, did b, x, did x"), (6, "a, b, x, did x"), (8, "a, b, c, did c, x, did x")]
)
def test_a_fork_loads_what_its_parent_would_have(home, end, expected):
    numbered = [*said("a", "b"), compacted(A, B), *said("c")]
    codex_log(home, ONE, meta(ONE, 0), *(one | {"ordinal": number} for number, one in enumerate(numbered, 1)))
    base = {"thread_id": ONE, "end_ordinal_exclusive": end, "end_byte_offset": 1}
    own = [one | {"ordinal": number} for number, one in enumerate(said("x"), end + 1)]
    codex_log(home, TWO, meta(TWO, end, forked_from_id=ONE, history_base=base), *own)

    assert expected == loaded(read_codex(codex_path(home, TWO)))


@pytest.mark.parametrize(
    "header",
    [
        [{"id": ONE, "timestamp": "2025-08-19T10:00:00.000Z", "instructions": None}],
        [enveloped("session_meta", id=ONE, cwd="/srv/shop")],
        [],
    ],
)
def test_nothing_is_loaded_without_today_s_header(home, header):
    session = read_codex(codex_log(home, ONE, *header, *said("a")))

    assert (2, "gap") == session.resumed[:2]
    assert "" == loaded(session)


PREFIX = "Another language model started to solve this problem and produced a summary of its thinking process:"
FOUND = "The narwhal cache was chosen."


def left(*texts: str, kept: object = A, words: str = "") -> object:
    """Return a record of a compaction that keeps a prompt and messages with these texts."""
    items = [kept["payload"], *(message("user", text)["payload"] for text in texts)]
    return enveloped("compacted", message=words, replacement_history=items)


@pytest.mark.parametrize(
    ("records", "where"),
    [
        ([*said("a", "b"), left(f"{PREFIX}\n{FOUND}"), *said("c")], {"c": FOUND}),
        ([*said("a", "b"), left(words=FOUND), *said("c")], {"c": FOUND}),
        ([*said("a"), left(FOUND)], {"did a": FOUND}),
        ([*said("a"), left("a summary"), *said("b"), left(FOUND, kept=B), *said("c")], {"b": "a summary", "c": FOUND}),
        ([*said("a", "b"), left(FOUND), *said("c"), back(2), *said("d")], {}),
        ([*said("a", "b"), left("b", "a\u20265 tokens truncated\u2026"), *said("c")], {}),
        ([*said("a"), event("user_message", message="b"), left("b"), *said("c")], {}),
    ],
    ids=["with a preface", "of an old version", "at the end", "two", "rolled back", "prompts", "prompts as events"],
)
def test_the_summary_of_a_compaction_is_found_by_its_words_and_is_no_turn(home, records, where):
    log = codex_log(home, ONE, meta(ONE), *records)
    plain, session = read_codex(log), CodexAdapter().read(log, UNREAD).session

    assert where == {turn.text: turn.summary for turn in session.turns if turn.summary}
    assert [turn.text for turn in plain.turns] == [turn.text for turn in session.turns]
    found = [piece for piece in pieces_of(session, mask) if piece.summary]
    assert [*where.values()] == [one.text.removeprefix("Summary of what came before: ") for one in found]


def test_what_a_fork_has_from_its_parent_is_no_summary_of_its_own_compaction(home):
    codex_log(home, ONE, meta(ONE, 0), *(one | {"ordinal": n} for n, one in enumerate(said("a", "b"), 1)))
    base = {"thread_id": ONE, "end_ordinal_exclusive": 5, "end_byte_offset": 1}
    own = [meta(TWO, 5, forked_from_id=ONE, history_base=base), left(FOUND, "b"), *said("c")]
    log = codex_log(home, TWO, *(one | {"ordinal": n} for n, one in enumerate(own, 5)))

    session = CodexAdapter().read(log, UNREAD).session
    assert ["a", "did a", "b", "did b", "c", "did c"] == [turn.text for turn in session.turns]
    assert {"c": FOUND} == {turn.text: turn.summary for turn in session.turns if turn.summary}


def test_the_summary_of_a_compaction_is_that_of_a_log_that_is_read_in_parts(home):
    log = codex_log(home, ONE, meta(ONE), *said("a", "b"), left(FOUND), *said("c"))
    whole = log.read_bytes()
    lines = whole.splitlines(keepends=True)
    for end in range(3, len(lines)):
        log.write_bytes(b"".join(lines[:end]))
        before = CodexAdapter().read(log, UNREAD)
        log.write_bytes(whole)

        assert CodexAdapter().read(log, before.checkpoint).session == CodexAdapter().read(log, UNREAD).session
