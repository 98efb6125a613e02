"""What is asked of the index and what was found in it: values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from indexer.store.base import Placement, Scope, SessionRow
from smart_fork.retrieval.ranking import Score

Mode = Literal["hybrid", "vector", "lexical", "recent"]


@dataclass(frozen=True, slots=True)
class Query:
    """A valid question. `everywhere` means all projects, `caller` is the session that asks, `hidden` is never found."""

    intent: str
    scope: Scope
    limit: int
    everywhere: bool = False
    min_score: float | None = None
    caller: SessionRow | None = None
    hidden: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Hit:
    """A session, its score, and the chunk that answers best with the words of the intent that it has.

    `why` is how the score came about, before any reranker.
    """

    session: SessionRow
    score: float
    place: Placement | None
    text: str
    words: tuple[str, ...]
    near: float | None
    family: tuple[SessionRow, ...]
    why: Score


@dataclass(frozen=True, slots=True)
class Found:
    """Hits, best first; how they were found; and what failed on the way. `dropped` had no id or directory (F-058).

    `rerank_error` says why a reranker that is configured had no say.
    """

    hits: tuple[Hit, ...]
    mode: Mode
    error: str = ""
    dropped: int = 0
    rerank_error: str = ""

    @property
    def fallback_used(self) -> bool:
        """Whether the first way of searching failed."""
        return bool(self.error)
