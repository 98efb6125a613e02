"""How much of an index can be found by its meaning: most of what that finds, it finds by the first passages."""

from __future__ import annotations

import math

from indexer.store.base import Counts, Scope, Store
from smart_fork.retrieval.answer import Covered


def covered(store: Store, counts: Counts, scope: Scope | None = None) -> Covered:
    """The shares of the passages that exchanges begin with, and of all, that have their vector: 1 where all of them do.

    `counts` are those of `scope`.
    """
    if counts.embedded == counts.chunks:
        return Covered(1.0, 1.0)
    number, embedded = store.first_passages(scope)
    return Covered(_share(embedded, number), _share(counts.embedded, counts.chunks))


def in_words(shares: Covered) -> str:
    """Those shares, for people."""
    return ", ".join(
        f"{name.replace('_', ' ')} {math.floor(100 * share)} %" for name, share in shares.as_json().items()
    )


def _share(part: int, whole: int) -> float:
    """Rounded down: nearly all is not all."""
    return math.floor(1000 * part / whole) / 1000 if whole else 1.0
