"""Vectors in a byte a dimension, and the exact search among them. It imports NumPy, so it is imported late.

Each vector is rounded to the 127 steps of its own largest component and made a unit vector again: of the 50 nearest in
full precision more than 99 % are found, for a quarter of the room. Reading so little makes the scan of a whole index
as fast as one of float32 vectors that are in memory already, and nothing is lost: no graph, no cut before a filter.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

from indexer.arrays import np
from indexer.store.base import Scored

if TYPE_CHECKING:
    from numpy.typing import NDArray

STEPS = 127


def coded(vectors: Sequence[bytes]) -> list[bytes]:
    """float32 vectors of one length as they are stored: the length of a step, then a signed byte a dimension."""
    if not vectors:
        return []
    matrix = np.nan_to_num(np.frombuffer(b"".join(vectors), np.float32).reshape(len(vectors), -1))
    largest = np.abs(matrix).max(axis=1, keepdims=True)
    steps = np.rint(matrix * (STEPS / np.where(largest > 0, largest, 1))).astype(np.float32)
    length = np.linalg.norm(steps, axis=1)
    record = np.empty(len(matrix), _vector(matrix.shape[1]))
    record["step"], record["values"] = 1 / np.maximum(length, 1), steps
    return [one.tobytes() for one in record]


class Similarities:
    """See `indexer.store.base.Similarities`. `chunks` int64 and `cosines` float32, of one length."""

    def __init__(self, chunks: NDArray[np.int64], cosines: NDArray[np.float32]) -> None:
        self._chunks, self._cosines = chunks, cosines

    @classmethod
    def none(cls) -> Similarities:
        """Of no chunk."""
        return cls(np.empty(0, np.int64), np.empty(0, np.float32))

    @classmethod
    def scanned(cls, blocks: Iterable[bytes], vector: bytes, among: Sequence[int] | None = None) -> Similarities:
        """Of the chunks in these blocks (of those `among` alone, where given) to a float32 vector of their length."""
        query = np.nan_to_num(np.frombuffer(vector, np.float32))
        query /= max(float(np.linalg.norm(query)), 1e-12)
        record = _record(len(query))
        chunks, cosines = [np.empty(0, np.int64)], [np.empty(0, np.float32)]
        room = np.empty((0, len(query)), np.float32)
        for block in blocks:
            stored = np.frombuffer(block, record)
            if len(room) < len(stored):
                room = np.empty((len(stored), len(query)), np.float32)
            values = room[: len(stored)]
            np.copyto(values, stored["values"])  # into the same place each time, which stays in the processor's cache
            cosines.append(values @ query * stored["step"])
            chunks.append(stored["chunk"])
        all_chunks, all_cosines = np.concatenate(chunks), np.concatenate(cosines)
        if among is not None:
            kept = np.isin(all_chunks, np.fromiter(among, np.int64, len(among)))
            all_chunks, all_cosines = all_chunks[kept], all_cosines[kept]
        return cls(all_chunks, all_cosines)

    def best(self, limit: int) -> list[Scored]:
        """The nearest chunks, best first, of equals the lowest first."""
        chunks, cosines = self._chunks, self._cosines
        if len(chunks) > limit:
            kept = cosines >= np.partition(cosines, -limit)[-limit]  # with all that equal the last one
            chunks, cosines = chunks[kept], cosines[kept]
        order = np.lexsort((chunks, -cosines))[:limit]
        return list(map(Scored, chunks[order].tolist(), cosines[order].tolist()))

    def of(self, chunks: Collection[int]) -> dict[int, float]:
        """The cosines of those of these chunks that are among them."""
        there = np.isin(self._chunks, np.fromiter(chunks, np.int64, len(chunks)))
        return dict(zip(self._chunks[there].tolist(), self._cosines[there].tolist(), strict=True))


def _vector(dimensions: int) -> np.dtype[np.void]:
    return np.dtype([("step", "<f4"), ("values", "i1", (dimensions,))])


def _record(dimensions: int) -> np.dtype[np.void]:
    return np.dtype([("chunk", "<i8"), *_vector(dimensions).descr])
