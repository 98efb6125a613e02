"""The groups in which sqlite-vec keeps vectors: their shape, and whether they say what the tables beside them say."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import apsw

#: Vectors a group. Small parts waste the rest of one; more in a group are hardly read faster.
GROUP = 128
#: Bytes of a chunk's number.
NUMBER = 8


@contextmanager
def telling_damage(db: apsw.Connection) -> Iterator[None]:
    """sqlite-vec has no code of its own for damage. Where it fails, whether its tables say the same is looked at.

    Raises:
        apsw.CorruptError: they do not.
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
    """Bytes of a vector: one a dimension."""
    return int(db.execute("SELECT value FROM meta WHERE key = 'dimensions'").get or 0)


def slots_of(used: bytes) -> Iterator[int]:
    """The numbers of the bits that are set."""
    return (8 * at + bit for at, byte in enumerate(used) for bit in range(8) if byte >> bit & 1)


def faults(db: apsw.Connection) -> Iterator[str]:
    """Groups of vectors of another shape than they must have, and passages whose vector is not where it should be.

    What sqlite-vec keeps is looked at without it.
    """
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
        if (len(used), len(rowids), len(stored or b"")) != (GROUP // 8, GROUP * NUMBER, GROUP * size):
            yield f"group {group} of vectors has {len(stored or b'')} bytes: not {GROUP} times {size}"
            continue
        strange = 0
        for slot in slots_of(used):
            (chunk,) = struct.unpack_from("<q", rowids, slot * NUMBER)
            there = slots.pop(chunk, None) == (group, slot) and any(stored[slot * size : (slot + 1) * size])
            strange += home.pop(chunk, None) != part or not there
        if strange:
            yield f"group {group} of vectors has {strange} that are no vectors of passages of its part"
    if home:
        yield f"{len(home)} passages lack their vector"
    if slots:
        yield f"{len(slots)} vectors belong to no passage"
