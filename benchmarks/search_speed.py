"""Speed of a search in indexes of 10,000 to 500,000 chunks, beside the least that any search must do.

    python benchmarks/bench.py search_speed [--quick] [--json FILE]

A warm search is compared with the embedding of its query and with an exact scan of float32 vectors in memory, a
question that is put in five phrasings with the same in one (embedding and search, processor time, in turn), a cold
`smart-fork find` with a process that imports NumPy and apsw and asks the same index for the same words. Absolute times
belong to the machine; the ratios are what to look at. --quick leaves out 500,000 chunks and most queries.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from _frame import Part, Table, environment_of, seconds
from _served import StdioClient
from _synthetic import Question, SyntheticIndex

from indexer.default_embedder import LightEmbedder
from indexer.one_thread_numpy import np
from indexer.project import Project
from indexer.store.sqlite import Store
from smart_fork.finding.query import Query, terms_of
from smart_fork.finding.search import search

SIZES, QUICK_SIZES, COLD_SIZE = (10_000, 100_000, 500_000), (10_000, 100_000), 50_000
NEIGHBOURS = 50
#: What is measured at each size.
SEARCHES = {
    "embedding_ms": "embedding of the query",
    "scoped_ms": "search in a repository",
    "global_ms": "search in all",
    "nearest_ms": "of it the nearest vectors",
    "scan_ms": "exact scan of all vectors",
}
BASELINE = """
import sys
import apsw, numpy
db = apsw.Connection(sys.argv[1], flags=apsw.SQLITE_OPEN_READONLY)
found = db.execute("SELECT rowid, bm25(chunk_words, 0.0, 1.0) FROM chunk_words WHERE chunk_words MATCH ? "
                   "ORDER BY 2 LIMIT 400", (sys.argv[2],)).fetchall()
print(len(found))
"""


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--quick", action="store_true", help="without 500,000 chunks, in about a minute")


def measure(asked: Namespace, folder: Path) -> dict[str, Any]:
    """Build indexes, and search them."""
    sizes, queries = (QUICK_SIZES, 200) if asked.quick else (SIZES, 1000)
    figures: dict[str, Any] = {"sizes": []}
    embedder = LightEmbedder()
    store = Store(folder / "state/index.db")
    index = SyntheticIndex(store, folder / "code", sizes[-1], embedder.model)
    for size in sorted({*sizes, COLD_SIZE}):
        built = seconds(lambda size=size: index.grow(size))  # type: ignore[misc]
        if size == COLD_SIZE:
            figures["cold"] = _cold(index, store, folder)
            figures["memory_mb"] = _memory(index, folder)
        else:
            figures["sizes"].append({"chunks": size, "build_s": built, **_warm(index, store, embedder, queries)})
    store.close()
    return figures


def _warm(index: SyntheticIndex, store: Store, embedder: LightEmbedder, count: int) -> dict[str, Any]:
    """Searches in one process, each after the embedding of its query; every other one over all projects."""
    names = ("embedding", "scan", "scoped", "global", "nearest", "one_phrasing", "also")
    times: dict[str, list[float]] = {name: [] for name in names}
    recalls = []
    for number, ((intent, *further), project, (vector, *near)) in enumerate(index.queries(count)):
        times["embedding"].append(seconds(lambda intent=intent: embedder.embed([intent])))
        place = None if number % 2 else project
        times["global" if number % 2 else "scoped"].append(
            seconds(lambda place=place, intent=intent, vector=vector: _search(store, place, intent, vector))
        )
        if number % 5 == 0:
            for name, also in (("one_phrasing", 0), ("also", len(further))):
                asked = Question((intent, *further[:also]), project, (vector, *near[:also]))
                times[name].append(_asked(store, asked, embedder))
        if number % 10 == 1:
            everything = store.scope(None, ("claude",), automated=False)
            started = time.perf_counter()
            best = _exact(index, np.frombuffer(vector, np.float32))
            between = time.perf_counter()
            found = {hit.row for hit in store.similarities([vector], everything).best(NEIGHBOURS)}
            times["scan"].append(between - started)
            times["nearest"].append(time.perf_counter() - between)
            recalls.append(len(found & best) / NEIGHBOURS)
    bytes_of_vectors = store.db.execute("SELECT sum(length(vectors)) FROM vectors_vector_chunks00").get
    return {
        **{f"{name}_ms": _percentiles(values) for name, values in times.items()},
        "recall": float(np.mean(recalls)),
        "bytes_a_vector": bytes_of_vectors / index.chunks,
        "bytes_a_chunk": store.path.stat().st_size / index.chunks,
    }


def _search(store: Store, project: Project | None, intent: str, vector: bytes) -> None:
    scope = store.scope(project, ("claude",), automated=False)
    found = search(store, Query(intent, scope, 5, project is None), lambda _: [vector])
    assert found.mode == "hybrid", found.error


def _asked(store: Store, question: Question, embedder: LightEmbedder) -> float:
    """The processor's seconds for a question in all its phrasings, in its repository: embedding and search."""

    def embed(texts: Sequence[str]) -> Sequence[bytes]:
        embedder.embed(texts)
        return question.vectors[: len(texts)]

    started = time.process_time()
    scope = store.scope(question.project, ("claude",), automated=False)
    intent, *also = question.phrasings
    found = search(store, Query(intent, scope, 5, also=tuple(also)), embed)
    assert found.mode == "hybrid", found.error
    return time.process_time() - started


