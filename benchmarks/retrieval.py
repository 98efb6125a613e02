"""Retrieval quality on labelled queries over real sessions: hit@1, hit@5 and MRR, scoped and global, by kind and mode.

    python benchmarks/bench.py retrieval CORPUS [--home DIR] [--also FILE] [--json FILE]

CORPUS is a folder with ``lay_out.py`` (see its README), or one that it has laid out already (``home/`` and
``queries.jsonl``). The index is built where it is missing, in ``--home`` or in a temporary folder. With ``--also``,
lines of ``{"id": …, "also": [texts]}``, each query is asked again together with its further phrasings.
"""

from __future__ import annotations

import json
import time
from argparse import ArgumentParser, Namespace
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from _frame import RATES, Part, Table, live_in, progress, queries_of, rates_of, takes_corpus

MODES = ("lexical", "vector", "hybrid")
DEPTH = 50


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    takes_corpus(parser)
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")


class Labelled(NamedTuple):
    """An index of the corpus, its labelled queries with their further phrasings (`also`), and vectors by text."""

    store: Any
    queries: list[dict[str, Any]]
    vectors: dict[str, bytes]

    @property
    def again(self) -> bool:
        """Return True if there are further phrasings."""
        return any(query["also"] for query in self.queries)

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Return the texts' vectors, for `smart_fork.finding.search.Embed`."""
        return [self.vectors[text] for text in texts]

    def scope(self, project: str | None) -> Any:
        """Return the scope of a project's directory, or everything."""
        from indexer.project import project_of
        from smart_fork.agents.log_readers import READERS

        place = project_of(project) if project is not None else None
        return self.store.scope(place, READERS.names, automated=True)


def opened(asked: Namespace, folder: Path) -> Labelled:
    """Return the index of a corpus, completed first where it is not."""
    from indexer.default_embedder import configured_embedder
    from indexer.log_changes import Report, changed_logs
    from indexer.pipeline import embed_waiting, read_logs
    from indexer.safe_files import index_db
    from indexer.store.sqlite import Store
    from smart_fork.agents.log_readers import READERS

    laid_out = live_in(asked.corpus, asked.home, folder)
    store, embedder, report = Store(index_db()), configured_embedder(), Report()
    read_logs(store, READERS, changed_logs(store, READERS, report), report)
    embed_waiting(store, embedder, report, progress=progress)
    lines = asked.also.read_text(encoding="utf-8").splitlines() if asked.also else []
    further = {one["id"]: one["also"] for one in map(json.loads, lines)}
    queries = [query | {"also": tuple(further.get(query["id"], ()))} for query in queries_of(laid_out)]
    texts = list(dict.fromkeys(text for query in queries for text in (query["query"], *query["also"])))
    made = [vector.tobytes() for vector in embedder.embed(texts)]
    return Labelled(store, queries, dict(zip(texts, made, strict=True)))


def measure(asked: Namespace, folder: Path) -> dict[str, Any]:
    """Ask every query in each mode, in scope and global."""
    from smart_fork.finding import search
    from smart_fork.finding.query import Query

    labelled = opened(asked, folder)
    ranks: dict[str, dict[str, list[int]]] = defaultdict(lambda: defaultdict(list))
    ways = [(mode, again) for again in (False, True)[: 1 + labelled.again] for mode in MODES]
    started = time.perf_counter()
    for query in labelled.queries:
        gold = {answer["session_id"] for answer in query["gold"]}
        for place, project in (("scoped", query["project"]), ("global", None)):
            scope = labelled.scope(project)
            for mode, again in ways:
                also = query["also"] if again else ()
                question = Query(query["query"], scope, DEPTH, everywhere=project is None, also=also)
                hits = search._search(  # noqa: SLF001 - one mode at a time, without the chain
                    labelled.store, question, labelled.embed, mode, None
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
    """Return True if a session that answers is in the project: some old logs do not say where they were written."""
    scope = labelled.scope(query["project"])
    found = (labelled.store.session(answer["agent"], answer["session_id"]) for answer in query["gold"])
    return any(row is not None and row.cwd and row.part in scope.parts for row in found)


def _figures(ranks: list[int]) -> dict[str, float]:
    return {"queries": len(ranks)} | {name: round(rate, 3) for name, rate in rates_of(ranks).items()}


def tables(figures: dict[str, Any]) -> Iterator[Part]:
    """Yield the hit rates."""
    rows = [
        [*way.split(maxsplit=1), kind, f"{one['queries']}", *(f"{one[name]:.3f}" for name in RATES)]
        for way, kinds in figures["figures"].items()
        for kind, one in sorted(kinds.items())
    ]
    yield (
        f"{figures['queries']} labelled queries, asked in their project (scoped) and everywhere (global).\n"
        f"{figures['reachable']} can be answered in their project; no log of the others says where it was written.\n"
        "`also` is with the queries' further phrasings."
    )
    yield Table(("scope", "mode", "kind", "queries", "hit@1", "hit@5", "MRR"), rows, right_from=3)
