"""Every view of the page in one window, one after the other: by its address, or by a form that is sent."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from tests.e2e.page_fixtures import INTENT

if TYPE_CHECKING:
    from playwright.sync_api import Page

    from tests.e2e.demo_service import DemoService

#: Those that an address leads to, with what stands in them.
ADDRESSED = (
    "/", f"/?q={INTENT.replace(' ', '+')}", "/?q=nothing&agent=opencode", "/?q=configure+the+ingress+for+grafana", "/session/claude/{retries}?at=15&fork=9&q=retry#message-15",
    "/session/claude/{retries}?fork=9#prompt",
    "/session/claude/{hostile}#sessions", "/family/claude/{retries}?a={retries}&b={downloader}", "/session/claude/{hostile}", "/session/claude/00000000-not-there", "/nothing-here",
    "/sessions", "/families", "/open",
)  # fmt: skip
#: What two forks are asked, and what is asked for once more.
ASKED = ("Find the timer that keeps closed connections", "Which timer leaks?", "Which timer leaks?")


def views(page: Page, served: DemoService) -> Iterator[str]:
    """Lead `page` from view to view, each told by what it is of. It is left running what it has started."""
    for path in ADDRESSED:
        page.goto(
            served.url + path.format(**{name: served.session(name) for name in ("retries", "downloader", "hostile")})
        )
        yield path
    yield from _below_a_session(page, f"{served.url}/session/claude/{served.session('leak')}")
    yield from _of_forks(page, served)
    yield from _of_removals(page, served)


def _below_a_session(page: Page, session: str) -> Iterator[str]:
    """What a sub-agent has done, and all that came back from a step."""
    page.goto(session)
    ways = page.eval_on_selector_all("a[href*='/agents/'], a.whole", "all => all.map(one => one.href)")
    for kind in ("agents", "output"):
        page.goto(next(way for way in ways if f"/{kind}/" in way))
        yield kind


def _of_forks(page: Page, served: DemoService) -> Iterator[str]:
    """What a fork would have, what was started, once although asked for twice, and the workers."""
    known = set(served.ran())
    for number, prompt in enumerate(ASKED):
        page.goto(f"{served.url}/session/claude/{served.session('leak')}?fork=9#prompt")
        page.fill("#prompt", prompt)
        page.select_option("#place", "process")
        page.select_option("#budget", "match")
        page.check("aside [name=worktree]")
        if not number:
            page.click("aside >> text=Compare what it can load")
            page.wait_for_selector("fieldset")
            yield "preview"
        page.click("main .fork >> text=Start the fork")
        page.wait_for_selector("h1:has-text('The fork is running')")
        if not number:
            folder = Path(page.inner_text("dt:text('Directory') + dd").replace("~", str(served.demo.home)))
            (folder / "README.md").write_text("# parcel\n\n* counts what waits\n")
    yield "forked"
    page.goto(f"{served.url}/workers")
    yield "workers"
    page.goto(f"{served.url}/compare?" + "&".join(f"worker={one.name}" for one in {*served.ran()} - known))
    yield "compare"


def _of_removals(page: Page, served: DemoService) -> Iterator[str]:
    """A session that is forgotten, one that is cut, and both as they were."""
    forgotten, cut = (served.session(name) for name in ("alike-0", "alike-2"))
    page.goto(f"{served.url}/forget?session={forgotten}")
    yield "forget"
    page.click("main form button")
    page.wait_for_url("**/removed/**")
    yield "forgotten"
    page.goto(f"{served.url}/excise?session={cut}&turns=1")
    yield "excise"
    for warned in page.locator("main [name=force]").all():
        warned.check()
    page.click("text=Cut it out")
    page.wait_for_url("**/removed/**")
    yield "cut"
    page.goto(f"{served.url}/index")
    yield "index"
    page.click(f"li:has-text('{forgotten}') button")
    page.wait_for_url("**/removed/**")
    yield "remembered"
    page.goto(f"{served.url}/index")
    page.click(f"li:has-text('{cut[:13]}') button")
    page.wait_for_url("**/undone/**")
    yield "undone"
