"""What the files in play are worth: hit@1 with and without them, where they are known and where they mislead.

    python benchmarks/in_play.py CORPUS [--home DIR] [--also FILE] [--json FILE]

CORPUS as for ``retrieval.py``. Each labelled query whose answer edited files is asked in its project and in another one
that does not have the answer. Its repositories are empty, so the files are drawn, three times for each question:
``given`` up to three that the answer edited, ``changed`` these with up to five that other sessions of that project
edited, ``unrelated`` one to five of the others alone, as with unfinished work that has nothing to do with the question.
Changed files count as in ``smart_fork/finding/evidence.py``, all other points are those of ``ranking.py``. The worth
of the files is fitted to given files, of which half have nothing to do with the question, with five folds in which no
session is twice. It prints hit@1 with the difference and its 95 % interval (bootstrap over sessions), and how well the
scores are calibrated; last, the worth fitted to all queries.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from retrieval import Labelled, home_of, opened
from rich.console import Console
from rich.table import Table
from scipy.optimize import minimize_scalar
from tuning import FOLDS, MIN_SESSIONS, SHOWN, _calibration, _chances, _with_none, spoken_for

KINDS, RELATED = ("none", "given", "changed", "unrelated"), ("given", "changed")
DRAWS, RIGHT, OTHERS, RESAMPLED, MOST_WORTH = 3, 3, 5, 2000, 20.0


class Asked(NamedTuple):
    """A query in one place with one kind of files in play: what speaks for each family, and whether it is right."""

    query: int
    place: str
    kind: str
    parts: Any
    right: Any


def main() -> None:
    """Fit, measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--home", type=Path, help="the index is here (SMART_FORK_HOME), or is made here")
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    if not arguments.corpus.is_dir():
        sys.exit(f"skipped: no corpus at {arguments.corpus}")
    with home_of(arguments.corpus, arguments.home) as laid_out:
        labelled = opened(laid_out, arguments.also)
        figures = {
            f"{known}{' again' * again}": measured(labelled, known, again=again)
            for known in ("both", "words")
            for again in (False, True)[: 1 + labelled.again]
        }
    show(figures)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measured(labelled: Labelled, known: str, *, again: bool) -> dict[str, Any]:
    """Everything that is printed of one way to search."""
    from smart_fork.finding.evidence import CHANGED
    from smart_fork.finding.ranking import KNOWN, KNOWN_AGAIN

    asked = list(_asked(labelled, known, again=again))
    row = (KNOWN_AGAIN if again else KNOWN)[known]  # type: ignore[index]
    points = np.array([*row.worth[:-1], row.nothing])
    session = {one.query: min(a["session_id"] for a in labelled.queries[one.query]["gold"]) for one in asked}
    order = sorted(set(session.values()))
    random.Random(0).shuffle(order)
    fold = {query: order.index(of) % FOLDS for query, of in session.items()}
    worths = [fit([one for one in asked if fold[one.query] != number], points) for number in range(FOLDS)]
    figures: dict[str, Any] = {"queries": len(session), "worth": fit(asked, points), "worths of folds": worths}
    figures["now"] = row.worth.files
    for kind in KINDS:
        share = 1.0 if kind == "given" else CHANGED
        of_kind = [one for one in asked if one.kind == kind]
        without, with_files = (
            _results(of_kind, {query: points_of(points, part * worths[number]) for query, number in fold.items()})
            for part in (0.0, share)
        )
        hits = [[one for one in shown if one[0] == "scoped" and one[2] == 0] for shown in (without, with_files)]
        moved = [(session[one[1]], float(one[4]) - float(other[4])) for other, one in zip(*hits, strict=True)]
        figures[kind] = {
            "hit@1 without": float(np.mean([one[4] for one in hits[0]])),
            "hit@1 with": float(np.mean([one[4] for one in hits[1]])),
            "difference": _interval(moved),
            **{
                name: _calibration([(place, rank, chance, right) for place, _, rank, chance, right in shown])
                for name, shown in (("without", without), ("with", with_files))
            },
        }
    return figures


def _asked(labelled: Labelled, known: str, *, again: bool) -> Iterator[Asked]:
    from smart_fork.finding.evidence import QueryWords
    from smart_fork.finding.query import Query

    projects = sorted({query["project"] for query in labelled.queries})
    scopes = {project: labelled.scope(project) for project in projects}
    edited = {project: _edited(labelled, project, scopes[project]) for project in projects}
    large = [one for one in projects if labelled.store.counts(scopes[one]).sessions >= MIN_SESSIONS and edited[one]]
    choice = random.Random(0)
    for number, query in enumerate(labelled.queries):
        gold = {answer["session_id"] for answer in query["gold"]}
        own = sorted({file for one in gold for file in edited[query["project"]].get(one, ())})
        if not own:
            continue
        scope = scopes[query["project"]]
        foreign = [one for one in large if not set(scope.parts) & set(scopes[one].parts)]
        elsewhere = choice.sample(foreign, min(1, len(foreign)))
        for place, project in [("scoped", query["project"]), *(("foreign", one) for one in elsewhere)]:
            others = sorted({file for files in edited[project].values() for file in files} - set(own))
            question = Query(query["query"], scopes[project], 1, also=query["also"] if again else ())
            parts, is_right, rows, found = spoken_for(labelled, query, question, known)
            for kind in KINDS if place == "scoped" else ("none", "unrelated"):
                for _ in range((1 if kind == "none" else DRAWS) if rows else 0):
                    right = choice.sample(own, min(len(own), choice.randint(1, RIGHT))) if kind in RELATED else []
                    in_play = (*right, *choice.sample(others, min(len(others), _others(kind, choice))))
                    (*_, shares), _ = QueryWords(labelled.store, replace(question, in_play=in_play)).worked_on(found)
                    files = np.array([[shares[row]] for row in rows])
                    yield Asked(number, place, kind, np.hstack([parts[:, :-1], files]), is_right)


