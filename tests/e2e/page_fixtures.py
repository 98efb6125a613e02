"""The page in windows of one browser: fixtures, and what its tests do again and again."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.browser import Watch, browser, chromium, enter, window
from tests.e2e.demo_service import DemoService, demo_service
from tests.e2e.demo_sessions import ALIKE, FAMILY, HOSTILE, LONG, TALL
from tests.support.executables import fail_or_skip

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

HERE = Path(__file__).parent
#: Until a page was drawn once, what is only laid out where it is seen (`content-visibility`) has no text.
DRAWN = "new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
#: The browser that runs now, and what ends it.
_RUNNING: list[tuple[Browser, Any]] = []
_OPEN = ExitStack()
INTENT, ANSWER = "retry with exponential backoff in the uploader", "Retry with backoff in the uploader"


@pytest.fixture(scope="session")
def served(tmp_path_factory) -> Iterator[DemoService]:
    """The service with the demo's sessions, a large family, two long sessions, many that are alike, and hostile ones."""
    if chromium() is None:
        fail_or_skip("no Chromium is installed")
    home = tmp_path_factory.mktemp("page") / "you"
    with demo_service(home, [*FAMILY, LONG, TALL, *ALIKE, *HOSTILE]) as service:
        yield service


@pytest.fixture
def running(served: DemoService) -> tuple[Browser, Any]:
    """One browser, and the cookie with which it was let in."""
    if not _RUNNING:
        one = _OPEN.enter_context(browser(chromium() or ""))
        context = one.new_context()
        enter(context.new_page(), served.url, served.way_in())
        _RUNNING.append((one, context.storage_state()))
        context.close()
    return _RUNNING[0]


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(nextitem: pytest.Item | None) -> None:
    """End the browser when the next test is none of the page.

    While it is driven an event loop runs in this thread, beside which no other may be started.
    """
    here = nextitem is not None and nextitem.path.parent == HERE and "served" in getattr(nextitem, "fixturenames", ())
    if not here and _RUNNING:
        _RUNNING.clear()
        _OPEN.close()


@pytest.fixture
def opened(served: DemoService, running) -> Iterator[Callable[..., Page]]:
    """Opens an address in a window of its own. Whatever was opened, nothing may have gone wrong in it."""
    one, state = running
    with ExitStack() as stack:

        def open_page(path: str = "/", **how: Any) -> Page:
            context = stack.enter_context(window(one, **{"storage_state": state, **how}))
            context.set_default_timeout(90_000)
            watch = Watch(served.url)
            watch.over(context)
            stack.callback(lambda: pytest.fail(f"{path}: {watch.seen}") if watch.seen else None)
            page = context.new_page()
            page.goto(served.url + path)
            if how.get("java_script_enabled", True):
                page.evaluate(DRAWN)
            page.watch = watch
            return page

        yield open_page


def search(page: Page, words: str) -> None:
    """Type, and wait for what is found."""
    with page.expect_response(lambda answer: "/results" in answer.url and answer.request.method == "GET"):
        page.fill("#q", words)
    settled(page)


def settled(page: Page) -> None:
    page.wait_for_selector("#results:not([aria-busy])")
