"""First answers over a home that is still being embedded: how often is a wrong one sure, and another one right later?

    python benchmarks/first_answers.py CORPUS [--questions 50] [--seed 1] [--known INDEX ...] [--json FILE]

CORPUS is as for ``retrieval.py``. Labelled questions are asked in their project, each of them

* by a command that has just read all logs: ``slow``, where there was time for one batch of vectors, and ``fast``, where
  there was time for the passages that exchanges begin with as well;
* by a service that has embedded a tenth to three quarters of all passages so far;
* again when everything is embedded ("later").

A score of 0.5 or more is sure. ``--known`` names indexes of which vectors are taken, so that nothing is embedded twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from mixed_agents import Remembered, own_copy
from rich.console import Console
from rich.table import Table

#: So much of all passages has the service embedded when it is asked.
SHARES = (0.1, 0.25, 0.5, 0.75)
#: Time for one batch, and for all that a first question waits for where vectors cost nothing.
SLOW, FAST = 1e-6, 60.0
SURE = 0.5


class First(NamedTuple):
    """The first result of an answer: its score and whether it is right; `early` is what the answer says of that."""

    score: float
    right: bool
    early: str


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--questions", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--known", type=Path, nargs="*", default=(), help="indexes of which vectors are taken")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    asked = parser.parse_args()
    with own_copy(asked.corpus) as (laid_out, state):
        lines = (laid_out / "queries.jsonl").read_text(encoding="utf-8").splitlines()
        queries = random.Random(asked.seed).sample(list(map(json.loads, lines)), min(asked.questions, len(lines)))
        embedder = Remembered(asked.known)
        embedder.embed([query["query"] for query in queries])
        figures = measure(queries, embedder, state)
    show(figures)
    if asked.json:
        asked.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measure(queries: Sequence[Mapping[str, Any]], embedder: Remembered, state: Path) -> dict[str, Any]:
    """The figures of each way to ask."""
    _embed(state / "words", embedder, 0.0)
    shutil.copytree(state / "words", state / "service")
    ways: dict[str, list[First]] = {
        "slow": [_fresh(query, embedder, state, SLOW) for query in queries],
        "fast": [_fresh(query, embedder, state, FAST) for query in queries],
    }
    for share in SHARES:
        _embed(state / "service", embedder, share)
        ways[f"service {share:.0%}"] = [_served(query, embedder) for query in queries]
    _embed(state / "service", embedder, 1.0)
    later = [_served(query, embedder) for query in queries]
    return {
        "questions": len(queries),
        "ways": {way: _figures(now, later) for way, now in [*ways.items(), ("later", later)]},
    }


def _fresh(query: Mapping[str, Any], embedder: Remembered, state: Path, seconds: float) -> First:
    """The first result over words alone, of a process that may embed for so long."""
    shutil.rmtree(state / "fresh", ignore_errors=True)
    shutil.copytree(state / "words", state / "fresh")
    os.environ["SMART_FORK_HOME"] = str(state / "fresh")
    return _first(query, {"embedder": embedder, "embed_seconds": seconds, "unfinished": lambda _: None})


def _served(query: Mapping[str, Any], embedder: Remembered) -> First:
    """The first result of a service that is still embedding."""
    from indexer.shared_embedder import SharedEmbedder

    indexer = SimpleNamespace(doing="embedding 1/2", run_soon=lambda *_: None, put_first=lambda *_: None)
    return _first(query, {"embedder": SharedEmbedder(embedder, 60, indexer)})


def _first(query: Mapping[str, Any], engine: dict[str, Any]) -> First:
    from smart_fork.finding.request import FindRequest
    from smart_fork.finding.upkeep import Engine
    from tests.smart_fork.asking import find

    request = FindRequest(query["query"], agent_type="both", include_automated=True, include_snippets=False)
    answer = find(request, Engine(**engine), query["project"]).as_json()
    gold = {one["session_id"] for one in query["gold"]}
    for hit in answer["results"]:
        right = bool(gold & {hit["session_id"], *hit["lineage"]["others"]})
        return First(hit["score"], right, answer.get("early_notice", ""))
    return First(0.0, right=False, early="")


def _embed(home: Path, embedder: Remembered, share: float) -> None:
    """The index in this home, with vectors for so much of its passages, in the order of a service that nobody asks."""
    from indexer.changes import Report, changed_logs
    from indexer.files import index_db
    from indexer.pipeline import embed_waiting, read_logs
    from indexer.store.sqlite import SqliteStore
    from smart_fork.agents.readers import READERS

    os.environ["SMART_FORK_HOME"] = str(home)
    store, report = SqliteStore(index_db()), Report()
    read_logs(store, READERS, changed_logs(store, READERS, report), report)
    while (counts := store.counts()).embedded < share * counts.chunks:
        embed_waiting(store, embedder, report, deadline=0.0)
    store.close()
    print(f"{counts.embedded} of {counts.chunks} passages have their vector", file=sys.stderr)


def _figures(now: Sequence[First], later: Sequence[First]) -> dict[str, Any]:
    sure = [(first, then) for first, then in zip(now, later, strict=True) if first.score >= SURE]
    wrong = [then for first, then in sure if not first.right]
    return {
        "right first": sum(first.right for first in now),
        "mean score": round(sum(first.score for first in now) / len(now), 3),
        "sure": len(sure),
        "sure and wrong": len(wrong),
        "right later": sum(then.right for then in wrong),
        "right and sure later": sum(then.right and then.score >= SURE for then in wrong),
        "says that it is early": sum(bool(first.early) for first in now),
    }


def show(figures: Mapping[str, Any]) -> None:
    """The figures as a table."""
    names = list(next(iter(figures["ways"].values())))
    table = Table("asked", *names, title=f"{figures['questions']} labelled questions, in their project")
    for row in _rows(figures):
        table.add_row(*row)
    Console(width=130).print(table)
    print('"right later" and "right and sure later" are of those that are sure and wrong now.')


def _rows(figures: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    for way, one in figures["ways"].items():
        yield (way, *map(str, one.values()))


if __name__ == "__main__":
    main()
