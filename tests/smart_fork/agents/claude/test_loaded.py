"""The part of a session that Claude Code loads when it resumes the session."""

from __future__ import annotations

from tests.indexer.transcripts.records import SESSION, assistant, chained, claude_log, read_claude, texts, user

#: Two exchanges.
TOLD = [
    user("u1", None, "one"),
    assistant("a1", "u1", "first"),
    user("u2", "a1", "two"),
    assistant("a2", "u2", "second"),
]


def test_what_a_person_went_back_to_is_the_end_until_something_follows(home):
    """Seen with 2.1.197 and 2.1.332: only an explicit checkpoint counts."""
    checkpoint = {"type": "last-prompt", "leafUuid": "a1", "sessionId": SESSION}
    back = checkpoint | {"explicit": True}

    assert texts(read_claude(claude_log(home, *TOLD, checkpoint))) == ["one", "first", "two", "second"]
    assert texts(read_claude(claude_log(home, *TOLD, back))) == ["one", "first"]
    assert texts(read_claude(claude_log(home, *TOLD, back, user("u3", "a1", "three")))) == ["one", "first", "three"]
    assert texts(read_claude(claude_log(home, *TOLD, back | {"leafUuid": "gone"}))) == ["one", "first", "two", "second"]


def test_what_a_compaction_leaves_as_it_is_is_loaded_beside_its_summary(home):
    """Seen with 2.1.332: a compaction keeps the last answer."""
    kept = {"trigger": "auto", "preservedMessages": {"anchorUuid": "s", "uuids": ["a2", 7]}}
    boundary = chained("system", "b", None, subtype="compact_boundary", logicalParentUuid="a2", compactMetadata=kept)
    summary = user("s", "b", "This session is being continued.") | {"isCompactSummary": True}
    session = read_claude(claude_log(home, *TOLD, boundary, summary, user("u3", "s", "three")))

    assert session.resumed == (4, "compaction", (3,))
    assert read_claude(claude_log(home, *TOLD)).resumed == (0, "", ())
