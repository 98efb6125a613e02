"""Keys that lead through the page's views, and a worker that is answered, told and closed there, in a real browser."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.browsing import focused, violations
from tests.e2e.windows import ANSWER, INTENT
from tests.missing import missing

pytestmark = pytest.mark.e2e


def test_keys_lead_through_the_views_fork_a_result_in_place_and_are_listed(opened):
    page = opened(f"/?q={INTENT.replace(' ', '+')}")

    page.keyboard.press("?")
    assert "the workers" in page.get_by_role("dialog", name="Keys").inner_text()
    page.keyboard.press("Escape")
    assert not page.is_visible("dialog")
    page.keyboard.press("j")
    assert ANSWER == focused(page)
    page.keyboard.press("j")
    page.keyboard.press("k")
    assert ANSWER == focused(page)
    page.keyboard.press("f")
    assert "prompt-1" == focused(page)
    assert INTENT == page.input_value("#prompt-1")
    page.keyboard.press("?")
    assert not page.is_visible("dialog")
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("w")
    page.wait_for_url("**/workers")
    page.keyboard.press("g")
    page.keyboard.press("h")
    page.wait_for_selector("#q")


def test_a_worker_that_asks_is_seen_answered_told_and_closed(served, opened):
    """It asks in a real window of tmux; all that the page shows of it then comes by itself."""
    if shutil.which("tmux") is None:
        missing("tmux is not installed")
    home, board = opened(), opened("/workers")
    board.wait_for_selector("text=Live")
    served.smart_fork("fork", served.session("retries"), "Upload the release", "--name", "release")

    home.wait_for_selector(".needs .worker")
    board.wait_for_selector("#column-asks .worker")
    assert "Run twine upload dist/*?" in home.inner_text(".needs")
    assert "1" == home.inner_text("#asking").split()[0]
    assert "A worker asks something" == home.inner_text("#said")
    assert [] == violations(board)
    board.locator(".extra summary").focus()
    home.get_by_role("button", name="2 Yes, and do not ask again").focus()
    home.keyboard.press("Enter")

    home.wait_for_selector("h1:has-text('Workers')")
    assert "answered" in home.inner_text("main .note")
    board.wait_for_selector("#column-idle .worker:has-text('the answer was 2.')")
    field = board.get_by_label("Go on with")
    field.fill("and announce it")
    board.wait_for_selector("#asking", state="hidden")
    board.dblclick("#column-idle .tell button")
    board.wait_for_selector(".note:has-text('and announce it')")
    session = board.locator("#board .worker >> text=Read").get_attribute("href")
    assert session
    heard = [line for line in served.log_of(session.rpartition("/")[2]).splitlines() if "and announce it" in line]
    assert 1 == len(heard)
    board.click(".extra summary")
    board.click("text=Close it")
    board.wait_for_selector(".note:has-text('is ended')")
    board.wait_for_selector("#column-ended .worker")
