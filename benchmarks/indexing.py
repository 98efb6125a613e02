"""Speed of indexing real logs: what was read and skipped, MB/s, memory, the index's size, and what refreshes cost.

    python benchmarks/bench.py indexing CORPUS [--home DIR] [--no-vectors] [--sample N] [--json FILE]

CORPUS is a folder with ``lay_out.py`` (see its README), or one that it has laid out already (``home/``). The baseline
of the ratios, measured in the same run, is decoding every line of the same logs with orjson and keeping nothing.
Vectors are made of a sample of the chunks, and compared to what the model alone does with the same texts, sorted by
length.
"""

from __future__ import annotations

import resource
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import _many_logs
from _frame import Table, live_in, progress, seconds, takes_corpus

BASELINE_RUNS = 3
#: Tables of the index that are shown; the others have less than this share.
SHOWN_SHARE = 0.01


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    takes_corpus(parser)
    parser.add_argument("--no-vectors", action="store_true", help="only words")
    parser.add_argument("--sample", type=int, default=1500, help="how many chunks get vectors (1500)")


def measure(asked: Namespace, folder: Path) -> dict[str, Any]:
    """Index everything once, and refresh a home of many logs."""
    from indexer.safe_files import index_db

    live_in(asked.corpus, asked.home, folder)
    if index_db().exists():
        sys.exit(f"{index_db()} is there already: the first run could not be measured")
    return _indexed(0 if asked.no_vectors else asked.sample) | _many_logs.measure(folder / "many")


def _indexed(sample: int) -> dict[str, Any]:
    """Index everything once, and make vectors of `sample` chunks."""
    import logging

    from indexer.refresh import complete
    from indexer.safe_files import index_db
    from indexer.store.sqlite import Store
    from smart_fork.agents.log_readers import READERS

    logging.disable()
    paths = [file.path for agent in READERS for file in agent.discover()]
    megabytes = sum(path.stat().st_size for path in paths) / 1e6
    _only_decode(paths)  # from here on everybody finds the files in memory
    baseline = min(seconds(lambda: _only_decode(paths)) for _ in range(BASELINE_RUNS))

    store = Store(index_db())
    started = time.perf_counter()
    report = complete(store, READERS, None, patience=0.0)
    reading = time.perf_counter() - started
    memory = _peak()
    # Both before and after, since other work on the machine comes and goes.
    baseline = min(baseline, *(seconds(lambda: _only_decode(paths)) for _ in range(BASELINE_RUNS)))
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
        "tables_mb": _tables(store),
    }
    if sample:
        figures |= _embed(store, min(sample, counts.chunks))
    store.close()
    return figures


def _tables(store: Any) -> dict[str, float]:
    """MB a table, its indexes and shadow tables with it, the largest first."""
    sizes: dict[str, float] = {}
    rows = store.db.execute(
        "SELECT coalesce(tbl_name, name), sum(pgsize) / 1e6 FROM dbstat LEFT JOIN sqlite_schema USING (name) GROUP BY 1"
    )
    for name, size in rows:
        table = next((whole for whole in ("chunk_words", "session_words", "vectors") if whole in name), name)
        sizes[table] = sizes.get(table, 0.0) + size
    return dict(sorted(sizes.items(), key=lambda item: -item[1]))


class _Sample:
    """A store in which so many chunks wait and no more."""

    def __init__(self, store: Any, number: int) -> None:
        self._store = store
        self._left = number

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def waiting(self, first_parts: Any, limit: int, wanted: Any = ()) -> Any:
        rows = self._store.waiting(first_parts, min(limit, self._left), wanted)
        self._left -= len(rows)
        return rows


