"""Keys that lead through the page's views, and a worker that is answered, told and closed there, in a real browser."""

from __future__ import annotations

import shutil

import pytest

from tests.e2e.browser import focused, violations
from tests.e2e.demo_sessions import FAMILY
from tests.e2e.page_fixtures import ANSWER, INTENT, settled
from tests.smart_fork.forks import eventually
from tests.support.executables import fail_or_skip

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("page")]

#: More tab stops than any of these pages has before what is looked for.
MOST_STOPS = 90
#: More tab stops than the results' page has before its results.
STOPS = 16
#: How wide a column of the board is.
WIDTHS = "document.getElementById('column-{}').clientWidth"


#: Which keys are listed in which view, besides those that lead to another one.
LISTED = {
    "/": "/ Ctrl K j k Enter f Esc",
    f"/?q={INTENT.replace(' ', '+')}": "/ Ctrl K j k Enter f Esc",
    "/sessions": "/ Ctrl K j k Enter",
    "/families": "/ Ctrl K j k Enter",
    "/workers": "/ Ctrl K j k",
    "/index": "/ Ctrl K",
    "/family/claude/{session}": "/ Ctrl K j k Enter",
    "/session/claude/{session}": "/ Ctrl K j k Enter [ ] o e f",
    "/session/claude/{session}?q=backoff": "/ Ctrl K j k Enter [ ] n N o e f",
}


@pytest.mark.thorough
def test_each_view_lists_the_keys_that_do_something_in_it(served, opened):
    page = opened()
    keys = page.keyboard
    left: list[str] = []

    def stays(route) -> None:  # an answer without content leaves a browser where it is
        route.fulfill(status=204)
        left.append(route.request.url.removeprefix(served.url))

    def leads(*pressed: str) -> str:
        page.evaluate("document.activeElement.blur()")
        left.clear()
        for one in pressed:
            keys.press(one)
        eventually(lambda: page.evaluate("1") and left)
        return left[0]

    for path, listed in LISTED.items():
        page.unroute_all()
        page.goto(served.url + path.format(session=served.session("retries")))
        if path.startswith("/session/"):
            page.wait_for_selector("#sessions li")
        page.route(lambda url: "/static/" not in url, lambda route: stays(route) if route.request.is_navigation_request() else route.continue_())  # fmt: skip
        page.evaluate("document.activeElement.blur()")
        keys.press("?")
        shown = page.get_by_role("dialog", name="Keys").locator("kbd").all_inner_texts()
        assert [*listed.split(), "w", "g", "h", "?"] == shown, path
        keys.press("Escape")
        assert not page.is_visible("dialog")
        if "Enter" in shown:
            keys.press("j")
            first = focused(page)
            keys.press("j")
            assert focused(page) not in (first, ""), path
            keys.press("k")
            assert first == focused(page)
            keys.press("Tab")
            keys.press("j")
            assert focused(page) not in (first, ""), "also from what is between two of them"
            left.clear()
            keys.press("Enter")
            eventually(lambda: page.evaluate("1") and left)
            assert left[0].startswith(("/session/", "/family/")), path
        if "o" in shown:
            keys.press("o")
            assert page.evaluate("document.activeElement.classList.contains('entry')")
            opened_steps = "document.querySelectorAll('.exchange.current details[open]').length"
            before = page.evaluate(opened_steps)
            keys.press("e")
            assert before != page.evaluate(opened_steps)
            keys.press("f")
            assert "prompt" == focused(page)
        if "Esc" in shown:
            keys.press("/")
            assert "q" == focused(page)
            keys.press("Tab")
            keys.press("Escape")
            assert "q" == focused(page)
        else:
            assert leads("/").startswith("/")
        assert ["/workers", "/"] == [leads("w"), leads("g", "h")], path
    page.unroute_all()
    page.goto(f"{served.url}/index")
    keys.press("/")
    page.wait_for_selector("#q:focus")


