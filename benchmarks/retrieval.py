"""Retrieval quality on labelled queries over real sessions: hit@1, hit@5 and MRR, scoped and global, by kind and mode.

    python benchmarks/retrieval.py CORPUS [--home DIR] [--also FILE] [--json FILE]

CORPUS is a folder with ``lay_out.py`` (see its README), or one that it has laid out already (``home/`` and
``queries.jsonl``). The index is built where it is missing, in ``--home`` or in a temporary folder. With ``--also``,
lines of ``{"id": …, "also": [texts]}``, each query is asked again together with its further phrasings.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

MODES = ("lexical", "vector", "hybrid")
DEPTH = 50
RATES = ("hit@1", "hit@5", "mrr")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    with home_of(arguments.corpus, arguments.home) as laid_out:
        figures = measure(opened(laid_out, arguments.also))
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


@contextmanager
def home_of(corpus: Path, state: Path | None) -> Iterator[Path]:
    """The laid-out corpus as this process's home; our own state in `state`, or forgotten afterwards."""
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        laid_out = lay_out(corpus.resolve(), Path(folder))
        os.environ["HOME"] = str(laid_out / "home")
        os.environ["SMART_FORK_HOME"] = str((state or Path(folder) / "state").resolve())
        yield laid_out


def lay_out(corpus: Path, folder: Path) -> Path:
    """The laid-out corpus: `corpus` itself, or what its script makes of it in `folder`."""
    if (corpus / "home").is_dir():
        return corpus
    if not (corpus / "lay_out.py").is_file():
        sys.exit(f"{corpus} has neither home/ nor lay_out.py: not a corpus")
    subprocess.run([sys.executable, str(corpus / "lay_out.py"), str(folder / "corpus")], check=True, stdout=sys.stderr)
    return folder / "corpus"


class Labelled(NamedTuple):
    """An index of the corpus, its labelled queries with their further phrasings (`also`), and vectors by text."""

    store: Any
    queries: list[dict[str, Any]]
    vectors: dict[str, bytes]

    @property
    def again(self) -> bool:
        """Whether there are further phrasings."""
        return any(query["also"] for query in self.queries)

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """As `smart_fork.finding.search.Embed`."""
        return [self.vectors[text] for text in texts]

    def scope(self, project: str | None) -> Any:
        """The scope of a project's directory, or everything."""
        from indexer.project import project_of
        from smart_fork.agents.readers import READERS

        place = project_of(project) if project is not None else None
        return self.store.scope(place, READERS.names, automated=True)


def opened(laid_out: Path, phrasings: Path | None = None) -> Labelled:
    """The index, completed first where it is not."""
    from indexer.changes import Report, changed_logs
    from indexer.embedding import configured_embedder
    from indexer.files import index_db
    from indexer.pipeline import embed_waiting, read_logs
    from indexer.store.sqlite import SqliteStore
    from smart_fork.agents.readers import READERS

    store, embedder, report = SqliteStore(index_db()), configured_embedder(), Report()
    read_logs(store, READERS, changed_logs(store, READERS, report), report)
    embed_waiting(store, embedder, report, progress=_progress)
    queries = [json.loads(line) for line in (laid_out / "queries.jsonl").read_text(encoding="utf-8").splitlines()]
    lines = phrasings.read_text(encoding="utf-8").splitlines() if phrasings else []
    further = {one["id"]: one["also"] for one in map(json.loads, lines)}
    queries = [query | {"also": tuple(further.get(query["id"], ()))} for query in queries]
    texts = list(dict.fromkeys(text for query in queries for text in (query["query"], *query["also"])))
    made = [vector.tobytes() for vector in embedder.embed(texts)]
    return Labelled(store, queries, dict(zip(texts, made, strict=True)))


def measure(labelled: Labelled) -> dict[str, Any]:
    """Ask every query in each mode, in scope and global."""
    from smart_fork.finding import search
    from smart_fork.finding.query import Query
    from smart_fork.finding.search import SecondLook

    ranks: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    ways = [(mode, again) for again in (False, True)[: 1 + labelled.again] for mode in MODES]
    started = time.perf_counter()
    for query in labelled.queries:
        gold = {answer["session_id"] for answer in query["gold"]}
        for place, project in (("scoped", query["project"]), ("global", None)):
            scope = labelled.scope(project)
            for mode, again in ways:
                also = query["also"] if again else ()
                asked = Query(query["query"], scope, DEPTH, everywhere=project is None, also=also)
                hits = search._search(  # noqa: SLF001 - one mode at a time, without the chain
                    labelled.store, asked, labelled.embed, mode, SecondLook(None)
                ).hits
                rank = next((n for n, hit in enumerate(hits, 1) if gold & {row.session_id for row in hit.family}), 0)
                for kind in ("all", query["kind"]):
                    ranks[f"{place} {mode}{' also' * again}"][kind].append(rank)
    seconds = (time.perf_counter() - started) / (len(labelled.queries) * 2 * len(ways))
    return {
        "queries": len(labelled.queries),
        "reachable": sum(_is_reachable(labelled, query) for query in labelled.queries),
        "seconds_a_search": round(seconds, 4),
        "figures": {way: {kind: _figures(values) for kind, values in kinds.items()} for way, kinds in ranks.items()},
    }


def _is_reachable(labelled: Labelled, query: Mapping[str, Any]) -> bool:
    """Whether a session that answers is in the project at all: some old logs do not say where they were written."""
    scope = labelled.scope(query["project"])
    found = (labelled.store.session(answer["agent"], answer["session_id"]) for answer in query["gold"])
    return any(row is not None and row.cwd and row.part in scope.parts for row in found)


def _figures(ranks: list[int]) -> dict[str, float]:
    count = len(ranks)
    return {
        "queries": count,
        "hit@1": round(sum(rank == 1 for rank in ranks) / count, 3),
        "hit@5": round(sum(0 < rank <= 5 for rank in ranks) / count, 3),
        "mrr": round(sum(1 / rank for rank in ranks if rank) / count, 3),
    }


def _progress(stage: str, done: int, total: int) -> None:
    if done == total or done % 1024 == 0:
        print(f"{stage} {done}/{total}", file=sys.stderr)


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    all_figures = figures["figures"]
    ways = [way for way in all_figures if not way.endswith(" also")]
    for way in sorted(ways, key=lambda way: (way.split()[0] != "scoped", MODES.index(way.split()[1]))):
        again = all_figures.get(f"{way} also", {})
        for kind, one in sorted(all_figures[way].items()):
            rates = [one, *([again[kind]] if again else [])]
            yield (*way.split(), kind, str(one["queries"]), *(f"{r[name]:.3f}" for r in rates for name in RATES))


def show(figures: dict[str, Any]) -> None:
    """The figures as a table."""
    milliseconds = figures["seconds_a_search"] * 1000
    table = Table(title=f"{figures['queries']} labelled queries; {milliseconds:.1f} ms a search, query embedded before")
    also = any(way.endswith(" also") for way in figures["figures"])
    for name in ("scope", "mode", "kind"):
        table.add_column(name)
    for name in ("queries", "hit@1", "hit@5", "MRR", *(("also: hit@1", "hit@5", "MRR") if also else ())):
        table.add_column(name, justify="right")
    for row in _rows(figures):
        table.add_row(*row, end_section=row[2] == "paraphrase")
    Console(width=100).print(table)
    print(f"{figures['reachable']} of the queries have their answer in their project; of the others no log says where.")


if __name__ == "__main__":
    main()
