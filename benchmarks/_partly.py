"""An index as it is while only some of its passages have vectors, whatever it really has."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, NamedTuple

#: Which passages have vectors, by what a row of them is: whether its exchange begins or ends there, and the second one.
WHICH = {
    "all": "1",
    "first": "place = 1",
    "first-two": "place <= 2",
    "ends": "place = 1 OR place = size",
    "newest-half": "newer <= 0.5",
    "newest-half-first": "newer <= 0.5 AND place = 1",
}
#: How much deeper is looked for those of them that are near, and the most that the index gives at once.
DEEPER, MOST = 8, 4096


class Partly:
    """A store in which only the passages of `kept` have vectors."""

    def __init__(self, store: Any, kept: set[int]) -> None:
        self._store, self._kept = store, kept

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def similarities(self, questions: Any, scope: Any) -> _Among:
        """As `Store.similarities`."""
        return _Among(self._store.similarities(questions, scope), self._kept)

    def vector_counts(self, sessions: Iterable[int]) -> dict[int, int]:
        """As `Store.vector_counts`."""
        return {row: number for row in sessions if (number := self._number(row))}

    def _number(self, session: int) -> int:
        return sum(place.chunk in self._kept for place in self._store.placements_of(session))


class _Among(NamedTuple):
    all: Any
    kept: set[int]

    def best(self, limit: int) -> list[Any]:
        return [one for one in self.all.best(min(MOST, DEEPER * limit)) if one.row in self.kept][:limit]

    def of(self, chunks: Collection[int]) -> dict[int, Any]:
        found: dict[int, Any] = self.all.of(self.kept.intersection(chunks))
        return found


def partly(store: Any, which: str) -> tuple[Any, float]:
    """The store with vectors for these passages alone (see `WHICH`), and the share that they are."""
    rows = store.db.execute(
        "SELECT chunk FROM (SELECT chunk, newer, row_number() OVER (PARTITION BY session, exchange ORDER BY position) "  # noqa: S608 - constants
        "AS place, count(*) OVER (PARTITION BY session, exchange) AS size FROM placements JOIN (SELECT id, "
        "percent_rank() OVER (ORDER BY last_activity DESC) AS newer FROM sessions) ON id = session) "
        f"WHERE {WHICH[which]}"
    ).fetchall()
    kept = {chunk for (chunk,) in rows}
    share = len(kept) / max(1, store.db.execute("SELECT count(*) FROM chunks").get)
    return (Partly(store, kept) if which != "all" else store), share
