"""Tests that a copy of a Claude Code session has all parts of its request: compactions and the program's own notes."""

from __future__ import annotations

from tests.smart_fork.forking.test_copies import records, write
from tests.smart_fork.forks import NEW, SESSION, said, text, write_log


def test_claude_takes_over_what_compaction_left(claude_session, repo):
    """The copy does not bring back turns that the agent had forgotten."""
    grown = [
        *records(claude_session),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "logicalParentUuid": "a5", "sessionId": SESSION},
        said("sum", "b", "user", "This session is being continued", isCompactSummary=True),
        said("u3", "sum", "user", "next"),
        said("a6", "u3", "assistant", text("Done")),
    ]  # fmt: skip
    write_log(claude_session, grown)

    copy = records(write("claude", claude_session, "a6", repo).path)

    assert ["b", "sum", "u3", "a6"] == [r["uuid"] for r in copy]
    assert [None, "b", "sum", "u3"] == [r["parentUuid"] for r in copy]
    assert "logicalParentUuid" not in copy[0]


def test_messages_that_a_compaction_of_claude_has_kept_come_after_its_summary(claude_session, repo):
    """They come with the records that lead to the next message, without the records before them."""
    kept = {"anchorUuid": "sum", "uuids": ["a5"], "allUuids": ["a5"]}
    hook = {"attachment": {"type": "hook_success"}}
    grown = [
        *records(claude_session)[:-1],
        said("h1", "u2", "attachment", "") | hook,
        said("a5", "h1", "assistant", text("Docs are there")),
        {"type": "system", "subtype": "compact_boundary", "uuid": "b", "parentUuid": None, "logicalParentUuid": "a5",
         "compactMetadata": {"trigger": "manual", "preservedMessages": kept, "preservedSegment": {"headUuid": "a5"}}},
        said("sum", "b", "user", "This session is being continued", isCompactSummary=True),
        said("h2", "sum", "attachment", "") | hook,
        said("u3", "h2", "user", "next"),
        said("a6", "u3", "assistant", text("Done")),
    ]  # fmt: skip
    write_log(claude_session, grown)

    copy = records(write("claude", claude_session, "a6", repo).path)

    assert ["b", "sum", "a5", "h2", "u3", "a6"] == [r["uuid"] for r in copy]
    assert [None, "b", "sum", "a5", "h2", "u3"] == [r["parentUuid"] for r in copy]
    assert {"trigger": "manual"} == copy[0]["compactMetadata"]


def test_a_copy_of_claude_has_what_the_program_told_its_model_between_the_messages(claude_session, repo):
    """Progress notes are no part of a request. A record behind a gap is copied too."""
    told = {"attachment": {"type": "environment"}}
    grown = [
        *records(claude_session)[:2],
        said("e1", "u1", "attachment", "") | told,
        said("p1", "e1", "progress", ""),
        said("y1", "p1", "system", "") | {"subtype": "local_command"},
        said("a1", "y1", "assistant", text("Done")),
        said("e2", "a1", "attachment", "") | told,
        said("y2", "gone", "system", "") | {"subtype": "model_refusal_fallback"},
        said("u2", "y2", "user", "and the docs"),
        said("a2", "u2", "assistant", text("Docs are there")),
        said("e3", "a2", "attachment", "") | told,
        {"type": "atis-latch", "atis": "x", "sessionId": SESSION},
        {"type": "cost-state", "sessionId": SESSION},
    ]
    write_log(claude_session, grown)

    copy = records(write("claude", claude_session, "a2", repo).path)

    latch, chain = [r for r in copy if "uuid" not in r], [r for r in copy if "uuid" in r]
    assert ["u1", "e1", "y1", "a1", "y2", "u2", "a2"] == [r["uuid"] for r in chain]
    assert [None, "u1", "e1", "y1", "a1", "y2", "u2"] == [r["parentUuid"] for r in chain]
    assert [True] == [r["neutralizedByFork"] for r in chain if r.get("subtype") == "model_refusal_fallback"]
    assert [{"type": "atis-latch", "atis": "x", "sessionId": NEW}] == latch
