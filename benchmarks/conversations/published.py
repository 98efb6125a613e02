"""Figures that others publish for the same data, and where their definition differs from ours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Published(NamedTuple):
    """Figures of another tool. `differs` says how their definition is not ours; None is a figure not given."""

    whose: str
    source: str
    differs: str
    questions: int
    hit1: float | None = None
    hit5: float | None = None
    recall5: float | None = None
    mrr: float | None = None


PUBLISHED: Mapping[str, tuple[Published, ...]] = {
    "LoCoMo": (
        Published(
            "deja-vu, words alone", "vshulcz/deja-vu, docs/benchmarks/locomo.json, run of 2026-09-22",
            "same definition; every turn is the user's", 1982, 0.699, 0.857, None, 0.768,
        ),
    ),
    "LongMemEval": (
        Published(
            "deja-vu, words alone", "vshulcz/deja-vu, docs/benchmarks/longmemeval-s-full.json, run of 2026-09-22",
            "same definition, with abstention questions", 500,
            0.874, 0.972, 0.910, 0.915,
        ),
        Published(
            "agentmemory, BM25 and vectors", "rohitg00/agentmemory, benchmark/LONGMEMEVAL.md",
            'their "R@5" is hit@5; with abstention questions', 500, None, 0.952, None, 0.882,
        ),
        Published(
            "MemPalace, vectors alone", "quoted by rohitg00/agentmemory, benchmark/LONGMEMEVAL.md",
            'their "R@5" is hit@5', 500, None, 0.966,
        ),
        Published(
            "ALMA 0.9.0, vectors", "rbkunnela/alma-memory, release notes of v0.9.0",
            'their "R@5" is not defined there; with abstention questions', 500, None, 0.964, None, 0.872,
        ),
    ),
}  # fmt: skip
