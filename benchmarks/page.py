"""How soon a long session is seen on the page, in a real Chromium, and how large the page is.

    python benchmarks/page.py [--exchanges 300 1500] [--rounds 5] [--json FILE]

It writes sessions of so many exchanges (an answer in Markdown with code, three steps with an edit each), starts the
service, and opens them. First paint is the browser's own, from the request on, and the first exchange is seen one frame
after it is there; style sheets and scripts are kept from an earlier page. The longest task is what a person feels
as a freeze while the page loads and is gone through to its end. Beside it, in the same rounds, the first paint of a
session of one exchange: the ratio tells more than the time where the machine does other things as well. The size is
that of the page as gzip packs it. And what 50 results take on the page, beside the same question asked of the same
service by a script (`smart_fork.find`), in turns: what is added by showing them.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from _served import Served, busy_machine
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import smart_fork
from smart_fork.cli.demo import write_demo_home
from tests.demo_logs import session_id, write_more
from tests.demo_logs.script import CommandRun, FileEdit, Read, Say, Scripted, asked
from tests.e2e.browsing import browser, chromium, enter

if TYPE_CHECKING:
    from playwright.sync_api import Page

#: What is aimed at: of 300 exchanges, in milliseconds and bytes.
PAINT_MS, PACKED_BYTES = 300, 400_000
#: So many results are shown, for which the page may take so much longer than the search itself.
HITS, ADDED_MS = 50, 150
INDEX_SECONDS = 120.0
QUESTION = "rotate the zeppelin logs every night"
ANSWER = """## Part {number}

The uploader retries *five* times now, with `backoff({number})` between the attempts:

1. a status of **503** or 429 is worth another attempt,
2. everything else is raised as `UploadFailed`.

| status | attempts |
|-------:|----------|
| 503 | {number} |

