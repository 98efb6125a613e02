"""The pictures of docs/how-to/page.md, of the demo's sessions: ``make screenshots``."""

from __future__ import annotations

import io
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from smart_fork.cli.demo import INTENT
from tests.e2e.browser import browser, chromium, enter
from tests.e2e.demo_service import demo_service
from tests.e2e.demo_sessions import FAMILY

if TYPE_CHECKING:
    from playwright.sync_api import Page

WIDTH, HEIGHT, SCALE = 1280, 860, 1.5
PHONE = 390
COLORS = 256
#: What the workers of the pictures are to do: the first asks before it does.
WORKERS = (
    ("retries", "Upload the release", ()),
    ("downloader", "Verify each part before it is joined", ("--worktree",)),
    ("leak", "Look for the same leak in the consumer", ("--in", "process")),
)


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
        for session, prompt, how in WORKERS:
            service.smart_fork("fork", service.session(session), prompt, *how)
        light, dark = (
            one.new_page(viewport={"width": WIDTH, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme=scheme)
            for scheme in ("light", "dark")
        )
        phone = one.new_page(
            viewport={"width": PHONE, "height": HEIGHT}, device_scale_factor=SCALE, color_scheme="light"
        )
        for page in (light, dark, phone):
            enter(page, service.url, service.way_in())
            page.wait_for_selector(".needs .worker")
        take(light, folder / "home.png")
        take(phone, folder / "phone.png")
        search(light)
        take(light, folder / "search.png")
        light.goto(f"{service.url}/session/claude/{service.session('retries')}?at=10&fork=9")
        light.fill("#prompt", INTENT)
        light.wait_for_selector("#sessions li")
        take(light, folder / "session.png")
        dark.goto(f"{service.url}/family/claude/{service.session('downloader')}")
        take(dark, folder / "family.png")
        dark.goto(f"{service.url}/workers")
        dark.wait_for_selector("#column-asks .worker")
        take(dark, folder / "workers.png")
        light.goto(f"{service.url}/index")
        take(light, folder / "index.png")


def search(page: Page) -> None:
    """Ask, and open the form of the best result."""
    page.fill("#q", INTENT)
    page.wait_for_selector("mark")
    page.wait_for_selector("#results:not([aria-busy])")
    page.wait_for_selector("#peek .message")
    page.click(".fork-here summary >> nth=0")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
