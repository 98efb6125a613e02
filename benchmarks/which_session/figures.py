"""Figures of what was answered, each with its spread: a bootstrap over the questions, with a seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .labels import Question
from .wrote import BUDGET, Place

DRAWS, SPREAD = 10_000, (2.5, 97.5)
#: Scores from which on a session is likely the right one, and below which nothing fits.
LIKELY, FITS = 0.5, 0.3
BINS = 5
KINDS = ("all", "plan", "typed")
RATES = ("hit@1", "hit@5", "MRR", "nDCG@5", "hit@1, wider label")


@dataclass(frozen=True)
class Asked:
    """A tool's answer to a question, as places: of the first right session and of the first by the wider label (0 is
    none), with nDCG@5, and the score of its first result.
    """

    question: Question
    rank: int
    wide: int
    ndcg: float
    score: float | None = None


def asked(question: Question, sessions: Sequence[str], score: float | None = None) -> Asked:
    """Judge an answer."""
    return Asked(
        question,
        rank(sessions, question.right),
        rank(sessions, question.wide),
        ndcg(sessions, question.answers),
        score,
    )


def rank(sessions: Sequence[str], right: frozenset[str]) -> int:
    """Return the place of the first right one, from 1; 0 if there is none."""
    return next((place for place, one in enumerate(sessions, 1) if one in right), 0)


def ndcg(sessions: Sequence[str], gains: Mapping[str, float], most: int = 5) -> float:
    """Return the gain of the first results, later ones counting less, as a share of the best possible one."""

    def worth(found: Iterable[float]) -> float:
        return sum(gain / math.log2(place + 1) for place, gain in enumerate(found, 1))

    best = worth(sorted(gains.values(), reverse=True)[:most])
    return worth(gains.get(one, 0.0) for one in sessions[:most]) / best if best else 0.0


_RATE: Mapping[str, Callable[[Asked], float]] = {
    "hit@1": lambda one: one.rank == 1,
    "hit@5": lambda one: 0 < one.rank <= 5,
    "MRR": lambda one: 1 / one.rank if one.rank else 0.0,
    "nDCG@5": lambda one: one.ndcg,
    "hit@1, wider label": lambda one: one.wide == 1,
}


def rates(answers: Sequence[Asked], seed: int) -> dict[str, Any]:
    """Return each rate by kind of question, over those that have an answer."""
    told: dict[str, Any] = {}
    for kind in KINDS:
        some = [one for one in answers if one.question.right and kind in ("all", one.question.kind)]
        values = {name: [float(of(one)) for one in some] for name, of in _RATE.items()}
        told[kind] = {"questions": len(some)} | {name: spread(each, seed) for name, each in values.items()}
    return told


def difference(ours: Sequence[Asked], theirs: Sequence[Asked], seed: int) -> dict[str, Any]:
    """Return how much one tool is ahead of another, question by question."""
    pairs = [(one, other) for one, other in zip(ours, theirs, strict=True) if one.question.right]
    return {
        kind: {
            name: spread(
                [float(of(one)) - float(of(other)) for one, other in pairs if kind in ("all", one.question.kind)], seed
            )
            for name, of in _RATE.items()
        }
        for kind in KINDS
    }


def spread(values: Sequence[float], seed: int) -> list[float] | None:
    """Return the mean, and the ends of its 95 % interval."""
    if not values:
        return None
    each = np.array(values)
    drawn = np.random.default_rng(seed).integers(0, len(each), (DRAWS, len(each)))
    low, high = np.percentile(each[drawn].mean(axis=1), SPREAD)
    return [round(float(one), 3) for one in (each.mean(), low, high)]


def calibration(answers: Sequence[Asked], seed: int) -> dict[str, Any]:
    """Say whether the scores of first results come true, and whether a question that nothing answers gets low ones."""
    right = [(one.score, float(one.wide == 1)) for one in answers if one.question.right and one.score is not None]
    none = [one.score for one in answers if one.question.is_none and one.score is not None]
    return {
        "mean score": spread([score for score, _ in right], seed),
        "right, wider label": spread([true for _, true in right], seed),
        "score minus right": spread([score - true for score, true in right], seed),
        "expected calibration error": expected_error(right),
        "questions that nothing answers": len(none),
        "of these: first below 0.3": spread([float(score < FITS) for score in none], seed),
        "of these: first at 0.5 or more": spread([float(score >= LIKELY) for score in none], seed),
        "of those with an answer: first at 0.5 or more": spread([float(score >= LIKELY) for score, _ in right], seed),
        "of these first ones: right": spread([true for score, true in right if score >= LIKELY], seed),
    }


def expected_error(scored: Sequence[tuple[float, float]]) -> float | None:
    """Return how far scores are from the share that is right, in the mean over bins of scores."""
    bins: list[list[tuple[float, float]]] = [[] for _ in range(BINS)]
    for score, true in scored:
        bins[min(int(score * BINS), BINS - 1)].append((score, true))
    off = [abs(sum(score - true for score, true in one)) for one in bins]
    return round(sum(off) / len(scored), 3) if scored else None


def places(found: Sequence[Place | None], seed: int) -> dict[str, Any]:
    """Say how often each kind of fork has the edits that wrote the lines, and what it loads.

    Nothing is in place of a session whose conversation has no such edit: it was rewound, or something else wrote them.
    """
    known = [one for one in found if one]
    longer = [one for one in known if one.whole > BUDGET]
    forks = {
        "plain": lambda one: one.plain, "at match": lambda one: one.match, "within 30k": lambda one: one.budget,
    }  # fmt: skip
    return {
        "sessions that answer": len(found),
        "of these: the edits are in the conversation": len(known),
        **{
            f"{name}: has the edits": spread([float(of(one).knows) for one in known], seed)
            for name, of in forks.items()
        },
        **{f"{name}: tokens, median": _median([of(one).tokens for one in known]) for name, of in forks.items()},
        "at match: refused": sum(one.match.tokens is None for one in known),
        "at match: is their exchange": spread([float(one.exact) for one in known], seed),
        "sessions of more than 30k": len(longer),
        "of these: within 30k has the edits": spread([float(one.budget.knows) for one in longer], seed),
    }


def _median(tokens: Sequence[int | None]) -> int | None:
    return round(statistics.median(known)) if (known := [one for one in tokens if one is not None]) else None


def took(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median and the worst of what each step took, in seconds."""
    return {
        f"{step}, {which}": round(of(each), 3)
        for step, each in seconds.items()
        for which, of in (("median", statistics.median), ("most", max))
        if each
    }
