"""Tests of the notes of where sessions come from."""

from __future__ import annotations

from indexer import state_db
from indexer.safe_files import private_dir
from smart_fork import provenance

NOTE = provenance.HandedOver("made", "codex", "claude", "first", "m1")


def test_a_note_has_the_session_that_another_one_began_with_first(home):
    provenance.remember_handover(NOTE, [("claude", "second")])

    merged = provenance.HandedOver("made", "codex", "claude", "second", merged=True)
    assert [NOTE, merged] == provenance.handovers()


def test_a_note_takes_the_place_of_an_earlier_one_and_is_forgotten(home):
    provenance.remember_handover(NOTE, [("claude", "second")])
    provenance.remember_handover(NOTE)
    assert [NOTE] == provenance.handovers()

    provenance.forget_handover("made")
    assert [] == provenance.handovers()


def test_without_notes_there_are_none_and_looking_makes_no_file(home):
    provenance.forget_handover("made")

    assert [] == provenance.handovers()
    assert not state_db.path().exists()


def test_notes_that_cannot_be_read_are_none(home):
    private_dir(state_db.path().parent)
    state_db.path().write_bytes(b"this is no database\n" * 1000)

    assert [] == provenance.handovers()
