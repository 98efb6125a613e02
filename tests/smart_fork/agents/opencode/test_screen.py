"""Tests of reading OpenCode's screen, and of its login."""

from pathlib import Path

from indexer.masking import mask_screen
from smart_fork.agents import AGENTS
from smart_fork.agents.opencode.runtime import OpenCodeScreen
from smart_fork.agents.programs import Program
from smart_fork.system.processes import Processes

SCREEN = OpenCodeScreen()
END = f"  ╹{'▀' * 40}\n"


def screen(typed: str = "", last: str = "/work/depot    2.5K (2%)  ctrl+p commands    • OpenCode 1.18.33") -> str:
    above = "  ┃\n  ┃  two, differently\n  ┃\n     PONG 3: two, differently\n     ▣  Build · Mock · 228ms\n"
    return f"{above}  ┃\n  ┃  {typed}\n  ┃\n  ┃  Build · Mock Mock       /work/depot:main\n{END}   {last}\n"


def test_a_prompt_is_held_where_it_was_typed_and_not_where_it_was_asked():
    assert SCREEN.hears(screen())
    assert not SCREEN.holds(screen(), "two, differently")
    assert SCREEN.holds(screen("please wait for the tests"), "please wait for the tests")
    assert SCREEN.holds(screen("[Pasted ~9 lines]"), "one\n" * 9)
    assert not SCREEN.holds("starting …", "please wait")


def test_it_says_in_its_last_line_that_it_works():
    assert SCREEN.works(screen(last="⬝⬝⬝■■■■■  esc interrupt      2.5K (2%)"))
    assert not SCREEN.works(screen())


def test_a_permission_that_is_asked_for_is_a_question():
    asks = (
        "  ┃  △ Permission required\n  ┃  # Run the tests\n  ┃  $ make test\n  ┃   Allow once   Allow always   Reject\n"
    )
    question = SCREEN.question(mask_screen(asks))

    assert question.text.startswith("Permission required") or "Permission required" in question.text
    assert "make test" in question.text
    assert () == question.options
    assert not SCREEN.hears(asks + END)
    assert SCREEN.question(mask_screen(screen())) is None


def test_a_key_or_what_it_has_stored_logs_it_in(home):
    login, processes = AGENTS.login_of("opencode"), Processes()
    assert Program.login_state(login, {}, "opencode", processes).logged_in is None
    assert Program.login_state(login, {"OPENAI_API_KEY": "x"}, "opencode", processes).logged_in is True
    stored = Path.home() / ".local/share/opencode/auth.json"
    stored.parent.mkdir(parents=True)
    stored.write_text("{}")

    assert Program.login_state(login, {}, "opencode", processes).logged_in is True
    assert set() == set(login.required()) | login.settled()