```python
def backoff(attempt: int, base: float = 0.5) -> float:
    '''Seconds to wait before attempt number {number}.'''
    return min(30.0, base * 2 ** attempt)
```
"""
WATCH = """() => {
  window.longest = 0;
  const longest = (list) => Math.max(window.longest, ...list.getEntries().map((one) => one.duration));
  new PerformanceObserver((list) => { window.longest = longest(list); })
    .observe({ type: 'longtask', buffered: true });
  const look = () => requestAnimationFrame(document.querySelector('.exchange .message') ? seen : look);
  const seen = (now) => { window.read = now; };
  look();
}"""
SEEN = """() => new Promise((done) => {
  const painted = () => performance.getEntriesByName('first-contentful-paint').length > 0;
  const look = () => (window.read && painted() ? done() : setTimeout(look, 20));
  look();
})"""
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? null"


def scripted(exchanges: int) -> Scripted:
    """A session of so many exchanges."""
    return Scripted(
        f"long-{exchanges}", "claude", "parcel", f"{exchanges} exchanges", 20.0,
        asked=tuple(
            asked(
                f"Go on with part {number} of the uploader: what happens when the server answers 503 again?",
                Read(f"parcel/part_{number}.py", "x = 1\n"),
                FileEdit(f"parcel/part_{number}.py", f"a\nn = {number}\nc\n", f"a\nn = 1\nlimit = {number}\nc\n"),
                CommandRun(f"pytest -q tests/test_part_{number}.py", f"{number} passed in 0.19s"),
                Say(ANSWER.format(number=number)),
            )
            for number in range(exchanges)
        ),
    )  # fmt: skip


def alike(number: int) -> Scripted:
    """One of many sessions that answer the same question."""
    return Scripted(
        f"alike-{number}", "claude", "parcel", "", 30.0 + number / 10,
        asked=(
            asked(
                f"Rotate the zeppelin logs of server {number} every night.",
                Read(f"ops/server_{number}.conf", "weekly\n"),
                FileEdit(f"ops/server_{number}.conf", "weekly\n", f"daily\nrotate {number}\n"),
                Say(f"logrotate does it for zeppelin {number}; fourteen days are kept."),
            ),
        ),
    )  # fmt: skip


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--exchanges", type=int, nargs="+", default=[300, 1500])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    program = chromium()
    if program is None:
        sys.exit("No Chromium is installed")
    sizes = [1, *given.exchanges]
    with tempfile.TemporaryDirectory() as place:
        more = [*(scripted(size) for size in sizes), *(alike(number) for number in range(HITS + 10))]
        demo = write_demo_home(Path(place) / "you")
        write_more(demo, more)
        served = Served(demo.home)
        (served.state / "config.toml").write_text(f'[service]\nprojects = ["{demo.project}"]\n', encoding="utf-8")
        with served as service, browser(program) as one:
            page = one.new_page(viewport={"width": 1280, "height": 900})
            page.add_init_script(f"({WATCH})()")
            url = f"http://127.0.0.1:{service.port}"
            enter(page, url, _way_in(service))
            shown = _shown(service, demo.project, given.rounds)  # when that begins, everything is indexed
            measured = [_measured(page, url, size, given.rounds) for size in sizes]
    _print(measured)
    Console().print(
        f"{HITS} results: {shown['page_ms']:.0f} ms on the page, {shown['find_ms']:.0f} ms by find, "
        f"{shown['page_ms'] / shown['find_ms']:.2f} times, {shown['added_ms']:+.0f} ms (aimed at {ADDED_MS}); "
        f"{busy_machine()}"
    )
    if given.json:
        given.json.write_text(json.dumps({"sessions": measured, "results": shown}, indent=1))


def _shown(service: Served, project: Path, rounds: int) -> dict[str, float]:
    """How long so many results take, found and shown; both know the question already when it is measured."""
    query = urlencode({"q": QUESTION, "project": str(project), "n": HITS})
    os.environ.update(service.environment)

    def page() -> None:
        status, text = service.request("GET", f"/results?{query}")
        if status != 200 or (found := text.count(b'class="row"')) < HITS:
            sys.exit(f"{status}, {found} results on the page")

    def find() -> bool:
        return len(smart_fork.find(QUESTION, project=str(project), limit=HITS)) == HITS

    deadline = time.monotonic() + INDEX_SECONDS
    while not find() or service.status()["state"] != "idle":
        if time.monotonic() > deadline:
            sys.exit(f"{HITS} sessions are not found in {INDEX_SECONDS:g} seconds")
    times: dict[str, list[float]] = {"page": [], "find": []}
    for number in range(4 * rounds + 1):
        for name, ask in (("page", page), ("find", find)):
            started = time.perf_counter()
            ask()
            if number:
                times[name].append(1000 * (time.perf_counter() - started))
    added = [one - other for one, other in zip(times["page"], times["find"], strict=True)]
    return {
        "page_ms": statistics.median(times["page"]), "find_ms": statistics.median(times["find"]),
        "added_ms": statistics.median(added),
    }  # fmt: skip


def _way_in(service: Served) -> str:
    command = [sys.executable, "-m", "smart_fork", "open", "--print"]
    asked = subprocess.run(
        command, env=service.environment, cwd=service.home, capture_output=True, text=True, check=True
    )
    return asked.stdout.strip()


def _measured(page: Page, url: str, exchanges: int, rounds: int) -> dict[str, Any]:
    paints, reads, longest, packed, whole = [], [], [], 0, 0
    for _ in range(rounds):
        answer = page.goto(f"{url}/session/claude/{session_id(f'long-{exchanges}')}")
        assert answer is not None
        text = answer.body()
        page.evaluate(SEEN)
        paints.append(page.evaluate(PAINT))
        reads.append(page.evaluate("window.read"))
        for _ in range(10):
            page.mouse.wheel(0, 20_000)
        page.keyboard.press("End")
        page.evaluate("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        longest.append(page.evaluate("window.longest"))
        packed, whole = len(gzip.compress(text)), len(text)
    return {
        "exchanges": exchanges, "first_paint_ms": statistics.median(paints),
        "first_exchange_ms": statistics.median(reads), "longest_task_ms": statistics.median(longest),
        "bytes": whole, "packed_bytes": packed,
    }  # fmt: skip


def _print(measured: list[dict[str, Any]]) -> None:
    table = Table("exchanges", "first paint", "beside one", "first exchange", "longest task", "page", "packed")
    base = measured[0]["first_paint_ms"]
    for one in measured:
        table.add_row(
            str(one["exchanges"]), f"{one['first_paint_ms']:.0f} ms", f"{one['first_paint_ms'] / base:.2f}",
            f"{one['first_exchange_ms']:.0f} ms", f"{one['longest_task_ms']:.0f} ms",
            f"{one['bytes'] / 1000:.0f} kB", f"{one['packed_bytes'] / 1000:.0f} kB",
        )  # fmt: skip
    Console().print(table)
    Console().print(f"Aimed at for 300: {PAINT_MS} ms, {PACKED_BYTES / 1000:.0f} kB packed")


if __name__ == "__main__":
    main()
