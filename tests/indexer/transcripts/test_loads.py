"""The tokens that resuming a session loads, and the turns after which it can be forked (E-004, B-074)."""

from __future__ import annotations

from tests.indexer.transcripts.records import (
    assistant,
    chained,
    claude_log,
    codex_log,
    event,
    id_of,
    message,
    meta,
    read_claude,
    read_codex,
    user,
)  # fmt: skip


def answered(identity: str, parent: str, text: str, tokens: int) -> dict:
    record = assistant(identity, parent, text)
    record["message"]["usage"] = {"input_tokens": tokens - 10, "output_tokens": 10}
    return record


def told(tokens: int) -> object:
    return event("token_count", info={"last_token_usage": {"total_tokens": tokens}})


def test_each_turn_loads_what_the_agent_said_then_and_what_came_since(home):
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "x" * 40),
            answered("a1", "u1", "first", 30_000),
            user("u2", "a1", "y" * 40),
            answered("a2", "u2", "second", 90_000),
        )
    )

    assert session.loads() == (10, 30_000, 30_010, 90_000)
    assert session.token_estimate == 90_000


def test_a_rewound_branch_counts_for_nothing(home):
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one"),
            answered("a1", "u1", "first", 30_000),
            user("u2", "a1", "abandoned"),
            answered("a2", "u2", "gone", 150_000),
            user("u3", "a1", "two"),
        )
    )

    assert session.token_estimate == 30_001


def test_after_a_compaction_instructions_and_its_summary_are_loaded_and_before_it_everything(home):
    summary = user("sum", "b", "s" * 400) | {"isCompactSummary": True}
    boundary = chained("system", "b", None, subtype="compact_boundary", logicalParentUuid="a2")
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one"),
            answered("a1", "u1", "first", 20_003),
            user("u2", "a1", "two"),
            answered("a2", "u2", "second", 160_000),
            boundary,
            summary,
            user("u3", "sum", "go"),
        )
    )

    assert session.instructions == 20_000
    assert session.loads()[3:] == (160_000, 20_100, 20_101)
    assert session.token_estimate == 20_101


def test_codex_counts_behind_what_it_said_twice(home):
    session = read_codex(
        codex_log(
            home,
            id_of(1),
            meta(id_of(1)),
            event("user_message", message="one"),
            message("assistant", "first"),
            event("agent_message", message="first"),
            told(30_000),
            event("user_message", message="two"),
            told(30_000),
            event("agent_message", message="second"),
            message("assistant", "second"),
            told(90_000),
            told(12_000),  # after a compaction
        )
    )

    assert [turn.text for turn in session.turns] == ["one", "first", "two", "second"]
    assert session.loads() == (1, 30_000, 30_001, 12_000)


def test_codex_may_count_between_the_two(home):
    """Version 0.41."""
    said = [event("agent_message", message="first"), told(30_000), message("assistant", "first")]
    path = codex_log(home, id_of(1), meta(id_of(1)), event("user_message", message="one"), *said)

    assert read_codex(path).loads() == (1, 30_000)


def test_an_exchange_ends_with_the_last_word_on_it_and_the_last_one_with_the_session(home):
    session = read_claude(
        claude_log(
            home,
            user("u1", None, "one"),
            assistant("a1", "u1", "I look"),
            assistant("a2", "a1", "first"),
            user("u2", "a2", "never answered"),
            user("u3", "u2", "two"),
            assistant("a3", "u3", "second"),
            user("u4", "a3", "three"),
            assistant("a4", "u4", "third"),
        )
    )

    assert session.branch_points() == (2, 5, 7)
    assert session.ends() == (2, 2, 2, 5, 5, 5, None, None)
