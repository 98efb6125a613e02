"""A headless Chromium, what it is watched for, and what is measured in it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

#: The first is the same without windows that nobody sees: a page in it takes a third of the processor time.
BROWSERS = (
    "chromium-headless-shell",
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
#: What a browser says of each answer that is not 200: the status is what is tested.
EXPECTED = "Failed to load resource: the server responded with a status of 40"

#: Each text with less contrast to what is behind it than 4.5, as WCAG computes it; images are never behind text here.
CONTRAST = """() => {
  const parse = (text) => {
    const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
    return [r, g, b, a];
  };
  const over = ([r, g, b, a], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
  const luminance = (color) => {
    const [r, g, b] = color.map((c) => c / 255).map((c) => (c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const known = new Map();
  const behind = (element) => {
    if (!element) return parse(getComputedStyle(document.body).backgroundColor);
    if (!known.has(element)) {
      const color = parse(getComputedStyle(element).backgroundColor);
      known.set(element, color[3] === 1 ? color : over(color, behind(element.parentElement)));
    }
    return known.get(element);
  };
  const ratio = (element) => {
    const back = behind(element);
    const [a, b] = [luminance(over(parse(getComputedStyle(element).color), back)), luminance(back)];
    return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  };
  const found = new Map();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const shown = element.checkVisibility() && element.getClientRects().length;
    if (walker.currentNode.data.trim() && shown && !element.closest("script, option")) found.set(element, ratio(element));
  }
  return { texts: found.size, low: [...found].filter(([, one]) => one < 4.5)
    .map(([element, one]) => `${one.toFixed(2)} ${element.tagName}.${element.className} ${element.textContent.slice(0, 40)}`) };
}"""
AXE = """(contrast) => axe.run(document, { resultTypes: ["violations"], rules: { "color-contrast": { enabled: contrast }, "label-content-name-mismatch": { enabled: true } }, runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa",
  "best-practice"] }).then((found) => found.violations.map((one) => `${one.id}: ${one.nodes[0].html}`))"""


def chromium() -> str | None:
    """The browser of this machine, if there is one."""
    return next((found for name in BROWSERS if (found := shutil.which(name))), None)


@contextmanager
def browser(executable: str) -> Iterator[Browser]:
    """It, until it is not needed any more."""
    from playwright.sync_api import sync_playwright

    arguments = ["--disable-dev-shm-usage", "--in-process-gpu", *(["--no-sandbox"] if os.geteuid() == 0 else [])]
    with sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=executable, args=arguments)
        yield running
        running.close()


@dataclass
class Watch:
    """What must not happen on any page: dialogs, errors, refused scripts, and requests to anybody but the service."""

    url: str
    seen: list[str] = field(default_factory=list)

    def over(self, context: BrowserContext) -> None:
        context.add_init_script(
            "addEventListener('securitypolicyviolation', (e) => console.error(`violation of ${e.violatedDirective}`))"
        )
        context.on("page", self._page)
        context.on("request", lambda request: self._request(request.url))

    def _page(self, page: Page) -> None:
        page.on("console", lambda said: self._note(said.text) if said.type in ("error", "warning") else None)
        page.on("pageerror", lambda error: self.seen.append(str(error)))
        page.on("dialog", lambda dialog: (self.seen.append(f"dialog {dialog.message}"), dialog.dismiss()))

    def _note(self, text: str) -> None:
        if not text.startswith(EXPECTED):
            self.seen.append(text)

    def _request(self, url: str) -> None:
        if not url.startswith((f"{self.url}/", "data:")):
            self.seen.append(f"request to {url}")


def enter(page: Page, url: str, way_in: str) -> None:
    """Let the browser in at the page at `url`, by the file at `way_in`."""
    page.goto(way_in)
    page.wait_for_url(f"{url}/")


@contextmanager
def window(one: Browser, **how: Any) -> Iterator[Any]:
    """One with cookies and settings of its own."""
    context = one.new_context(**how)
    yield context
    context.close()


def visited(page: Page) -> list[str]:
    """The addresses that the browser would lead back to."""
    session = page.context.new_cdp_session(page)
    return [entry["url"] for entry in session.send("Page.getNavigationHistory")["entries"]]


def focused(page: Page) -> str:
    """What has the focus: its id, else what stands in it."""
    return str(page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()"))


def violations(page: Page, *, contrast: bool = True) -> list[str]:
    """What axe-core finds wrong with a page; without `contrast`, which takes it longer than all else, what no color changes."""
    at_rest(page)
    if page.evaluate("typeof axe === 'undefined'"):
        page.evaluate(_axe())
    found: list[str] = page.evaluate(AXE, contrast)
    return found


def at_rest(page: Page) -> None:
    """Wait until nothing is loaded or fades in: until then it is paler."""
    page.wait_for_selector("html:not(:has([aria-busy]))")
    page.evaluate("Promise.allSettled(document.getAnimations().map((one) => one.finished))")


def low_contrast(page: Page) -> list[str]:
    """Texts that are hard to read."""
    at_rest(page)
    measured: dict[str, Any] = page.evaluate(CONTRAST)
    assert measured["texts"] > 3, "nothing was measured"
    return list(measured["low"])


def _axe() -> str:
    package = find_spec("axe_playwright_python")
    assert package is not None
    assert package.origin is not None
    return (Path(package.origin).parent / "axe.min.js").read_text(encoding="utf-8")
