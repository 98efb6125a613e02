"""Another agent's actions in a handed-over session are found as actions and by names, not as messages."""

from __future__ import annotations

from indexer.handover_action_lines import ASKED_US, HandoverText, parse_handover
from indexer.pipeline import document_of
from indexer.session_export import pieces_of
from indexer.transcripts.model import Proof
from smart_fork.agents.log_readers import READERS
from smart_fork.forking.handover_text import HandedOverAction, NeutralMessage
from tests.indexer.transcripts.records import assistant, claude_log, read_claude, user
from tests.support.cases import parametrize_subtests

DID = (
    HandedOverAction("edit upload.py"),
    HandedOverAction("run pytest -q", "Exit code 1\nFAILED test_retry\n\nretryWithBackoff is not defined", True),
    HandedOverAction("run make", "", True, names=("uploadInParts", "MAX_RETRY_COUNT")),
)
TEXT = NeutralMessage("assistant", 0, "It retries.", DID).rendered()


def test_what_is_told_is_taken_apart_as_it_was_put_together():
    assert parse_handover(TEXT) == HandoverText("It retries.", DID)
    assert parse_handover(NeutralMessage("assistant", 0, "", DID).rendered()).said == ""


@parametrize_subtests("proof", Proof)
@parametrize_subtests("line", ["run pytest -q", "run echo (failed)", "edit a (committed, failed)", "read (done)"])
def test_how_an_action_went_is_told_in_words_that_none_of_its_own_are_taken_for(line, proof):
    for failed, answered in ((False, True), (True, True), (False, False)):
        action = HandedOverAction(line, "ok", failed, answered, proof)

        assert parse_handover(NeutralMessage("assistant", 0, "", (action,)).rendered()) == HandoverText("", (action,))


@parametrize_subtests(
    "text",
    ["", "It retries.", "Done then, by another agent:", "Done then, by another agent:\nand more of this", f"{TEXT}\nOr so.",
     "It is Done then, by another agent:\n- so it goes"],
)  # fmt: skip
def test_what_only_looks_like_it_is_said(text):
    assert parse_handover(text) == HandoverText(text)


def test_it_is_indexed_as_an_agents_own_actions_are(home):
    log = claude_log(home, user("u1", None, "add retry"), assistant("a1", "u1", TEXT), user("u2", "a1", TEXT))
    session = read_claude(log)

    pieces = [(piece.role, str(piece.text)) for piece in pieces_of(session, str)]
    words = document_of(session, READERS)[0].words

    assert pieces[:5] == [
        ("user", "add retry"), ("assistant", "It retries."),
        ("action", "edit upload.py"), ("action", "run pytest -q -> exit 1: FAILED test_retry"),
        ("action", "run make -> failed"),
    ]  # fmt: skip
    assert pieces[5] == ("user", TEXT), "a person may say it"
    assert {"retryWithBackoff", "uploadInParts", "MAX_RETRY_COUNT"} <= set(words.symbols.split())
    assert "retryWithBackoff" not in words.answered


def test_what_is_told_to_have_asked_us_is_not_searched_and_nor_is_what_was_said_about_our_answer(home):
    asked = NeutralMessage("assistant", 0, "Let me look.", (HandedOverAction(ASKED_US, answered=False),)).rendered()
    log = claude_log(
        home, user("u1", None, "add retry"), assistant("a1", "u1", asked), assistant("a2", "a1", "That one says zebra.")
    )

    document, export = document_of(read_claude(log), READERS)

    assert "zebra" in export.text
    assert ASKED_US not in export.text
    assert "zebra" not in document.words.answered