def test_everything_is_reached_by_keys(opened):
    page = opened(f"/?q={INTENT.replace(' ', '+')}")
    page.keyboard.press("Tab")
    assert "Skip to the content" == focused(page)
    page.keyboard.press("Escape")
    page.evaluate("document.activeElement.blur()")

    page.keyboard.press("/")
    assert "q" == focused(page)
    assert INTENT == page.input_value("#q")
    page.keyboard.press("ArrowDown")
    assert ANSWER == focused(page)
    page.keyboard.press("ArrowDown")
    assert focused(page) not in (ANSWER, "q")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowUp")
    assert "q" == focused(page)
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Escape")
    assert "q" == focused(page)
    order = []
    for _ in range(STOPS):
        page.keyboard.press("Tab")
        order.append(focused(page))
        style = "e => { const s = getComputedStyle(e); return s.outlineStyle !== 'none' && parseFloat(s.outlineWidth) >= 2; }"
        assert page.evaluate(f"({style})(document.activeElement)"), order
    assert ["Find", "Other phrasings", "Who wrote this code?", "project", "agent"] == order[:5]
    assert ANSWER in order, "behind what narrows the results"
    page.fill("#q", "/")
    assert "/" == page.input_value("#q")


@pytest.mark.thorough
def test_a_family_is_read_with_the_keyboard_and_without_seeing_the_lines(served, opened):
    page = opened(f"/family/claude/{served.session('downloader')}")
    table = page.get_by_role("table", name="in the order in which they were forked")

    titles = [scripted.title for scripted in (FAMILY[0], FAMILY[2], FAMILY[3], FAMILY[1])]
    assert [ANSWER, *titles] == table.locator("tbody th .row").all_inner_texts()
    assert "fork after message 32" in table.get_by_role("row").nth(2).inner_text()
    assert f"of {ANSWER}" in table.get_by_role("row").nth(2).text_content()
    assert 5 == table.locator("path.span").count()
    assert "true" == table.locator("svg").first.get_attribute("aria-hidden")
    for _ in range(2):
        page.keyboard.press("ArrowDown")
    assert "The same retries for the downloader" == focused(page)
    page.keyboard.press("Enter")
    page.wait_for_url("**/session/**")


def test_a_result_is_read_beside_the_others_and_forked_in_place_by_keys(opened):
    page = opened(f"/?q={INTENT.replace(' ', '+')}", viewport={"width": 1280, "height": 800})
    peek = page.get_by_role("complementary", name="The exchange that answers")

    page.wait_for_selector("#peek .message")
    assert page.locator(".chosen a.row").first.inner_text() == ANSWER
    first = peek.inner_text()
    page.keyboard.press("j")
    assert ANSWER == focused(page)
    page.keyboard.press("j")
    page.wait_for_function("first => document.getElementById('peek').innerText !== first", arg=first)
    page.keyboard.press("k")
    page.wait_for_function("first => document.getElementById('peek').innerText === first", arg=first)
    page.set_viewport_size({"width": 1000, "height": 800})
    assert not peek.is_visible()
    page.keyboard.press("f")
    assert "prompt-1" == focused(page)
    assert INTENT == page.input_value("#prompt-1")
    page.keyboard.press("?")
    assert not page.is_visible("dialog")


def test_a_worker_that_asks_is_seen_answered_told_and_closed(served, opened):
    """It asks in a real window of tmux; all that the page shows of it then comes by itself."""
    if shutil.which("tmux") is None:
        fail_or_skip("tmux is not installed")
    home, board, late = opened(), opened("/workers"), opened()
    board.wait_for_selector("text=Live")
    held = []
    late.route("**/workers/live", lambda route: held.append(route))  # noqa: PLW0108 - it must be a function
    late.goto(f"{served.url}/workers")
    served.smart_fork("fork", served.session("retries"), "Upload the release")

    home.wait_for_selector(".needs .worker")
    board.wait_for_selector("#column-asks .worker")
    assert "Run twine upload dist/*?" in home.inner_text(".needs")
    assert "Upload the release" == home.inner_text(".needs .worker h3") == board.inner_text("#column-asks .worker h3")
    assert board.evaluate(WIDTHS.format("asks")) > 2 * board.evaluate(WIDTHS.format("idle")) > 0
    assert "1" == home.inner_text("#asking").split()[0]
    assert "A worker asks something" == home.inner_text("#said")
    assert [] == violations(board)
    eventually(lambda: late.title() and held)
    held[0].continue_()
    late.wait_for_selector("#column-asks .worker")  # it began to ask before this page could hear of it
    board.locator("#column-asks .extra summary").focus()
    home.get_by_role("button", name="2 Yes, and do not ask again").focus()
    home.keyboard.press("Enter")

    home.wait_for_selector("h1:has-text('Workers')")
    assert "answered" in home.inner_text("main .note")
    board.wait_for_selector("#column-idle .worker:has-text('the answer was 2.')")
    field = board.locator("#column-idle").get_by_label("Message")
    field.fill("and announce it")
    board.wait_for_selector("#asking", state="hidden")
    board.dblclick("#column-idle .tell button")
    board.wait_for_selector(".note:has-text('Upload the release: sent and announce it')")
    session = board.locator("#column-idle .worker >> text=Read").get_attribute("href")
    assert session
    heard = [line for line in served.log_of(session.rpartition("/")[2]).splitlines() if "and announce it" in line]
    assert 1 == len(heard)
    board.click("#column-idle .extra summary")
    board.click("#column-idle >> text=Close it")
    board.wait_for_selector(".note:has-text('has ended')")
    board.wait_for_selector("#column-ended .worker:has-text('Upload the release')")


