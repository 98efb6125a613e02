"""A question without what only says how to work: "you are a careful engineer, follow the style guide".

Such words stand in prompts of all kinds and find nothing, but outweigh the question where they are many. Each part of a
long question is embedded, and a line through the space of its vectors tells how to work from what to do.
``benchmarks/instructions.py`` makes the line, from sentences of its own, for the default model only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from indexer.embedder import Embedder
from smart_fork.finding.query import names_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NUMBERS = Path(__file__).with_name("instructions.json")
#: How much a part must be like an instruction (1) and unlike work (0) to be left out.
LEAST = 0.5
#: A longer part without punctuation is cut into parts of about so many words; a shorter one is not told alone.
SENTENCE_WORDS, PART_WORDS, LEAST_WORDS = 24, 12, 3
#: Of a very long text the parts are looked at in such numbers, until so many words are left to search with.
AT_ONCE, ENOUGH_WORDS = 16, 64

_SENTENCE_END, _CLAUSE_END = re.compile(r"(?<=[.!?])\s+|\n+"), re.compile(r"(?<=[,;:])\s+")
_WORD = re.compile(r"[^\W\d_]{2,}")


def without_instructions(text: str, embedder: Embedder) -> str:
    """Return what is left of a text: all of it where it says nothing else, or the embedder has another model.

    Parts with names of code are kept.

    Raises:
        ModelUnavailableError: as `Embedder.embed`.
    """
    model, weights, added = _numbers()
    if embedder.model != model:
        return text
    left, parts = list[str](), list(_parts(text))
    while parts and sum(len(part.split()) for part in left) < ENOUGH_WORDS:
        some, parts = parts[:AT_ONCE], parts[AT_ONCE:]
        likeness = embedder.embed(some) @ weights + added
        left += [part for part, like in zip(some, likeness, strict=True) if like <= LEAST or names_of(part)]
    return " ".join((*left, *parts)) if left else text


@cache
def _numbers() -> tuple[str, NDArray[np.float32], float]:
    """The model for which they were made, one number for each of a vector's, and what is added."""
    from indexer.arrays import np

    told = orjson.loads(NUMBERS.read_bytes())
    return told["model"], np.array(told["weights"], np.float32), told["added"]


def _parts(text: str) -> Iterator[str]:
    """The sentences of a text, short ones with the next; of long ones the clauses, of long clauses some words each."""
    for sentence in _together(_SENTENCE_END.split(text)):
        if len(sentence.split()) <= SENTENCE_WORDS:
            yield sentence
            continue
        for clause in _together(_CLAUSE_END.split(sentence)):
            words = clause.split()
            count = max(1, round(len(words) / PART_WORDS))
            size = -(-len(words) // count)
            yield from (" ".join(words[first : first + size]) for first in range(0, len(words), size))


def _together(parts: Sequence[str]) -> Iterator[str]:
    begun = ""
    for part in parts:
        begun = f"{begun} {part}".strip()
        if len(_WORD.findall(begun)) >= LEAST_WORDS:
            yield begun
            begun = ""
    if begun:
        yield begun
