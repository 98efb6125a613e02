"""Notes of where sessions come from."""

from __future__ import annotations

from indexer import state
from indexer.files import private_dir
from smart_fork import handovers

NOTE = handovers.HandedOver("made", "codex", "claude", "first", "m1")


def test_a_note_has_the_session_that_another_one_began_with_first(home):
    handovers.remember(NOTE, [("claude", "second")])

    merged = handovers.HandedOver("made", "codex", "claude", "second", merged=True)
    assert [NOTE, merged] == handovers.all_known()


def test_a_note_takes_the_place_of_an_earlier_one_and_is_forgotten(home):
    handovers.remember(NOTE, [("claude", "second")])
    handovers.remember(NOTE)
    assert [NOTE] == handovers.all_known()

    handovers.forget("made")
    assert [] == handovers.all_known()


def test_without_notes_there_are_none_and_looking_makes_no_file(home):
    handovers.forget("made")

    assert [] == handovers.all_known()
    assert not state.path().exists()


def test_notes_that_cannot_be_read_are_none(home):
    private_dir(state.path().parent)
    state.path().write_bytes(b"this is no database\n" * 1000)

    assert [] == handovers.all_known()
