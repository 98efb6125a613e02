"""Fit the points in ``smart_fork/finding/ranking.py``, and estimate their quality on queries not seen yet.

    python benchmarks/bench.py tuning CORPUS [--home DIR] [--also FILE] [--quick] [--json FILE]

CORPUS as for ``retrieval.py``. Each labelled query is asked in its project, everywhere, and in three projects that do
not have the answer, where the right answer is "none". A conditional logit model with "none" as one more choice is
fitted to what speaks for each session. It prints, from cross-validation (the queries of one session are never in two
folds): hit rates with their spread over folds, each part left out, how well the scores are calibrated, and how
often a question without an answer gets a score of 0.5 or more; last, the points fitted to all queries. With
``--also``, as for ``retrieval.py``, all of it again for the queries together with their further phrasings.
"""

from __future__ import annotations

import itertools
import random
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from _frame import Part, Table, rates_of
from retrieval import Labelled, opened
from retrieval import options as options_of_retrieval
from scipy.optimize import minimize

FOLDS, FOREIGN, MIN_SESSIONS, SHOWN = 5, 3, 8, 5
#: Keeps the points small where the queries say little.
PENALTY = 2.0


class Asked(NamedTuple):
    """One query in one place: what speaks for each family (n, parts), and whether it is right (n)."""

    query: int
    place: str
    parts: Any
    right: Any


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    options_of_retrieval(parser)
    parser.add_argument("--quick", action="store_true", help="one division into folds instead of five, no ablation")


def measure(given: Namespace, folder: Path) -> dict[str, Any]:
    """Fit and cross-validate; `again` is with the further phrasings."""
    from smart_fork.finding.ranking import Parts

    labelled, seeds = opened(given, folder), range(1 if given.quick else 5)
    sessions = [min(answer["session_id"] for answer in query["gold"]) for query in labelled.queries]
    figures: dict[str, Any] = {"queries": len(sessions), "parts": list(Parts._fields), "points": {}}
    known_parts = {"both": (0, 1, 2, 3, 4, 5), "words": (0, 1, 2, 3), "meaning": (4, 5)}
    for known, again in itertools.product(known_parts, (False, True)[: 1 + labelled.again]):
        asked, used, what = list(_asked(labelled, known, again=again)), known_parts[known], known + " again" * again
        weights = fit(_columns(asked, used))
        figures["points"][what] = dict(
            zip([*(Parts._fields[i] for i in used), "nothing"], weights.tolist(), strict=True)
        )
        figures[what] = cross_validated(_columns(asked, used), sessions, seeds)
        if known == "both" and not given.quick:
            figures["without" + " again" * again] = {
                name: cross_validated(_columns(asked, tuple(set(used) - {i})), sessions, seeds)["places"]
                for i, name in enumerate(Parts._fields[: len(used)])
            }
    return figures


def _asked(labelled: Labelled, known: str, *, again: bool) -> Iterator[Asked]:
    from smart_fork.finding.query import Query

    projects = sorted({query["project"] for query in labelled.queries})
    scopes = {project: labelled.scope(project) for project in projects}
    large = [project for project in projects if labelled.store.counts(scopes[project]).sessions >= MIN_SESSIONS]
    choice = random.Random(0)
    for number, query in enumerate(labelled.queries):
        own = set(scopes[query["project"]].parts)
        foreign = [project for project in large if not own & set(scopes[project].parts)]
        places = [("scoped", scopes[query["project"]]), ("global", labelled.scope(None))]
        places += [("foreign", scopes[project]) for project in choice.sample(foreign, min(FOREIGN, len(foreign)))]
        for place, scope in places:
            asked = Query(query["query"], scope, 1, everywhere=place == "global", also=query["also"] if again else ())
            parts, right = _spoken_for(labelled, query, asked, known)
            if len(parts):
                yield Asked(number, place, parts, right)