def _exact(index: SyntheticIndex, query: Any) -> set[int]:
    """The nearest chunks in full precision."""
    nearest = np.argpartition(-(index.vectors @ query), NEIGHBOURS)[:NEIGHBOURS]
    return {row + 1 for row in nearest.tolist()}


def _cold(index: SyntheticIndex, store: Store, folder: Path, runs: int = 7) -> dict[str, float]:
    """Whole processes, ours and the baseline in turn; the first round only warms the caches."""
    times: tuple[list[float], list[float]] = ([], [])
    for (intent, *_), project, _ in index.queries(runs + 1):
        (part,) = store.scope(project, ("claude",), automated=False).parts
        words = f"part: (p{part}) AND -part: ({' OR '.join(terms_of(intent))})"
        ours = [sys.executable, "-m", "smart_fork", "find", "--json", "--project", project.root, "--", intent]
        baseline = [sys.executable, "-c", BASELINE, str(store.path), words]
        for taken, command in zip(times, (ours, baseline), strict=True):
            started = time.perf_counter()
            done = subprocess.run(command, env=_environment(folder), check=True, capture_output=True, text=True)
            taken.append(time.perf_counter() - started)
            if command is ours:
                assert json.loads(done.stdout)["search_mode"] == "hybrid", done.stdout
    ours_s, baseline_s = (float(np.median(seconds[1:])) for seconds in times)
    return {"chunks": index.chunks, "find_s": ours_s, "baseline_s": baseline_s, "ratio": ours_s / baseline_s}


def _memory(index: SyntheticIndex, folder: Path) -> dict[str, float]:
    """Resident memory of the MCP server before and after its first search."""
    (((intent, *_), project, _),) = index.queries(1)
    client = StdioClient([sys.executable, "-m", "smart_fork", "mcp"], _environment(folder))
    client.start()
    client.request("tools/list")
    before = client.resident()
    asked = {"intent": intent, "project_path": project.root}
    answer = client.request("tools/call", name="smart_fork", arguments=asked)["structuredContent"]
    assert answer["search_mode"] == "hybrid", answer
    after = client.resident()
    client.close()
    return {"chunks": index.chunks, "mcp_before": before, "mcp_after": after}


def _environment(folder: Path) -> dict[str, str]:
    """Return that of a home without logs, and the index that was built."""
    (folder / "home").mkdir(exist_ok=True)
    return environment_of(folder / "home", folder / "state") | {"SMART_FORK_BACKGROUND": "0"}


def _percentiles(seconds: Sequence[float]) -> dict[str, float]:
    p50, p95 = np.percentile(np.array(seconds[1:] or seconds) * 1000, (50, 95)).tolist()
    return {"p50": p50, "p95": p95}


def tables(figures: dict[str, Any]) -> Iterator[Part]:
    """Yield warm searches by size, with their ratios; then a cold process and the memory of the server."""
    sizes = figures.get("sizes", [])

    def cells(key: str, cell: Callable[[Any], str]) -> list[str]:
        return [cell(one[key]) if one.get(key) is not None else "" for one in sizes]

    rows = [[label, *cells(key, _milliseconds)] for key, label in SEARCHES.items()]
    for label, above, below in (
        ("ratio: search in a repository / embedding", "scoped_ms", "embedding_ms"),
        ("ratio: search in all / exact scan", "global_ms", "scan_ms"),
        ("ratio: nearest vectors / exact scan", "nearest_ms", "scan_ms"),
        ("ratio: five phrasings / one, embedding and search, processor time", "also_ms", "one_phrasing_ms"),
    ):
        both = [(one.get(above), one.get(below)) for one in sizes]
        rows.append([label, *(f"{up['p50'] / down['p50']:.2f}" if up and down else "" for up, down in both)])
    rows += [
        ["share of the truly nearest that are found", *cells("recall", "{:.3f}".format)],
        ["bytes a vector", *cells("bytes_a_vector", "{:,.0f}".format)],
        ["bytes a chunk, with words and text", *cells("bytes_a_chunk", "{:,.0f}".format)],
    ]
    header = ["p50 (p95)", *(f"{one['chunks']:,} chunks" for one in sizes)]
    yield "Synthetic indexes; one process, warm."
    yield Table(header, [row for row in rows if any(row[1:])])
    if cold := figures.get("cold"):
        told = f"A cold `smart-fork find` over {cold['chunks']:,} chunks takes {cold['find_s']:.2f} s"
        yield f"{told}: {cold['ratio']:.2f} times a process that loads NumPy and SQLite and asks for the words."
    if memory := figures.get("memory_mb"):
        told = f"The MCP server over {memory['chunks']:,} chunks has {memory['mcp_before']:.0f} MB resident"
        yield f"{told} before its first search and {memory['mcp_after']:.0f} MB after it."


def _milliseconds(times: dict[str, float]) -> str:
    return f"{times['p50']:.1f} ({times['p95']:.1f}) ms" if "p95" in times else f"{times['p50']:.1f} ms"
