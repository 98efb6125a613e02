"""Notes of where sessions come from: what is not a note is skipped."""

from __future__ import annotations

import pytest

from indexer.paths import state_home
from smart_fork import handovers

NOTE = handovers.HandedOver("made", "codex", "claude", "first", "m1")


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"agent": "codex"}', '{"agent": 1, "source_agent": "claude", "source_session_id": "x"}',
     '{"agent": "codex", "source_agent": "claude", "source_session_id": "x", "others": {}}',
     '{"agent": "codex", "source_agent": "claude", "source_session_id": "x", "others": ["y"]}'],
)  # fmt: skip
def test_what_is_not_a_note_is_skipped_and_the_others_are_read(home, text):
    handovers.remember(NOTE, [("claude", "second")])
    (state_home() / "handovers" / "broken").write_text(text)

    merged = handovers.HandedOver("made", "codex", "claude", "second", merged=True)
    assert [NOTE, merged] == list(handovers.all_known())


def test_without_notes_there_are_none(home):
    assert [] == list(handovers.all_known())
