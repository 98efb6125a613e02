"""Speed of indexing real logs: what was read and skipped, MB/s, memory, and what a run costs when nothing has changed.

    python benchmarks/indexing.py CORPUS [--home DIR] [--no-vectors] [--json FILE]

CORPUS is a folder with ``lay_out.py`` (see its README), or one that it has laid out already (``home/``). The baseline
of the ratios, measured in the same run, is decoding every line of the same logs with orjson and keeping nothing.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from retrieval import lay_out
from rich.console import Console
from rich.table import Table

UNCHANGED_RUNS = 5


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--home", type=Path, help="make the index here (SMART_FORK_HOME); it must not exist yet")
    parser.add_argument("--no-vectors", action="store_true", help="only words")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        laid_out = lay_out(arguments.corpus.resolve(), Path(folder))
        state = (arguments.home or Path(folder) / "state").resolve()
        if (state / "index.db").exists():
            sys.exit(f"{state} has an index already: the first run could not be measured")
        os.environ |= {"HOME": str(laid_out / "home"), "SMART_FORK_HOME": str(state)}
        for name in ("CLAUDE_CONFIG_DIR", "CODEX_HOME"):
            os.environ.pop(name, None)
        figures = measure(vectors=not arguments.no_vectors)
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measure(*, vectors: bool) -> dict[str, Any]:
    """Index everything once, then again and again with nothing changed."""
    import logging

    from indexer.embedding import SentenceTransformerEmbedder
    from indexer.freshness import complete, embed_first
    from indexer.paths import index_db
    from indexer.store.sqlite import SqliteStore
    from indexer.transcripts.agents import AGENTS

    logging.disable()
    paths = [file.path for agent in AGENTS for file in agent.discover()]
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    _only_decode(paths)  # from here on everybody finds the files in memory
    baseline = _seconds(lambda: _only_decode(paths))

    store = SqliteStore(index_db())
    started = time.perf_counter()
    report = complete(store, AGENTS, None, patience=0.0)
    reading = time.perf_counter() - started
    memory = _peak()
    unchanged = min(_seconds(lambda: complete(store, AGENTS, None, patience=0.0)) for _ in range(UNCHANGED_RUNS))
    counts = store.counts()
    figures: dict[str, Any] = {
        "logs": report.files,
        "megabytes": megabytes,
        "sessions": report.sessions,
        "skipped": report.skipped,
        "failed": len(report.failed),
        "broken_lines": report.broken_lines,
        "chunks": counts.chunks,
        "orjson_seconds": baseline,
        "reading_seconds": reading,
        "reading_peak_mb": memory,
        "unchanged_seconds_a_1000_logs": unchanged / report.files * 1000,
        "unchanged_seconds": unchanged,
        "index_mb": index_db().stat().st_size / 1e6,
    }
    if vectors:
        embedder = SentenceTransformerEmbedder()
        figures["model_seconds"] = _seconds(lambda: embedder.embed(["warm"]))
        scope = store.scope(None, [agent.name for agent in AGENTS], automated=True)
        figures["embedding_seconds"] = _seconds(lambda: embed_first(store, embedder, scope, float("inf"), _progress))
        figures["embedding_peak_mb"] = _peak()
        assert store.counts().embedded == counts.chunks
    store.close()
    return figures


def _only_decode(paths: list[Path]) -> None:
    import orjson

    for path in paths:
        with path.open("rb") as file:
            for line in file:
                try:
                    orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue


def _seconds(work: Any) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _peak() -> float:
    """The most memory that this process has had, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def _progress(stage: str, done: int, total: int) -> None:
    if done == total or done % 1024 < 128:
        print(f"{stage} {done}/{total}", file=sys.stderr)


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    baseline, megabytes = figures["orjson_seconds"], figures["megabytes"]

    def ratio(seconds: float) -> str:
        return f"{seconds / baseline:.2f}"

    yield "logs", f"{figures['logs']} ({megabytes:,.1f} MB)", ""
    yield "sessions", f"{figures['sessions']}", ""
    for reason, number in figures["skipped"].items():
        yield f"  skipped: {reason}", f"{number}", ""
    yield "  could not be read", f"{figures['failed']}", ""
    yield "broken lines", f"{figures['broken_lines']}", ""
    yield "chunks", f"{figures['chunks']}", ""
    yield "index", f"{figures['index_mb']:.1f} MB", ""
    yield "decoding alone (orjson)", f"{baseline:.2f} s, {megabytes / baseline:,.0f} MB/s", "1.00"
    reading = figures["reading_seconds"]
    yield "logs to words and exports", f"{reading:.2f} s, {megabytes / reading:,.1f} MB/s", ratio(reading)
    yield "  peak memory", f"{figures['reading_peak_mb']:.0f} MB", ""
    yield "nothing changed", f"{figures['unchanged_seconds'] * 1e3:.1f} ms", ratio(figures["unchanged_seconds"])
    yield "  for 1,000 logs", f"{figures['unchanged_seconds_a_1000_logs'] * 1e3:.1f} ms", ""
    if "embedding_seconds" in figures:
        seconds = figures["embedding_seconds"]
        yield "loading the model", f"{figures['model_seconds']:.1f} s", ratio(figures["model_seconds"])
        yield "vectors", f"{seconds:.1f} s, {figures['chunks'] / seconds:.1f} chunks/s", ratio(seconds)
        yield "  peak memory", f"{figures['embedding_peak_mb']:.0f} MB", ""


def show(figures: dict[str, Any]) -> None:
    """The figures as a table."""
    table = Table(title="Indexing; ratios to decoding the same bytes in the same run")
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("ratio", justify="right")
    for row in _rows(figures):
        table.add_row(*row)
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
