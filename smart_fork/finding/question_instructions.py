"""Removes instructions on how to work from a question, such as "you are a careful engineer, follow the style guide".

Instructions occur in prompts of all kinds, so they find nothing; but if a question has many, they outweigh its task.
Each part of a long question is embedded. A linear classifier on the embeddings separates instructions from tasks.
``benchmarks/instructions.py`` fits the classifier with sentences of its own, for the default model only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, islice, pairwise
from pathlib import Path
from statistics import mean
from typing import TYPE_CHECKING

import orjson

from indexer.embedder import Embedder
from smart_fork.finding.query import names_of

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

NUMBERS = Path(__file__).with_name("question_instructions.json")
#: A part is left out if its score, from work (0) to instruction (1), is above the first number. It must also be above
#: the lowest score by the second.
MIN_LIKENESS, ALIKE = 0.6, 0.1
#: A longer sentence is cut into parts of about this many words. A shorter part is joined with the next one.
SENTENCE_WORDS, PART_WORDS, MIN_WORDS = 24, 12, 3
#: A very long text is classified this many parts at a time, until this many words are left to search with.
AT_ONCE, ENOUGH_WORDS = 16, 64

_SENTENCE_END, _CLAUSE_END = re.compile(r"(?<=[.!?])\s+|\n+"), re.compile(r"(?<=[,;:])\s+")
_WORD = re.compile(r"[^\W\d_]{2,}")


def without_instructions(text: str, embedder: Embedder) -> str:
    """Return the question `text` without instructions on how to work. At least its least instruction-like part is left.

    Parts with names of code are kept. For a model other than the default, return the whole text.
    """
    model, weights, added = _classifier()
    if embedder.model != model:
        return text
    told, parts = list[tuple[float, str]](), list(_parts(text))
    while parts and sum(len(piece.split()) for like, piece in told if like <= MIN_LIKENESS) < ENOUGH_WORDS:
        some, parts = parts[:AT_ONCE], parts[AT_ONCE:]
        likeness = iter(embedder.embed([window for part in some for window in _windows(part)]) @ weights + added)
        for part in some:
            likes = list(islice(likeness, len(_windows(part))))
            told += ((mean(likes[max(0, number - 1) : number + 1]), piece) for number, piece in enumerate(part))
    least = max(MIN_LIKENESS, min((like for like, _ in told), default=0.0) + ALIKE)
    left = (piece for like, piece in told if like <= least or names_of(piece))
    return " ".join((*left, *chain.from_iterable(parts)))


@cache
def _classifier() -> tuple[str, NDArray[np.float32], float]:
    from indexer.one_thread_numpy import np

    told = orjson.loads(NUMBERS.read_bytes())
    return told["model"], np.array(told["weights"], np.float32), told["added"]


def _parts(text: str) -> Iterator[Sequence[str]]:
    """Yield the sentences or clauses of a text to classify, each as a list of one string, or several if it is long.

    Short sentences are joined with the next.
    """
    for sentence in _together(_SENTENCE_END.split(text)):
        if len(sentence.split()) <= SENTENCE_WORDS:
            yield (sentence,)
            continue
        for clause in _together(_CLAUSE_END.split(sentence)):
            words = clause.split()
            size = len(words) if len(words) < PART_WORDS * 1.5 else PART_WORDS // 2
            yield [" ".join(words[first : first + size]) for first in range(0, len(words), size)]


def _windows(part: Sequence[str]) -> Sequence[str]:
    """Return the texts to embed for a part: each two neighboring pieces joined, or its only piece."""
    return [f"{one} {other}" for one, other in pairwise(part)] or part


def _together(parts: Sequence[str]) -> Iterator[str]:
    begun = ""
    for part in parts:
        begun = f"{begun} {part}".strip()
        if len(_WORD.findall(begun)) >= MIN_WORDS:
            yield begun
            begun = ""
    if begun:
        yield begun