def _others(kind: str, choice: random.Random) -> int:
    """How many files of other sessions are in play."""
    return choice.randint(int(kind == "unrelated"), OTHERS) if kind in ("changed", "unrelated") else 0


def _edited(labelled: Labelled, project: str, scope: Any) -> Mapping[str, Sequence[str]]:
    """The files that each session of a project edited, as git would name them."""
    marks = ",".join(map(str, scope.parts))
    ids = [row for (row,) in labelled.store.db.execute(f"SELECT id FROM sessions WHERE part IN ({marks})")]  # noqa: S608
    rows, found = labelled.store.sessions(ids), {}
    for number, edits in labelled.store.edits(ids).items():
        name = Path(project).name
        tops = (f"/{name}/", f"/{name.rpartition('+')[2]}/")  # logs of other machines name its folders there
        files = [file.partition(top)[2] for file in edits.files for top in tops if top in file]
        if files:
            found[rows[number].session_id] = tuple(dict.fromkeys(files))
    return found


def points_of(points: Any, worth: float) -> Any:
    """The points of all parts with this worth of the files, and last those of "none"."""
    return np.insert(points, -1, worth)


def fit(asked: Sequence[Asked], points: Any) -> float:
    """The worth of the files that makes the answers likeliest, with all other points as they are."""
    from smart_fork.finding.ranking import RIVALS

    questions = []
    for one in asked:
        chosen = np.append(one.right[:RIVALS], one.place == "foreign")
        if one.kind in ("given", "unrelated") and chosen.any():
            weight = (
                1.0 if one.kind == "given" else 1 / 2
            )  # half of the questions with other files have no answer there
            questions.append((_with_none(one.parts[:RIVALS]), chosen.astype(bool), weight))

    def loss(worth: float) -> float:
        total = 0.0
        for parts, chosen, weight in questions:
            values = parts @ points_of(points, worth)
            values = np.exp(values - values.max())
            total -= weight * float(np.log(values[chosen].sum() / values.sum()))
        return total

    return round(float(minimize_scalar(loss, bounds=(0.0, MOST_WORTH), method="bounded").x), 2)


def _results(asked: Sequence[Asked], points: Mapping[int, Any]) -> list[tuple[str, int, int, float, bool]]:
    """Place, query, rank, score and whether it is right, of each result that would be shown."""
    shown = []
    for one in asked:
        chance, order = _chances(one.parts, points[one.query])
        shown += [(one.place, one.query, i, float(chance[j]), bool(one.right[j])) for i, j in enumerate(order[:SHOWN])]
    return shown


def _interval(differences: Sequence[tuple[str, float]]) -> dict[str, float]:
    """The mean, and the 95 % interval where sessions are drawn again and again, with all their questions."""
    of_session: dict[str, list[float]] = {}
    for session, value in differences:
        of_session.setdefault(session, []).append(value)
    values, draw = list(of_session.values()), np.random.default_rng(0)
    means = []
    for _ in range(RESAMPLED):
        drawn = [value for i in draw.integers(0, len(values), len(values)) for value in values[i]]
        means.append(float(np.mean(drawn)))
    low, high = np.quantile(means, (0.025, 0.975))
    return {"mean": float(np.mean([value for _, value in differences])), "low": float(low), "high": float(high)}


def show(figures: Mapping[str, Any]) -> None:
    """The figures as a table."""
    table = Table(title="files in play: hit@1 in the project, cross-validated; calibration error of all shown results")
    for name in ("searched by", "files in play", "hit@1 without", "with", "difference (95 %)", "error without", "with"):
        table.add_column(name)
    for name, one in figures.items():
        for kind in KINDS:
            row, moved = one[kind], one[kind]["difference"]
            table.add_row(
                name, kind, f"{row['hit@1 without']:.3f}", f"{row['hit@1 with']:.3f}",
                f"{moved['mean']:+.3f} ({moved['low']:+.3f} to {moved['high']:+.3f})",
                *(f"{row[name]['calibration_error']:.3f}" for name in ("without", "with")),
            )  # fmt: skip
    console = Console(width=120)
    console.print(table)
    for name, one in figures.items():
        folds = f"folds {min(one['worths of folds'])} to {max(one['worths of folds'])}"
        console.print(
            f"{name}: {one['queries']} queries, worth of the files {one['worth']} ({folds}), now {one['now']}"
        )


if __name__ == "__main__":
    main()
