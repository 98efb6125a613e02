"""smart-fork beside other tools on the same logs: time to index, time of an answer (whole process), hit@1 and hit@5.

    python benchmarks/bench.py peers CORPUS [--quick] [--queries N] [--home DIR | --vectors] [--tools DIR] [--install]
                                        [--json FILE]

CORPUS as in benchmarks/retrieval.py. Tools are looked for in --tools and on PATH; --install puts the missing ones into
--tools (or a temporary folder) with pip. A tool that writes gets a copy of the home. smart-fork searches by meaning
only with --vectors, or where --home has an index with vectors already: making them takes minutes.
"""

from __future__ import annotations

import os
import shutil
import statistics
import sys
import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _frame import Part, Table, lay_out, queries_of, rates_of, takes_corpus
from _peers import (
    ANSWER_SECONDS,
    INDEX_SECONDS,
    OURS_HYBRID,
    PATIENCE,
    PEERS,
    Peer,
    PeerFailed,
    Place,
    Question,
    installed,
    run,
)

ROOT = Path(__file__).resolve().parent.parent
QUERIES, QUICK_QUERIES = 40, 12
VECTORS_SECONDS = 1800


@dataclass(frozen=True)
class Bench:
    """The logs, queries and folders that all tools are measured with."""

    laid_out: Path
    queries: list[dict[str, Any]]
    folder: Path
    tools: Path
    install: bool
    vectors: bool
    home: Path | None


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    takes_corpus(parser)
    parser.add_argument("--quick", action="store_true", help=f"ask {QUICK_QUERIES} queries only")
    parser.add_argument("--queries", type=int, default=QUERIES, help=f"how many, evenly chosen ({QUERIES}); 0 is all")
    parser.add_argument("--vectors", action="store_true", help="make the vectors where they are missing")
    parser.add_argument("--tools", type=Path, help="other tools are, or are to be installed, in this folder")
    parser.add_argument("--install", action="store_true", help="install the tools that are missing (network)")


def measure(asked: Namespace, folder: Path) -> dict[str, Any]:
    """Ask all tools."""
    laid_out = lay_out(asked.corpus, folder)
    queries = queries_of(laid_out)
    bench = Bench(
        laid_out,
        sample(queries, QUICK_QUERIES if asked.quick else asked.queries),
        folder,
        (asked.tools or folder / "tools").resolve(),
        asked.install,
        asked.vectors,
        asked.home.resolve() if asked.home else None,
    )
    return {
        "queries": len(bench.queries),
        "of_queries": len(queries),
        "claude_queries": sum(any(one["agent"] == "claude" for one in query["gold"]) for query in bench.queries),
        "logs": sum(1 for _ in (laid_out / "home").rglob("*.jsonl")),
        "peers": [_row(peer, bench) for peer in PEERS],
    }


def sample(queries: list[dict[str, Any]], count: int) -> list[dict[str, Any]]:
    """`count` of them, evenly spread; all for 0."""
    if not 0 < count < len(queries):
        return queries
    return [queries[number * len(queries) // count] for number in range(count)]


def _row(peer: Peer, bench: Bench) -> dict[str, Any]:
    """One row: the figures, or why there are none."""
    print(peer.name, file=sys.stderr)
    row: dict[str, Any] = {"name": peer.name, "claude_only": peer.claude_only, "status": ""}
    if peer is OURS_HYBRID and not bench.vectors and not (bench.home and (bench.home / "index.db").exists()):
        return row | {"status": "not asked for (--vectors, or --home with an index)"}
    try:
        program = installed(peer, bench.tools, missing=bench.install)
        if program is None:
            return row | {"status": "not installed"}
        with tempfile.TemporaryDirectory(dir=bench.folder, ignore_cleanup_errors=True) as state:
            return row | _measure(Running(peer, program, _place(peer, bench, Path(state))), bench)
    except PeerFailed as failure:
        return row | {"status": f"failed: {failure}"}


def _place(peer: Peer, bench: Bench, state: Path) -> Place:
    home = bench.laid_out / "home"
    if peer.package:
        home = Path(shutil.copytree(home, state / "home", symlinks=True))
    if peer is OURS_HYBRID and bench.home:
        state = bench.home
        state.mkdir(parents=True, exist_ok=True)
    return Place(home, state)


@dataclass(frozen=True)
class Running:
    """A tool in its place."""

    peer: Peer
    program: str
    place: Place

    def run(self, arguments: Sequence[str], seconds: float) -> str:
        """Run the tool, and return its output."""
        kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "TMPDIR")}
        environment = kept | {"HOME": str(self.place.home), "PYTHONUTF8": "1"}
        if not self.peer.package:
            state = {"SMART_FORK_HOME": str(self.place.state), "SMART_FORK_BACKGROUND": "0"}
            environment |= state | {"PYTHONPATH": str(ROOT)}
        return run([self.program, *arguments], environment, self.place.state, seconds)

    def ask(self, question: Question) -> list[str]:
        """The sessions it names, best first, once each."""
        printed = self.run(self.peer.ask(question, self.place), ANSWER_SECONDS)
        return list(dict.fromkeys(self.peer.read(printed)))


