"""From hits on chunks and sessions to one score a session. Pure.

Words and meaning fail differently: a name is found by its word alone, a paraphrase by its meaning alone. So words
count as much as the best session has of the query's rare words, and meaning is taken from the best chunks, from how
the session began, and from the session as a whole. Measured with ``benchmarks/retrieval.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

#: Weights of the words of whole sessions, the words of chunks, the nearest chunks, the first chunk, and all chunks.
SESSION_WORDS, CHUNK_WORDS, NEAREST, BEGINNING, WHOLE = 1.0, 1.0, 3.0, 1.0, 2.0
#: How many chunks speak for a session, and how much of their say the best one has.
BEST_CHUNKS, BEST_SHARE = 3, 0.6


@dataclass(slots=True)
class Evidence:
    """What speaks for one session.

    `words` is its BM25 as a whole, `chunk_words` the BM25 of its chunks, `similar` the cosine of its chunks by
    position, `chunks` how many it has, `coverage` (0…1) how much of the query's weight in words it contains.
    """

    words: float = 0.0
    chunk_words: list[float] = field(default_factory=list)
    similar: dict[int, float] = field(default_factory=dict)
    chunks: int = 1
    coverage: float = 0.0


def scores(evidence: Mapping[int, Evidence]) -> dict[int, float]:
    """A score of 0…1 for each session, comparable within one query."""
    best_words = max((one.words for one in evidence.values()), default=0.0) or 1.0
    best_chunk = max((max(one.chunk_words, default=0.0) for one in evidence.values()), default=0.0) or 1.0
    trust = max((one.coverage for one in evidence.values()), default=0.0)
    floor = min((value for one in evidence.values() for value in one.similar.values()), default=0.0)
    total = SESSION_WORDS + CHUNK_WORDS
    if any(one.similar for one in evidence.values()):  # where meaning was not searched, words can earn the whole score
        total += NEAREST + BEGINNING + WHOLE
    return {
        session: _clip((_words(one, best_words, best_chunk) * trust + _meaning(one, floor)) / total)
        for session, one in evidence.items()
    }


def _words(one: Evidence, best_words: float, best_chunk: float) -> float:
    return SESSION_WORDS * one.words / best_words + CHUNK_WORDS * _best(one.chunk_words) / best_chunk


def _meaning(one: Evidence, floor: float) -> float:
    if not one.similar:
        return 0.0
    known = one.similar.values()
    # Chunks that were not among the nearest are at most as near as the farthest of those.
    whole = (sum(known) + max(0, one.chunks - len(one.similar)) * floor) / max(one.chunks, len(one.similar))
    nearest = _best(list(known))
    return NEAREST * max(0.0, nearest) + BEGINNING * max(0.0, one.similar.get(0, floor)) + WHOLE * max(0.0, whole)


def _best(values: Sequence[float]) -> float:
    """The best value with the support of the next; missing ones count nothing."""
    top = sorted(values, reverse=True)[:BEST_CHUNKS]
    return BEST_SHARE * top[0] + (1 - BEST_SHARE) * sum(top) / BEST_CHUNKS if top else 0.0


def _clip(value: float) -> float:
    return min(1.0, max(0.0, value))
