"""What another agent did is no word of the one that is told of it: it is found as actions, and by the names in its output."""

from __future__ import annotations

import pytest

from indexer.pieces import pieces_of
from indexer.pipeline import document_of
from indexer.transcripts.retold import Retold, retold
from smart_fork.agents import READERS
from smart_fork.sharing.neutral import Action, Message
from tests.indexer.transcripts.records import assistant, claude_log, read_claude, user

DID = (Action("edit upload.py"), Action("run pytest -q", "FAILED test_retry\n\nretryWithBackoff is not defined", True))
TEXT = Message("assistant", 0, "It retries.", DID).rendered()


def test_what_is_told_is_taken_apart_as_it_was_put_together():
    assert retold(TEXT) == Retold(
        "It retries.",
        ("edit upload.py", "run pytest -q -> FAILED test_retry"),
        ("FAILED test_retry\n\nretryWithBackoff is not defined",),
    )
    assert retold(Message("assistant", 0, "", DID).rendered()).said == ""


@pytest.mark.parametrize(
    "text",
    ["", "It retries.", "Done then, by another agent:", "Done then, by another agent:\nand more of this", f"{TEXT}\nOr so.",
     "It is Done then, by another agent:\n- so it goes"],
)  # fmt: skip
def test_what_only_looks_like_it_is_said(text):
    assert retold(text) == Retold(text)


def test_it_is_indexed_as_an_agents_own_actions_are(home):
    log = claude_log(home, user("u1", None, "add retry"), assistant("a1", "u1", TEXT), user("u2", "a1", TEXT))
    session = read_claude(log)

    pieces = [(piece.role, str(piece.text)) for piece in pieces_of(session, str)]
    words = document_of(session, READERS)[0].words

    assert pieces[:3] == [
        ("user", "add retry"), ("assistant", "It retries."),
        ("action", "edit upload.py\nrun pytest -q -> FAILED test_retry"),
    ]  # fmt: skip
    assert pieces[3] == ("user", TEXT), "a person may say it"
    assert "retryWithBackoff" in words.symbols.split()
    assert "retryWithBackoff" not in words.answered
