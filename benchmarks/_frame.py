"""The frame of the benchmarks: a home to measure in, times, and tables for a terminal and for the page."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rich.table import Table as RichTable
from rich.text import Text

RATES = ("hit@1", "hit@5", "mrr")
#: Variables that a measured process inherits.
PASSED_ON = ("PATH", "LANG", "VIRTUAL_ENV", "PYTHONPATH", "OMP_NUM_THREADS")


class Table(NamedTuple):
    """A table of figures; columns from `right_from` on are aligned to the right."""

    header: Sequence[str]
    rows: Iterable[Sequence[str]]
    right_from: int = 1

    def markdown(self) -> str:
        """The table as Markdown."""
        rule = ["---" if number < self.right_from else "--:" for number in range(len(self.header))]
        lines = ([cell.strip().replace("|", r"\|") for cell in row] for row in (self.header, rule, *self.rows))
        return "\n".join("| " + " | ".join(line) + " |" for line in lines)

    def __rich__(self) -> RichTable:
        table = RichTable()
        for number, name in enumerate(self.header):
            table.add_column(Text(name), justify="left" if number < self.right_from else "right")
        for row in self.rows:
            table.add_row(*map(Text, row))
        return table


#: A paragraph or a table.
Part = str | Table


def markdown(parts: Iterable[Part]) -> str:
    """Paragraphs and tables as Markdown."""
    return "\n\n".join(part if isinstance(part, str) else part.markdown() for part in parts)


def takes_corpus(parser: ArgumentParser, *, needed: bool = True) -> None:
    """Add the options of a benchmark that searches real logs."""
    parser.add_argument("corpus", type=Path, nargs=None if needed else "?", help="a folder of labelled logs")
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")


def lay_out(corpus: Path, folder: Path) -> Path:
    """Return the laid-out corpus: `corpus` itself, or what its script makes of it in `folder`."""
    corpus = corpus.resolve()
    if (corpus / "home").is_dir():
        return corpus
    if not (corpus / "lay_out.py").is_file():
        sys.exit(f"{corpus} has neither home/ nor lay_out.py: not a corpus")
    subprocess.run([sys.executable, str(corpus / "lay_out.py"), str(folder / "corpus")], check=True, stdout=sys.stderr)
    return folder / "corpus"


def live_in(corpus: Path, state: Path | None, folder: Path) -> Path:
    """Lay out the corpus, make it this process's home with our own files in `state`, and return it."""
    laid_out = lay_out(corpus, folder)
    live_at(laid_out / "home", (state or folder / "state").resolve())
    return laid_out


def live_at(home: Path, state: Path) -> None:
    """Make `home` this process's home, with our own files in `state`."""
    os.environ |= {"HOME": str(home), "SMART_FORK_HOME": str(state)}
    for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
        os.environ.pop(name, None)


def queries_of(laid_out: Path) -> list[dict[str, Any]]:
    """Return the labelled queries of a corpus."""
    return [json.loads(line) for line in (laid_out / "queries.jsonl").read_text(encoding="utf-8").splitlines()]


def environment_of(home: Path, state: Path) -> dict[str, str]:
    """Return the environment of a measured process that lives in `home`."""
    kept = {name: value for name, value in os.environ.items() if name in PASSED_ON}
    return kept | {"HOME": str(home), "SMART_FORK_HOME": str(state)}


def rates_of(ranks: Sequence[int]) -> dict[str, float]:
    """Return `RATES` of places from 1 on, one a query; 0 is a miss."""
    first, five = sum(rank == 1 for rank in ranks), sum(0 < rank <= 5 for rank in ranks)
    sums = (first, five, sum(1 / rank for rank in ranks if rank))
    return {name: total / len(ranks) for name, total in zip(RATES, sums, strict=True)}


def seconds(work: Callable[[], object]) -> float:
    """Return how long a call takes."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that `share` of them do not exceed; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


def busy_machine() -> str:
    """Return the load averages."""
    return "load average " + ", ".join(f"{load:.2f}" for load in os.getloadavg())


def progress(stage: str, done: int, total: int) -> None:
    """Print how far a stage of indexing is."""
    if done == total or done % 1024 < 128:
        print(f"{stage} {done}/{total}", file=sys.stderr)