def _measure(running: Running, bench: Bench) -> dict[str, Any]:
    peer = running.peer
    figures: dict[str, Any] = {"index_seconds": None, "scoped": None}
    try:
        if peer.index and not (running.place.state / "index.db").exists():
            started = time.perf_counter()
            running.run(peer.index(running.place), VECTORS_SECONDS if peer is OURS_HYBRID else INDEX_SECONDS)
            figures["index_seconds"] = round(time.perf_counter() - started, 2)
        running.ask(Question("warm up", None))
        figures["global"] = _asked(running, bench.queries, scoped=False)
        figures["scoped"] = _asked(running, bench.queries, scoped=True) if peer.scoped else None
    finally:
        if peer.stop:
            running.run(peer.stop, ANSWER_SECONDS)
    return figures


def _asked(running: Running, queries: list[dict[str, Any]], *, scoped: bool) -> dict[str, Any]:
    ranks, seconds, in_a_row, failed = [], [], 0, 0
    for query in queries:
        started = time.perf_counter()
        try:
            sessions = running.ask(Question(query["query"], query["project"] if scoped else None))
            in_a_row = 0
        except PeerFailed:
            sessions, failed, in_a_row = [], failed + 1, in_a_row + 1
            if in_a_row == PATIENCE:
                raise
        seconds.append(time.perf_counter() - started)
        ranks.append(rank(sessions, [answer["session_id"] for answer in query["gold"]]))
    rates = rates_of(ranks)
    return {
        "hit@1": round(rates["hit@1"], 3),
        "hit@5": round(rates["hit@5"], 3),
        "answer_seconds": round(statistics.median(seconds), 3),
        "failed": failed,
    }


def rank(sessions: Sequence[str], gold: Sequence[str]) -> int:
    """The place of the first right one, from 1; 0 where there is none. Tools may shorten ids."""
    return next((n for n, shown in enumerate(sessions, 1) if any(one.startswith(shown) for one in gold)), 0)


def _rows(figures: dict[str, Any]) -> list[list[str]]:
    """The cells of the table."""
    table = []
    for peer in figures["peers"]:
        name = peer["name"] + (" ¹" if peer["claude_only"] else "")
        if peer["status"]:
            table.append([name, peer["status"], *[""] * 6])
            continue
        cells = ["-" if peer["index_seconds"] is None else f"{peer['index_seconds']:.1f} s"]
        for one in (peer["global"], peer["scoped"]):
            if one is None:
                cells += ["not offered", "", ""]
            else:
                cells += [f"{one['hit@1']:.2f}", f"{one['hit@5']:.2f}", f"{one['answer_seconds']:.2f} s"]
        table.append([name, *cells])
    return table


COLUMNS = ("tool", "index", "all: hit@1", "hit@5", "answer", "project: hit@1", "hit@5", "answer")


def tables(figures: dict[str, Any]) -> Iterator[Part]:
    """Yield a row for each tool."""
    answerable = f"{figures['claude_queries']} of these {figures['queries']} queries"
    yield (
        f"{figures['logs']} logs; {figures['queries']} of {figures['of_queries']} labelled queries, asked everywhere\n"
        "and in their project, of each tool in the way that suits it best (`benchmarks/_peers.py`). An answer is the\n"
        "median of whole processes. The weights of smart-fork's ranking were found with these queries; the other\n"
        "tools have never seen them."
    )
    yield Table(COLUMNS, _rows(figures))
    yield f"¹ reads Claude Code's logs only, which have the answer to {answerable}."
