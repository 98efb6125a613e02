"""Storage of vectors in a vec0 table of sqlite-vec, partitioned by part of the index (see `Scope`).

A row's id is its chunk's id. sqlite-vec keeps the vectors of a part in *groups* of 128 in ordinary tables
(``vectors_chunks``: used slots; ``vectors_rowids``: the slot of a row; ``vectors_vector_chunks00``: the bytes of a
group). This module reads these tables directly: a vector by its slot takes a tenth of the time of the vec0 table. If
sqlite-vec is not loaded, whole groups can be deleted as well.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import Any

import apsw

from indexer.store.schema import knows_vectors

#: Vectors in a group. Small parts of the index waste the rest of a group, and larger groups are hardly faster to read.
GROUP_SIZE = 128
#: Bytes of a chunk's id.
ID_BYTES = 8


@contextmanager
def telling_damage(db: apsw.Connection) -> Iterator[None]:
    """Turn an error that sqlite-vec raises for damaged tables into one that says so: it has no error code for damage.

    Raises:
        apsw.CorruptError: the tables are damaged.
    """
    try:
        yield
    except (apsw.SQLError, ValueError, TypeError) as error:  # the last two where a number is none, or too large
        try:
            fault = next(faults(db), "")
        except apsw.SQLError as worse:  # a table is gone
            fault = str(worse)
        if fault:
            raise apsw.CorruptError(f"{error}: {fault}") from error
        raise


def length(db: apsw.Connection) -> int:
    """Return how many bytes a stored vector of this index has: one for each dimension."""
    return int(db.execute("SELECT value FROM meta WHERE key = 'dimensions'").get or 0)


def slots_of(used: bytes) -> Iterator[int]:
    """Return the positions of the bits that are set in `used`, lowest first."""
    return (8 * at + bit for at, byte in enumerate(used) for bit in range(8) if byte >> bit & 1)


def faults(db: apsw.Connection) -> Iterator[str]:
    """Yield findings about wrongly shaped groups of vectors, and missing or misplaced vectors, without sqlite-vec."""
    size = length(db)
    if not size:
        return
    home = {chunk: part for chunk, part in db.execute("SELECT id, part FROM chunks WHERE block <> 0")}  # noqa: C416 - typed
    slots = {
        chunk: (group, slot)
        for chunk, group, slot in db.execute("SELECT rowid, chunk_id, chunk_offset FROM vectors_rowids")
    }
    groups: Any = db.execute(
        "SELECT chunk_id, partition00, CAST(validity AS BLOB), CAST(rowids AS BLOB), CAST(vectors AS BLOB) "
        "FROM vectors_chunks LEFT JOIN vectors_vector_chunks00 AS bytes ON bytes._rowid_ = chunk_id"
    )
    for group, part, used, rowids, stored in groups:
        if (len(used), len(rowids), len(stored or b"")) != (GROUP_SIZE // 8, GROUP_SIZE * ID_BYTES, GROUP_SIZE * size):
            yield f"group {group} of vectors has {len(stored or b'')} bytes: not {GROUP_SIZE} times {size}"
            continue
        strange = 0
        for slot in slots_of(used):
            (chunk,) = struct.unpack_from("<q", rowids, slot * ID_BYTES)
            there = slots.pop(chunk, None) == (group, slot) and any(stored[slot * size : (slot + 1) * size])
            strange += home.pop(chunk, None) != part or not there
        if strange:
            yield f"group {group} of vectors has {strange} that are no vectors of passages of its part"
    if home:
        yield f"{len(home)} passages lack their vector"
    if slots:
        yield f"{len(slots)} vectors belong to no passage"


def create(db: apsw.Connection, dimensions: int) -> None:
    """Create an empty table for vectors with this number of `dimensions`, in place of an older table."""
    db.execute(
        "DROP TABLE IF EXISTS vectors; "
        f"CREATE VIRTUAL TABLE vectors USING vec0(part INTEGER PARTITION KEY, vector int8[{int(dimensions)}] "
        f"distance_metric=L1, chunk_size={GROUP_SIZE}); "
        # The groups of a part, for a search, and the last of them, for each row that is added.
        "CREATE INDEX vectors_part ON vectors_chunks(partition00)"
    )


def append(db: apsw.Connection, part: int, vectors: Mapping[int, bytes]) -> None:
    """Store vectors (coded by `nearest.coded`) by chunk id, in the part `part` of the index."""
    if any(len(vector) != length(db) for vector in vectors.values()):
        raise ValueError("these vectors are not from the model of the index")
    with telling_damage(db):
        db.executemany(
            "INSERT INTO vectors(rowid, part, vector) VALUES(?, ?, vec_int8(?))",
            [(chunk, part, vector) for chunk, vector in vectors.items()],
        )
    db.executemany("UPDATE chunks SET block = 1 WHERE id = ?", [(chunk,) for chunk in vectors])


def adopt(db: apsw.Connection, part: int, chunks: Sequence[int]) -> None:
    """Give each of these chunks without a vector the vector of an equal text in another part of the index, if any."""
    twins: list[Any] = db.execute(
        "SELECT chunks.id, twin.id FROM chunks "  # noqa: S608 - integers
        "JOIN chunks AS twin ON twin.hash = chunks.hash AND twin.block <> 0 "
        f"WHERE chunks.id IN ({numbers(chunks)}) AND chunks.block = 0"
    ).fetchall()
    if twins and knows_vectors(db):  # else they wait until it is
        known = dict(read(db, {twin for _, twin in twins}))
        append(db, part, {chunk: known[twin] for chunk, twin in twins})


def remove(db: apsw.Connection, chunks: Sequence[int]) -> None:
    """Delete the vectors of these chunks. sqlite-vec overwrites them with zeros."""
    having = f"SELECT id FROM chunks WHERE id IN ({numbers(chunks)}) AND block <> 0"  # noqa: S608 - integers
    leaving = [chunk for (chunk,) in db.execute(having)]
    if not leaving:
        return
    with telling_damage(db):
        groups = {group for group, _, _ in _places(db, leaving)}
        if not knows_vectors(db):
            _remove_groups(db, groups)
            return
        db.execute(f"DELETE FROM vectors WHERE rowid IN ({numbers(leaving)})")  # noqa: S608 - integers
        for group in groups:
            _fill_up(db, group)


def read(db: apsw.Connection, chunks: Iterable[int], parts: Iterable[int] | None = None) -> list[tuple[int, bytes]]:
    """Return these chunks with their vectors, without chunks that have none or are outside `parts` of the index."""
    found: list[tuple[int, bytes]] = []
    with telling_damage(db), db:  # as they are at one moment: a group may go, or its places be given to others
        found += _read(db, _places(db, chunks, parts))
    return found


def read_groups(db: apsw.Connection, parts: Iterable[int]) -> Iterator[tuple[bytes, bytes, bytes]]:
    """Yield each group of vectors of these parts of the index as (used slots as bits, 8-byte chunk ids, vectors)."""
    shape = (GROUP_SIZE // 8, GROUP_SIZE * ID_BYTES, GROUP_SIZE * length(db))
    with telling_damage(db):
        groups: Any = db.execute(
            "SELECT validity, rowids, vectors FROM vectors_chunks "  # noqa: S608 - integers
            "JOIN vectors_vector_chunks00 AS bytes ON bytes._rowid_ = chunk_id "
            f"WHERE partition00 IN ({numbers(parts)})"
        )
        for group in groups:
            if tuple(map(len, group)) != shape:
                raise apsw.CorruptError("a group of vectors is cut off")
            yield group


def _read(db: apsw.Connection, places: Sequence[tuple[int, int, int]]) -> Iterator[tuple[int, bytes]]:
    if not places:
        return
    size = length(db)
    with closing(db.blob_open("main", "vectors_vector_chunks00", "vectors", places[0][0], writeable=False)) as blob:
        for group, slot, chunk in places:
            blob.reopen(group)
            blob.seek(slot * size)
            if len(vector := blob.read(size)) != size:
                raise apsw.CorruptError(f"group {group} of vectors is cut off")
            yield chunk, vector


def _places(
    db: apsw.Connection, chunks: Iterable[int], parts: Iterable[int] | None = None
) -> list[tuple[int, int, int]]:
    """Return (group, slot, chunk) for each of these chunks that has a vector, in order, only in `parts` if given."""
    inside = "" if parts is None else f" AND partition00 IN ({numbers(parts)})"
    found: Any = db.execute(
        "SELECT chunk_id, chunk_offset, place.rowid FROM vectors_rowids AS place "  # noqa: S608 - integers
        f"JOIN vectors_chunks USING (chunk_id) WHERE place.rowid IN ({numbers(chunks)}){inside}"
    )
    return sorted(found)


def _fill_up(db: apsw.Connection, group: int) -> None:
    """Move the vectors of a group less than half full to the last group of its part, which alone gets new ones."""
    part, used, rowids = db.execute(
        "SELECT partition00, validity, rowids FROM vectors_chunks WHERE chunk_id = ?", (group,)
    ).fetchone() or (0, b"", b"")
    slots = list(slots_of(used))
    last = db.execute("SELECT max(chunk_id) FROM vectors_chunks WHERE partition00 = ?", (part,)).get
    if group == last or not 0 < len(slots) < GROUP_SIZE // 2:
        return
    moving = dict(read(db, [int.from_bytes(rowids[slot * ID_BYTES :][:ID_BYTES], "little") for slot in slots]))
    db.execute(f"DELETE FROM vectors WHERE rowid IN ({numbers(moving)})")  # noqa: S608 - integers
    append(db, part, moving)


def _remove_groups(db: apsw.Connection, groups: Iterable[int]) -> None:
    """Delete whole groups of vectors without using sqlite-vec. Other chunks in these groups will be embedded again."""
    within = numbers(groups)
    db.execute(
        f"UPDATE chunks SET block = 0 WHERE id IN (SELECT rowid FROM vectors_rowids WHERE chunk_id IN ({within})); "  # noqa: S608
        f"DELETE FROM vectors_rowids WHERE chunk_id IN ({within}); "
        f"DELETE FROM vectors_vector_chunks00 WHERE _rowid_ IN ({within}); "
        f"DELETE FROM vectors_chunks WHERE chunk_id IN ({within})"
    )


def numbers(ids: Iterable[int]) -> str:
    """Return ids as a comma-separated list for the text of a query."""
    return ", ".join(str(int(id_)) for id_ in ids)
