"""Run a benchmark, or write what benchmarks have measured into docs/explanation/benchmarks.md.

    python benchmarks/bench.py NAME [--help] [OPTIONS] [--json FILE]
    python benchmarks/bench.py report [FOLDER] [--into DOCS]

A benchmark has `options`, `measure` and `tables`, and prints the `details` that the page does not have. `report` takes
FOLDER (build/bench), with one JSON a benchmark. In the page, it replaces the part between ``<!-- NAME -->`` and
``<!-- /NAME -->`` of each benchmark that has a JSON. All other text is written by hand and stays.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from _frame import markdown
from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
#: The parts of the page in order, and what the plot of each shows.
SECTIONS = {
    "which_session": "",
    "retrieval": "hit@1 and hit@5 by kind of query and way of searching",
    "tuning": "how often a score comes true",
    "search_speed": "time of a search against the size of the index",
    "serving": "",
    "indexing": "MB/s of reading and chunks/s of embedding",
    "service": "",
    "soak": "wait until findable, memory and processor of the service over time",
    "load": "",
    "forking": "",
    "since": "",
    "peers": "quality, time of an answer and time to index, by tool",
}
#: Figures that are published question by question, beside their table.
PUBLISHED = {"which_session"}
#: What runs here; which_session is a package of its own: `python -m benchmarks.which_session`.
NAMES = (*list(SECTIONS)[1:], "instructions")


def main(name: str = "", *words: str) -> None:
    """Run what the command line says."""
    if name == "report":
        parser = argparse.ArgumentParser("bench.py report")
        parser.add_argument("folder", type=Path, nargs="?", default=ROOT / "build/bench")
        parser.add_argument("--into", type=Path, default=ROOT / "docs/explanation")
        asked = parser.parse_args(words)
        print(report(asked.folder, asked.into))
    elif name in NAMES:
        run(name, words)
    else:
        sys.exit(f"{__doc__}\nNAME is one of {', '.join(NAMES)}.")


def load(name: str) -> ModuleType:
    """Import a benchmark."""
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # some use parts of the tests
    return importlib.import_module("which_session.page" if name == "which_session" else name)


def run(name: str, words: Sequence[str]) -> None:
    """Measure, print, and write the figures."""
    benchmark = load(name)
    parser = argparse.ArgumentParser(
        f"bench.py {name}", description=benchmark.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    benchmark.options(parser)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures here as well")
    asked = parser.parse_args(words)
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-", ignore_cleanup_errors=True) as folder:
        figures = benchmark.measure(asked, Path(folder).resolve())
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    console = Console(width=120, highlight=False, markup=False)
    for part in (*benchmark.tables(figures), *getattr(benchmark, "details", lambda _: ())(figures)):
        console.print(part)


def report(folder: Path, docs: Path) -> Path:
    """Update the parts of ``benchmarks.md``, and ``benchmarks/*.png``, in `docs` from the JSON files in `folder`."""
    import _charts

    page, plots = docs / "benchmarks.md", docs / "benchmarks"
    plots.mkdir(exist_ok=True)
    text = page.read_text(encoding="utf-8")
    for name, picture in SECTIONS.items():
        file, plot = folder / f"{name}.json", plots / f"{name}.png"
        if not file.is_file():
            continue
        figures = json.loads(file.read_text(encoding="utf-8"))
        parts = list(load(name).tables(figures))
        if picture:
            getattr(_charts, f"draw_{name}")(figures, plot)
            parts.insert(0, f"![{picture}](benchmarks/{plot.name})")
        if name in PUBLISHED:
            (plots / file.name).write_bytes(file.read_bytes())
        text = put(text, name, markdown(parts))
    page.write_text(text, encoding="utf-8")
    return page


def put(page: str, name: str, section: str) -> str:
    """Replace the part of that name."""
    before, begin, rest = page.partition(f"<!-- {name} -->\n")
    _, end, after = rest.partition(f"<!-- /{name} -->")
    if not end:
        raise SystemExit(f"The page has no part {name}: add <!-- {name} --> and, below it, <!-- /{name} -->")
    return f"{before}{begin}\n{section}\n\n{end}{after}"


if __name__ == "__main__":
    main(*sys.argv[1:])
