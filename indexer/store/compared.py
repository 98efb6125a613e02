"""How similar the few vectors of one session are, where another process compares them: nothing heavy is imported."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, Sequence

from indexer.store.base import Near

#: Stored vectors, one behind the other, and float32 ones: their cosines as `indexer.store.nearest.compared` has them,
#: or nothing where they are to be compared here.
Compare = Callable[[bytes, Sequence[bytes]], bytes | None]


class ComparedSimilarities:
    """See `indexer.store.base.Similarities`: answers exactly as `indexer.store.nearest.NearestSimilarities` does."""

    def __init__(self, chunks: Sequence[int], cosines: bytes, questions: int) -> None:
        found = array("f", cosines)
        if len(found) != len(chunks) * questions:
            raise ValueError(f"{len(found)} cosines do not match {len(chunks)} passages")
        rows = zip(*(iter(found),) * questions, strict=True)
        self._questions, self._cosines = questions, dict(zip(chunks, rows, strict=True))

    def best(self, limit: int) -> list[Near]:
        """See `Similarities`; of equals the lowest first."""
        near: set[int] = set()
        for number in range(self._questions):
            near.update(sorted(self._cosines, key=lambda chunk: (-self._cosines[chunk][number], chunk))[:limit])
        return [Near(chunk, self._cosines[chunk]) for chunk in sorted(near, key=self._by_nearest)]

    def of(self, chunks: Collection[int]) -> dict[int, tuple[float, ...]]:
        """See `Similarities`."""
        return {chunk: found for chunk in chunks if (found := self._cosines.get(chunk)) is not None}

    def _by_nearest(self, chunk: int) -> tuple[float, int]:
        return -max(self._cosines[chunk]), chunk