def _embed(store: Any, number: int) -> dict[str, Any]:
    """The stage against the model alone, on the same chunks and in the same precision."""
    import torch

    from indexer.embedder import BATCH, SentenceTransformerEmbedder
    from indexer.log_changes import Report
    from indexer.pipeline import embed_waiting

    embedder = SentenceTransformerEmbedder()
    loading = seconds(lambda: embedder.embed(["warm", "warmer"]))
    model = embedder._load()  # noqa: SLF001 - what is below the stage is what is compared
    texts = sorted({text for _, text in store.waiting((), number)}, key=len)
    bfloat16 = embedder.precision == "bfloat16"

    def alone() -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bfloat16):
            model.encode(texts, batch_size=BATCH, normalize_embeddings=True, show_progress_bar=False)

    before = seconds(alone)
    report = Report()
    stage = seconds(lambda: embed_waiting(_Sample(store, number), embedder, report, progress=progress))  # type: ignore[arg-type]
    assert report.embedded >= number
    return {
        "model_seconds": loading,
        "precision": embedder.precision,
        "embedded": report.embedded,
        "embedding_seconds": stage,
        "model_alone_seconds": (before + seconds(alone)) / 2,
        "embedding_peak_mb": _peak(),
    }


def _only_decode(paths: list[Path]) -> None:
    import orjson

    for path in paths:
        with path.open("rb") as file:
            for line in file:
                try:
                    orjson.loads(line)
                except orjson.JSONDecodeError:
                    continue


def _peak() -> float:
    """The most memory that this process has had, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 1e6 if sys.platform == "darwin" else peak / 1e3


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield label, figure, ratio."""
    baseline, megabytes = figures["orjson_seconds"], figures["megabytes"]
    yield "logs", f"{figures['logs']} ({megabytes:,.1f} MB)", ""
    yield "sessions", f"{figures['sessions']}", ""
    for reason, number in figures["skipped"].items():
        yield f"  skipped: {reason}", f"{number}", ""
    yield "  could not be read", f"{figures['failed']}", ""
    yield "broken lines", f"{figures['broken_lines']}", ""
    yield "chunks", f"{figures['chunks']}", ""
    index = sum(figures["tables_mb"].values())
    yield "index", f"{index:.1f} MB", f"{index / megabytes:.3f} of the logs"
    for name, size in figures["tables_mb"].items():
        if size >= SHOWN_SHARE * index:
            yield f"  {name}", f"{size:.1f} MB", f"{size / index:.0%} of the index"
    yield "decoding alone (orjson)", f"{baseline:.2f} s, {megabytes / baseline:,.0f} MB/s", "1.00"
    reading = figures["reading_seconds"]
    speed = f"{reading:.2f} s, {megabytes / reading:,.1f} MB/s"
    yield "logs to words and exports", speed, f"{baseline / reading:.3f} of decoding"
    yield "  peak memory", f"{figures['reading_peak_mb']:.0f} MB", ""
    listing, unchanged = figures["listing_seconds"], figures["unchanged_many_seconds"]
    yield f"listing {figures['many_logs']:,} small logs", f"{listing * 1e3:.1f} ms", ""
    yield "  nothing changed", f"{unchanged * 1e3:.1f} ms", f"{unchanged / listing:.2f} of listing"
    yield f"  {figures['grown_log_megabytes']:.1f} MB log grown", f"{figures['grown_seconds'] * 1e3:.1f} ms", ""
    if "embedding_seconds" in figures:
        stage, alone = figures["embedding_seconds"], figures["model_alone_seconds"]
        yield "loading the model", f"{figures['model_seconds']:.1f} s, {figures['precision']}", ""
        yield "the model alone", f"{figures['embedded'] / alone:.1f} chunks/s", "1.00"
        yield "vectors", f"{figures['embedded'] / stage:.1f} chunks/s", f"{alone / stage:.2f} of the model"
        yield "  peak memory", f"{figures['embedding_peak_mb']:.0f} MB", ""


def tables(figures: dict[str, Any]) -> Iterator[Table]:
    """Yield the figures with their ratios to what was measured in the same run."""
    yield Table(("", "", "ratio"), _rows(figures))
