"""Make ``question_instructions.json``: what tells how to work from what to do, in a sentence's vector.

    python benchmarks/bench.py instructions [--write]

The sentences are in ``instructions.txt``: how to work above the line of dashes, what to do below it. Printed is how
many of each kind are told rightly by numbers made of the other nine tenths of them.
"""

from __future__ import annotations

import json
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from _frame import Table

from indexer.default_embedder import LightEmbedder
from smart_fork.finding.question_instructions import MIN_LIKENESS, NUMBERS

TEXTS = Path(__file__).with_name("instructions.txt")
#: What keeps the numbers small: the sentences are fewer than the numbers.
RIDGE = 0.01
PARTS = 10


def fitted(vectors: np.ndarray, kinds: np.ndarray) -> tuple[np.ndarray, float]:
    """The numbers, one for each of a vector's, and what is added: 1 for how to work, 0 for what to do."""
    middle = (vectors[kinds == 1].mean(0) + vectors[kinds == 0].mean(0)) / 2  # as if there were as many of each kind
    shares = np.where(kinds == 1, 0.5 / kinds.mean(), 0.5 / (1 - kinds.mean()))
    apart = vectors - middle
    weights = np.linalg.solve(
        (apart.T * shares) @ apart / len(apart) + RIDGE * np.eye(apart.shape[1]),
        (apart.T * shares) @ (kinds - 0.5) / len(apart),
    )
    return weights, float(0.5 - middle @ weights)


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--write", action="store_true")


def measure(asked: Namespace, _: Path) -> dict[str, list[int]]:
    """Count how many are told rightly of how many, and write the numbers."""
    how, what = (part.splitlines() for part in TEXTS.read_text(encoding="utf-8").strip().split("\n---\n"))
    kinds = np.array([1.0] * len(how) + [0.0] * len(what))
    embedder = LightEmbedder()
    vectors = embedder.embed([*how, *what]).astype(np.float64)
    part = np.random.default_rng(1).permutation(len(kinds)) % PARTS
    told = np.empty(len(kinds))
    for left_out in range(PARTS):
        weights, added = fitted(vectors[part != left_out], kinds[part != left_out])
        told[part == left_out] = vectors[part == left_out] @ weights + added
    if asked.write:
        weights, added = fitted(vectors, kinds)
        numbers = {"model": embedder.model, "added": round(added, 4), "weights": [round(one, 4) for one in weights]}
        NUMBERS.write_text(json.dumps(numbers) + "\n", encoding="utf-8")
    return {
        name: [int(((told > MIN_LIKENESS) == one)[kinds == one].sum()), int((kinds == one).sum())]
        for name, one in (("how to work", 1.0), ("what to do", 0.0))
    }


def tables(figures: dict[str, list[int]]) -> Iterator[Table]:
    """Yield how well they are told apart."""
    yield Table(("", "told rightly", "of"), [[name, *map(str, both)] for name, both in figures.items()])