def _spoken_for(labelled: Labelled, query: Mapping[str, Any], asked: Any, known: str) -> tuple[Any, Any]:
    """Return the evidence for the best member of each family, best first as it is ranked now, and which is right."""
    from smart_fork.finding.evidence import gather
    from smart_fork.finding.ranking import SILENT, parts, scores, shares_of_phrasings

    vectors = labelled.embed(asked.meanings) if known != "words" else None
    found = gather(labelled.store, asked, vectors, words=known != "meaning")
    family = {row: session.root_id for row, session in found.sessions.items()}
    score = scores(found.phrasings, family, words=known != "meaning")
    best: dict[str, int] = {}
    for row in sorted(score, key=lambda row: -score[row].chance):
        best.setdefault(family[row], row)
    by_phrasing = [parts(one.evidence, one.coverage) for one in found.phrasings]
    shares = shares_of_phrasings(len(found.phrasings), sum(one.embedded for one in found.phrasings))
    speaking = {row: np.sum([one.get(row, SILENT) for one in by_phrasing], 0) * shares for row in best.values()}
    gold = {answer["session_id"] for answer in query["gold"]}
    right = [any(member.session_id in gold for member in labelled.store.family(root)) for root in best]
    values = np.array([speaking[row] for row in best.values()], float)
    return values, np.array(right, float)


def _columns(asked: Sequence[Asked], used: Sequence[int]) -> list[Asked]:
    return [one._replace(parts=one.parts[:, sorted(used)]) for one in asked]


def fit(asked: Sequence[Asked]) -> Any:
    """Points a part, and last those of "none", from the rivals of each question that has an answer or surely none."""
    from smart_fork.finding.ranking import RIVALS

    rivals, right, weight = [], [], []
    for one in asked:
        chosen = np.append(one.right[:RIVALS], one.place == "foreign")
        if chosen.any():
            rivals.append(_with_none(one.parts[:RIVALS]))
            right.append(chosen)
            weight.append(1 / FOREIGN if one.place == "foreign" else 1 / 2)
    starts = np.cumsum([0, *map(len, rivals[:-1])])
    question = np.repeat(np.arange(len(rivals)), [len(one) for one in rivals])
    features, chosen_all, weights = np.vstack(rivals), np.concatenate(right), np.array(weight)
    scale = np.append(features[:, :-1].std(axis=0), 1.0)
    penalty = np.append(np.full(features.shape[1] - 1, PENALTY), 0.01)

    def loss(points: Any) -> tuple[float, Any]:
        values = features / scale @ points
        values = np.exp(values - np.maximum.reduceat(values, starts)[question])
        chance = values / np.add.reduceat(values, starts)[question]
        hit = np.add.reduceat(chance * chosen_all, starts)
        slope = (chance - chance * chosen_all / hit[question]) * weights[question]
        return (penalty * points**2).sum() / 2 - (
            weights * np.log(hit)
        ).sum(), penalty * points + slope @ features / scale

    return minimize(loss, np.zeros(features.shape[1]), jac=True, method="L-BFGS-B").x / scale


def _with_none(parts: Any) -> Any:
    table = np.zeros((len(parts) + 1, parts.shape[1] + 1))
    table[:-1, :-1], table[-1, -1] = parts, 1
    return table


def cross_validated(asked: Sequence[Asked], sessions: Sequence[str], seeds: Sequence[int]) -> dict[str, Any]:
    """Hit rates by place and fold, and every shown score with whether it was right."""
    ranks: dict[str, list[list[int]]] = {"scoped": [], "global": []}
    shown: list[tuple[str, int, float, bool]] = []
    for seed in seeds:
        order = sorted(set(sessions))
        random.Random(seed).shuffle(order)
        fold = [order.index(session) % FOLDS for session in sessions]
        for number in range(FOLDS):
            weights = fit([one for one in asked if fold[one.query] != number])
            now: dict[str, list[int]] = {
                place: [0] * fold.count(number) for place in ranks
            }  # a query whose project shows nothing is a miss
            at = {query: i for i, query in enumerate(i for i, f in enumerate(fold) if f == number)}
            for one in asked:
                if fold[one.query] != number:
                    continue
                chance, order_now = _chances(one.parts, weights)
                shown += [(one.place, i, float(chance[j]), bool(one.right[j])) for i, j in enumerate(order_now[:SHOWN])]
                if one.place in now and one.right.any():
                    now[one.place][at[one.query]] = 1 + int(np.flatnonzero(one.right[order_now])[0])
            for place, values in now.items():
                ranks[place].append(values)
    return {"places": {place: _spread(folds) for place, folds in ranks.items()}, **_calibration(shown)}


