"""The pictures of docs/page.md, of the demo's sessions: ``make screenshots``."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from smart_fork.demo import INTENT
from tests.e2e.browsing import browser, chromium, enter
from tests.e2e.demo_service import demo_service
from tests.e2e.demo_sessions import FAMILY

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH, HEIGHT, SCALE = 1080, 860, 1.5
COLORS = 256


def take(page: Page, path: Path) -> None:
    """What is seen of a page, as a small file."""
    picture = Image.open(io.BytesIO(page.screenshot(animations="disabled"))).convert("RGB")
    picture.quantize(COLORS, dither=Image.Dither.NONE).save(path, optimize=True)


def main(folder: Path) -> None:
    """Take all of them."""
    program = chromium()
    if program is None:
        sys.exit("No Chromium is installed")
    folder.mkdir(parents=True, exist_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        demo_service(Path(place) / "you", FAMILY) as service,
        browser(program) as one,
    ):
        light, dark = (
            one.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme=scheme)
            for scheme in ("light", "dark")
        )
        enter(light, service.url, service.way_in())
        light.fill("#q", INTENT)
        light.wait_for_selector("mark")
        light.wait_for_selector("#results:not([aria-busy])")
        take(light, folder / "search.png")
        light.goto(f"{service.url}/session/claude/{service.session('retries')}?at=10&fork=9")
        light.locator("details.actions").nth(1).evaluate("one => { one.open = true; }")
        light.fill("#prompt", INTENT)
        take(light, folder / "session.png")
        enter(dark, service.url, service.way_in())
        dark.goto(f"{service.url}/family/claude/{service.session('downloader')}")
        take(dark, folder / "family.png")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
