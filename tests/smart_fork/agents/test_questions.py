"""The question on an agent's screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.agents.screen import Question, Screen
from tests.smart_fork import agent_screens
from tests.support.cases import parametrize_subtests


@parametrize_subtests(
    ("screen", "begins", "options"),
    [
        (agent_screens.CLAUDE_TRUST, "Accessing workspace:\n/home/me/other\nQuick safety check", "12"),
        (agent_screens.CLAUDE_TRUST_BY_ARROWS, "Accessing workspace:\n/home/me/other\nQuick safety check", "12"),
        (
            agent_screens.CLAUDE_PERMISSION,
            "Bash command\ntouch /etc/made_by_me; echo hi\nMake a file\nDo you want",
            "123",
        ),
        (
            agent_screens.CLAUDE_FRAMED,
            "Bash command\nMake a file\ntouch /etc/made_by_me\nDo you want to proceed?",
            "123",
        ),
        (agent_screens.CLAUDE_KEY, "Detected a custom API key", "12"),
        (agent_screens.CLAUDE_RESUME, "This session is 3h 2m old", "123"),
        (agent_screens.CODEX_TRUST, "Folder access\n/home/me/other\nTrust this folder?", "12"),
        (
            agent_screens.CODEX_PERMISSION,
            "Would you like to run the following command?\nEnvironment: local\nReason: May",
            "123",
        ),
    ],
)
def test_a_question_is_its_text_and_its_options(screen, begins, options):
    question = Screen().question(screen)

    assert question.text.startswith(begins)
    assert tuple(options) == question.options
    assert question.marked in question.options
    assert "please do" not in question.text
    assert "PERM" not in question.text


@parametrize_subtests(
    "screen",
    [
        agent_screens.CLAUDE_IDLE,
        agent_screens.CLAUDE_WORKING,
        agent_screens.CODEX_IDLE,
        "",
        "\n\n",
        "$ 1. foo",
        "❯ 1. a\n  2. b",
    ],
)
def test_where_a_person_can_type_nothing_is_asked(screen):
    """Even a text that looks like a question is none there."""
    assert Screen().question(screen) is None


@pytest.mark.parametrize(
    "shown", ["  Enter to confirm · Esc to cancel", "❯ please do\n\n  Enter to send · Esc to cancel"]
)
def test_a_line_about_keys_below_an_input_line_is_not_a_question(shown):
    assert Screen().question(f"{agent_screens.RULE}\n❯ \n{shown}") is None


def test_options_without_numbers_get_numbers_and_are_chosen_by_arrows():
    question = Screen().question(agent_screens.CLAUDE_TRUST_BY_ARROWS)

    assert "❯ 1. No, exit\n2. Yes, I trust this folder" in question.text
    assert ("1", True) == (question.marked, question.by_arrows)
    assert not Screen().question(agent_screens.CLAUDE_TRUST).by_arrows


def test_a_question_about_keys_is_seen_without_options():
    question = Screen().question(agent_screens.CLAUDE_AUTO)

    assert question.text.startswith("Auto mode can't check actions in this session\nTo get")
    assert () == question.options


def test_a_login_is_asked_for_without_options():
    question = Screen().question(agent_screens.CLAUDE_LOGGED_OUT)

    assert ("Not logged in · Run /login", ()) == (question.text, question.options)


def test_nothing_in_a_question_steers_a_terminal():
    screen = agent_screens.CODEX_PERMISSION.replace("$ touch", "$ \x1b]0;owned\x07\x1b[2J\u202etouch")

    text = Screen().question(screen).text

    assert "touch /etc/made_by_me" in text
    assert not set(text) & set("\x1b\x07\u202e")


def test_an_agent_that_works_says_so():
    assert Screen().works(agent_screens.CLAUDE_WORKING)
    assert not any(
        map(Screen().works, (agent_screens.CLAUDE_IDLE, agent_screens.CODEX_IDLE, agent_screens.CLAUDE_PERMISSION, ""))
    )
    assert not Screen().works("esc to interrupt" + 30 * "\nsaid since")


@parametrize_subtests(
    ("screen", "text", "held"),
    [
        (agent_screens.CLAUDE_IDLE, "choose", False),  # said before
        (agent_screens.CLAUDE_IDLE.replace("❯\u00a0", "❯\u00a0choose"), "choose", True),
        (agent_screens.CLAUDE_IDLE.replace("❯\u00a0", "❯\u00a0[Pasted text #1 +9 lines]"), "9\nlines", True),
        (agent_screens.CODEX_IDLE, "do this", False),
        (agent_screens.CODEX_IDLE.replace("› Ask Codex to do anything", "› a longer line that\n  goes on"), "a longer line that goes on", True),
        (agent_screens.CODEX_IDLE.replace("› Ask Codex to do anything", "› ???"), " ???", True),
        (agent_screens.CODEX_IDLE, "???", False),
        (agent_screens.CODEX_PERMISSION, "Yes, proceed", False),
        ("x", "x", False),  # by the terminal itself, before the program has begun
        ("", "x", False),
    ],
)  # fmt: skip
def test_what_stands_in_the_line_to_type_in_has_not_been_sent_off(screen, text, held):
    assert held == Screen().holds(screen, text)


@given(st.text(), st.text(alphabet="❯› 12.\n─esc to cancel"))
def test_any_screen_is_read(one, other):
    for screen in (one, other, one + agent_screens.CODEX_PERMISSION, agent_screens.CLAUDE_TRUST + other):
        question = Screen().question(screen)
        assert question is None or len(question.text) <= Question.MAX_CHARACTERS