def _chances(parts: Any, weights: Any) -> tuple[Any, Any]:
    from smart_fork.finding.ranking import RIVALS

    values = np.append(parts @ weights[:-1], weights[-1])
    values = np.exp(values - values.max())
    order = np.argsort(-values[:-1], kind="stable")
    return values[:-1] / (values[order[:RIVALS]].sum() + values[-1]), order


def _spread(folds: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Means over all queries and divisions, and the standard deviation between folds."""
    means = rates_of([rank for fold in folds for rank in fold])
    of_folds = [rates_of(fold) for fold in folds]
    return {
        name: {"mean": round(mean, 3), "sd": round(float(np.std([one[name] for one in of_folds])), 3)}
        for name, mean in means.items()
    }


def _calibration(shown: Sequence[tuple[str, int, float, bool]]) -> dict[str, Any]:
    chance, right = np.array([one[2] for one in shown]), np.array([one[3] for one in shown])
    tenth = np.minimum((chance * 10).astype(int), 9)
    table = [
        {"score": round(float(chance[tenth == i].mean()), 3), "right": round(float(right[tenth == i].mean()), 3),
         "share": round(float((tenth == i).mean()), 4)}
        for i in range(10) if (tenth == i).any()
    ]  # fmt: skip
    first = {
        place: [one for one in shown if one[0] == place and one[1] == 0] for place in ("scoped", "global", "foreign")
    }
    sure = {place: [one[3] for one in ones if one[2] >= 0.5] for place, ones in first.items()}
    return {
        "calibration": table,
        "calibration_error": round(sum(abs(row["score"] - row["right"]) * row["share"] for row in table), 4),
        "first_at_least_half": {
            place: {"share": round(len(sure[place]) / max(1, len(first[place])), 3),
                    "right": round(sum(sure[place]) / max(1, len(sure[place])), 3)}
            for place in first
        },
    }  # fmt: skip


def tables(figures: Mapping[str, Any]) -> Iterator[Part]:
    """Yield cross-validated hit rates, each part left out, and how often a first result is sure."""
    known = [name for one in ("both", "words", "meaning") for name in (one, f"{one} again") if name in figures]
    ways = [(name, figures[name]["places"]) for name in known]
    for again in ("", " again"):
        ways += [(f"both{again}, without {name}", one) for name, one in figures.get(f"without{again}", {}).items()]
    rows = [
        [name, place, *(f"{rate['mean']:.3f} ({rate['sd']:.3f})" for rate in rates.values())]
        for name, places in ways
        for place, rates in places.items()
    ]
    sure = [
        [place, f"{one['share']:.1%}", f"{one['right']:.1%}" if one["share"] else ""]
        for place, one in figures["both"]["first_at_least_half"].items()
    ]
    yield (
        f"{figures['queries']} labelled queries, cross-validated in five folds, several divisions: the mean, and the\n"
        "standard deviation between folds. Queries about one session are never in two folds."
    )
    yield Table(("what speaks for a session", "asked", "hit@1", "hit@5", "MRR"), rows, right_from=2)
    yield (
        f"A score is off by {figures['both']['calibration_error']:.3f} in the mean. "
        "The first result's score, by where\n"
        "the query was asked; foreign are projects that do not have the answer:"
    )
    yield Table(("asked", "first result at 0.5 or more", "right, of these"), sure)


def details(figures: Mapping[str, Any]) -> Iterator[Part]:
    """Yield how well scores are calibrated, and the points."""
    for name in ("both", "both again"):
        if name in figures:
            yield f"Calibration, {name}; mean error {figures[name]['calibration_error']}"
            rows = [[f"{value:.3f}" for value in row.values()] for row in figures[name]["calibration"]]
            yield Table(("score", "right", "share of the results"), rows, right_from=0)
    yield f"points: {figures['points']}"
