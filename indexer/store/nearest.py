"""Vector search with NumPy. NumPy is slow to import, so this module is imported late.

A vector is stored in one byte a dimension, nearly always in equal steps, so that sqlite-vec can compare vectors as
well. The search finds more than 99 % of the 50 chunks that are nearest in full precision. sqlite-vec's own search
handles one text at a time, takes twice as long for all projects, and finds less.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING

import apsw

from indexer.one_thread_numpy import np
from indexer.store import vectors
from indexer.store.base import Near

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Matrix = NDArray[np.float32]
    Codes = NDArray[np.int8]

#: The number of steps of a byte, and the steps for the usual size of a component (a vector has length 1). A component
#: of four times that size just fits. A vector with a larger one, which is rare, gets coarser steps.
MAX_STEPS, USUAL_STEPS = 127, 33
#: Groups of vectors that are compared at once. Intermediate results then stay in the processor's cache.
GROUPS_AT_ONCE = 4
_SLOTS = np.dtype("<i8")


def coded(given: Sequence[bytes]) -> list[bytes]:
    """Convert float32 vectors of one length to the form in which they are stored, one byte a dimension."""
    return [code.tobytes() for code in _coded(_units(given))] if given else []


def decoded(code: bytes) -> bytes:
    """Convert a stored vector to a float32 unit vector."""
    return _units([np.frombuffer(code, np.int8).astype(np.float32).tobytes()]).tobytes()


def compared(codes: bytes, given: Sequence[bytes]) -> bytes:
    """Return the cosines (float32) of joined stored vectors, one row each, to each float32 vector."""
    return _compared(codes, _units(given)).tobytes()


class NearestSimilarities:
    """The cosines (-1 to 1) of n chunks to the texts of a question.

    `chunks` are ids (int64), and `cosines` are float32 of shape (n, number of texts).
    """

    def __init__(self, chunks: NDArray[np.int64], cosines: Matrix) -> None:
        self._chunks, self._cosines = chunks, cosines

    def best(self, limit: int) -> list[Near]:
        """Return the chunks nearest to the texts, at most `limit` for each text, best first, then by id."""
        near = [_nearest(self._chunks, one, limit) for one in self._cosines.T]
        # `np.unique` would import all of `numpy.ma`, which takes longer than this search.
        union = np.fromiter(sorted({place for one in near for place in one.tolist()}), np.int64)
        chunks, cosines = self._chunks[union], self._cosines[union]
        order = np.lexsort((chunks, -cosines.max(axis=1, initial=-1)))
        return list(map(Near, chunks[order].tolist(), map(tuple, cosines[order].tolist())))

    def of(self, chunks: Collection[int]) -> dict[int, tuple[float, ...]]:
        there = np.isin(self._chunks, np.fromiter(chunks, np.int64, len(chunks)))
        return dict(zip(self._chunks[there].tolist(), map(tuple, self._cosines[there].tolist()), strict=True))


def similarities(
    db: apsw.Connection, given: Sequence[bytes], parts: Sequence[int], among: Collection[int] | None
) -> NearestSimilarities:
    """Return the cosines of the chunks in `parts` (see `Scope`), or only `among`, to the float32 vectors `given`."""
    questions = _units(given)
    if among is not None:
        rows = vectors.read(db, among, parts)
        chunks = np.array([chunk for chunk, _ in rows], np.int64)
        return NearestSimilarities(chunks, _compared(b"".join(code for _, code in rows), questions))
    return _passed(vectors.read_groups(db, parts), questions)


def _compared(codes: bytes, questions: Matrix) -> Matrix:
    return _cosines(np.frombuffer(codes, np.int8).reshape(-1, questions.shape[1]), questions)


def _passed(groups: Iterable[tuple[bytes, bytes, bytes]], questions: Matrix) -> NearestSimilarities:
    chunks, cosines = [np.empty(0, np.int64)], [np.empty((0, len(questions)), np.float32)]
    remaining = iter(groups)
    while some := list(islice(remaining, GROUPS_AT_ONCE)):
        used, rowids, codes = map(b"".join, zip(*some, strict=True))
        slots = np.unpackbits(np.frombuffer(used, np.uint8), bitorder="little").astype(bool)
        matrix = np.frombuffer(codes, np.int8).reshape(len(slots), questions.shape[1])
        chunks.append(np.frombuffer(rowids, _SLOTS)[slots])
        cosines.append(_cosines(matrix, questions)[slots])
    return NearestSimilarities(np.concatenate(chunks), np.concatenate(cosines))


def _nearest(chunks: NDArray[np.int64], cosines: Matrix, limit: int) -> NDArray[np.int64]:
    """Return the positions of the `limit` greatest cosines. Of equal ones, prefer the lowest chunk ids."""
    least = np.partition(cosines, -limit)[-limit] if len(cosines) > limit else -np.inf
    kept = np.flatnonzero(cosines >= least)
    return kept[np.lexsort((chunks[kept], -cosines[kept]))[:limit]]


def _cosines(codes: Codes, questions: Matrix) -> Matrix:
    """Return the cosine of each stored vector (a row) to each vector in `questions` (a column)."""
    values = codes.astype(np.float32)
    lengths = np.sqrt(np.einsum("ij,ij->i", values, values))
    found: Matrix = values @ questions.T / np.maximum(lengths, 1)[:, None]
    return found


def _coded(units: Matrix) -> Codes:
    largest = np.abs(units).max(axis=1, keepdims=True, initial=0)
    usual = max(MAX_STEPS, USUAL_STEPS * math.sqrt(units.shape[1]))
    steps = np.minimum(usual, MAX_STEPS / np.maximum(largest, 1e-12))
    codes: Codes = np.rint(units * steps).astype(np.int8)
    return codes


def _units(given: Sequence[bytes]) -> Matrix:
    """Return float32 vectors as rows of a matrix, scaled to length 1. A zero or invalid vector becomes zero."""
    matrix = np.nan_to_num(np.frombuffer(b"".join(given), np.float32).reshape(len(given), -1))
    units: Matrix = matrix / np.maximum(np.linalg.norm(matrix, axis=1, keepdims=True), np.float32(1e-12))
    return units
