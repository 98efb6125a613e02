"""How often ``--at match`` names an exchange at whose end a fork knows all that is asked, by labels made by reading.

    python benchmarks/fork_point.py CORPUS LABELS [--home DIR] [--also FILE] [--misses] [--json FILE]

CORPUS, ``--home`` and ``--also`` as for ``retrieval.py``. LABELS is a file with one JSON object a line:

    {"id": "q1", "session_id": "0b7e…", "serves": [3, 4]}

``id`` is that of a query of the corpus, ``session_id`` one of its sessions (the first where it is left out), and
``serves`` the numbers of the exchanges (from 0; one begins with each prompt) at whose end all that is asked is known,
and known rightly: of a question in two parts those from the second on, and where a first answer was wrong those from
the one on that mends it, as long as the session stays with the matter. Without LABELS there is nothing to measure,
which it says.

It prints the share of named exchanges that serve: as it is, with the worths fitted anew (cross-validated: the questions
of one session are never in two folds), with each part left out, and for an exchange taken by chance, the last one, and
that of the best passage.
"""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from retrieval import Labelled, home_of, labels_of, of_queries, opened
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize

FOLDS, DIVISIONS = 5, 10
#: Keeps the worths small where the labels say little.
PENALTY = 0.3


class Question(NamedTuple):
    """One question to one session: what speaks for each exchange (n, parts), and which of them serve (n).

    `passage` is the exchange of the best passage, `named` the one that is named now.
    """

    query: str
    session: str
    exchanges: tuple[int, ...]
    parts: Any
    serves: Any
    passage: int
    named: int


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")
    parser.add_argument("--misses", action="store_true", help="print each question whose named exchange does not serve")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    labels = labels_of(arguments.labels)
    with home_of(arguments.corpus, arguments.home) as laid_out:
        labelled = opened(laid_out, arguments.also)
        ways = {"": False} | ({"also ": True} if labelled.again else {})
        asked = {way: questions(labelled, labels, again=again) for way, again in ways.items()}
    figures = {f"{way}{name}": value for way, some in asked.items() for name, value in measure(some).items()}
    show(figures, asked[""], misses=arguments.misses)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def questions(labelled: Labelled, labels: Sequence[dict[str, Any]], *, again: bool) -> list[Question]:
    """What the index knows of each labelled question."""
    queries = {query["id"]: query for query in labelled.queries}
    found = []
    for label in of_queries(labels, labelled.queries):
        query = queries[label["id"]]
        row = labelled.store.session(label["agent"], label["session_id"])
        if row is not None and (one := _question(labelled, query, row, label["serves"], again=again)):
            found.append(one)
    return found


def _question(
    labelled: Labelled, query: dict[str, Any], row: Any, serves: Collection[int], *, again: bool
) -> Question | None:
    from indexer.store.base import Scope
    from smart_fork.finding import evidence, ranking
    from smart_fork.finding.query import Query

    seen: dict[str, Any] = {}

    def looked_at(*given: Any) -> Any:
        seen["best"] = max(given[0], key=lambda place: _strength(place, *given[1:3]))
        seen["parts"] = ranking.exchange_parts(*given)
        seen["named"] = ranking.fork_point(*given)
        return seen["named"]

    also = query["also"] if again else ()
    asked = Query(query["query"], Scope((row.part,), session=row.row), 1, everywhere=True, also=also)
    before, evidence.fork_point = evidence.fork_point, looked_at
    try:
        evidence.gather(labelled.store, asked, labelled.embed(asked.phrasings), words=True)
    finally:
        evidence.fork_point = before
    if not seen:
        return None
    exchanges = tuple(sorted(seen["parts"]))
    rows = [seen["parts"][exchange] for exchange in exchanges]
    right = np.array([exchange in serves for exchange in exchanges], float)
    best, named = (exchanges.index(seen[which].exchange) for which in ("best", "named"))
    return Question(query["id"], row.session_id, exchanges, np.array(rows, float), right, best, named)


def _strength(place: Any, words: Sequence[Any], similar: Sequence[Any]) -> float:
    most = [max(scores.values(), default=0.0) or 1.0 for scores in words]
    return sum(
        scores.get(place.chunk, 0.0) / top + cosines.get(place.position, 0.0)
        for scores, top, cosines in zip(words, most, similar, strict=True)
    )


def measure(asked: Sequence[Question]) -> dict[str, float]:
    """The share of questions for which the exchange serves that each way takes."""
    from smart_fork.finding.ranking import PointParts

    every = range(len(PointParts._fields))
    figures = {
        "questions": len(asked),
        "by chance": _mean([one.serves.mean() for one in asked]),
        "the last": _mean([one.serves[-1] for one in asked]),
        "the best passage's": _mean([one.serves[one.passage] for one in asked]),
        "as it is": _mean([one.serves[one.named] for one in asked]),
        "fitted anew": cross_validated(asked, every),
    }
    for left_out, name in enumerate(PointParts._fields):
        figures[f"fitted without {name}"] = cross_validated(asked, [part for part in every if part != left_out])
    worth = fit(asked, every)
    return figures | {
        f"worth of {name}": round(float(value), 2) for name, value in zip(PointParts._fields, worth, strict=True)
    }


def _mean(values: Sequence[float]) -> float:
    return round(float(np.mean(values)), 3)


def fit(asked: Sequence[Question], used: Sequence[int]) -> Any:
    """The worth of each part: a conditional logit whose choice is any of the exchanges that serve."""

    def loss(worth: Any) -> float:
        total = PENALTY * float(worth @ worth) / 2
        for one in asked:
            if one.serves.any():
                values = one.parts[:, used] @ worth
                chance = np.exp(values - values.max())
                total -= float(np.log(chance @ one.serves / chance.sum()))
        return total

    return minimize(loss, np.ones(len(used)), method="L-BFGS-B").x


def cross_validated(asked: Sequence[Question], used: Sequence[int]) -> float:
    """The share that serves where the worths were fitted to other sessions."""
    right = []
    for division in range(DIVISIONS):
        order = sorted({one.session for one in asked})
        random.Random(division).shuffle(order)
        fold = {session: number % FOLDS for number, session in enumerate(order)}
        for number in range(FOLDS):
            worth = fit([one for one in asked if fold[one.session] != number], used)
            for one in asked:
                if fold[one.session] == number:
                    values = one.parts[:, used] @ worth
                    right.append(one.serves[np.flatnonzero(values == values.max())[-1]])
    return _mean(right)


def show(figures: dict[str, float], asked: Sequence[Question], *, misses: bool) -> None:
    """The figures as a table, and what was missed."""
    table = Table(title="share of named exchanges that serve")
    table.add_column("exchange")
    table.add_column("", justify="right")
    for name, value in figures.items():
        table.add_row(name, f"{value:g}")
    console = Console(width=100)
    console.print(table)
    for one in asked if misses else ():
        if not one.serves[one.named]:
            serving = [exchange for exchange, right in zip(one.exchanges, one.serves, strict=True) if right]
            console.print(f"{one.query} {one.session}: {one.exchanges[one.named]} of {one.exchanges}, serves {serving}")


if __name__ == "__main__":
    main()