def tab_to(page, name: str) -> None:
    """Go from stop to stop until something is reached that is called so, or begins so."""
    passed = []
    for _ in range(MOST_STOPS):
        page.keyboard.press("Tab")
        passed.append(" ".join(focused(page).split()))
        if passed[-1].startswith(name):
            return
    raise AssertionError(f"{name} is none of {passed}")


@pytest.mark.thorough  # each part of it has a test of its own
@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_the_whole_way_is_gone_by_keys_alone(served, opened, scripts):
    """Search, read, fork, watch, answer, close: with the keys that the list has, and without scripts with Tab and Enter."""
    if shutil.which("tmux") is None:
        fail_or_skip("tmux is not installed")
    page = opened(java_script_enabled=scripts)
    keys = page.keyboard
    keys.type(INTENT)
    keys.press("Enter")
    page.wait_for_selector(".hit")
    page.wait_for_load_state()
    if scripts:
        settled(page)
        keys.press("ArrowDown")
    else:
        tab_to(page, ANSWER)
    assert ANSWER == focused(page)
    keys.press("Enter")
    page.wait_for_selector(".message.asked")
    page.wait_for_load_state()
    if scripts:
        keys.press("f")
    else:
        tab_to(page, "Fork here")
        keys.press("Enter")
        page.wait_for_selector("#prompt", state="visible")
        page.wait_for_load_state()
    assert "prompt" == focused(page)
    keys.type(f"Upload the release {'with' if scripts else 'without'} scripts")
    tab_to(page, "Start the fork")
    keys.press("Enter")
    page.wait_for_selector("h1:has-text('The fork is running')")
    tab_to(page, "All workers")
    keys.press("Enter")
    page.wait_for_url("**/workers")
    asks = "#column-asks .worker"
    if scripts:
        page.wait_for_selector(asks)
    else:
        eventually(lambda: page.locator(asks).count() or (page.reload() and False))
    if scripts:
        keys.press("j")
    tab_to(page, "2 Yes, and do not ask again")
    keys.press("Enter")
    page.wait_for_selector(".note:has-text('answered')")
    page.wait_for_load_state()
    eventually(
        lambda: (
            page.locator("#column-idle .worker:has-text('the answer was 2.')").count()
            or (not scripts and page.reload() and False)
        )
    )
    tab_to(page, "Attach, close")
    keys.press("Enter")
    tab_to(page, "Close it")
    keys.press("Enter")
    page.wait_for_selector(".note:has-text('has ended')")


@pytest.mark.thorough
def test_a_service_that_ends_hangs_up_on_windows_that_listen_which_say_so_and_find_it_again(served, opened):
    page, board = opened("/sessions"), opened("/workers")
    windows = (page, board)
    board.wait_for_selector("text=Live")
    page.evaluate("window.same = true")
    assert not page.is_visible("#gone")

    assert 0 == served.stop()

    for one in windows:
        one.wait_for_selector("#gone:has-text('smart-fork serve')")
        assert "smart-fork serve" in one.inner_text("#said")
    assert "Live" not in board.inner_text("main")
    assert [] == violations(page)
    assert "graceful" not in (served.state / "logs/service.log").read_text(), "it has waited for nobody"
    served.start()
    for one in windows:
        one.wait_for_selector("#gone", state="hidden")
        assert "is back" in one.inner_text("#said")
        one.watch.seen.clear()  # the browser has said that nobody was there
    board.wait_for_selector("text=Live")
    assert page.evaluate("window.same"), "what somebody writes there is kept"
