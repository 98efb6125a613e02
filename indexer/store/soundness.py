"""Whether an index says the same in all its parts. It is only read, through a connection that cannot write.

Each function yields what is wrong, in words.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import apsw

from indexer.store import blocks
from indexer.store.connection import BUSY_MILLISECONDS, opening
from indexer.store.vectors import GROUP, NUMBER, length, slots_of

#: So many faults of a kind are told one by one.
SHOWN = 5
_WORDS = (("chunk_words", "chunks", "passages"), ("session_words", "sessions", "sessions"))


@contextmanager
def read_only(path: Path) -> Iterator[apsw.Connection]:
    """The database as it is at one moment, whoever writes to it meanwhile.

    Raises:
        apsw.Error: it cannot be opened.
    """
    with ExitStack() as stack:
        with opening(path):
            db = stack.enter_context(closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)))
            db.set_busy_timeout(BUSY_MILLISECONDS)
            db.execute("BEGIN; SELECT count(*) FROM sqlite_schema")  # it is that moment when something is first read
        yield db


def damage(db: apsw.Connection) -> Iterator[str]:
    """What SQLite finds in its pages, tables, and word indexes (which it has checked itself since 3.44)."""
    try:
        for (said,) in db.execute(f"PRAGMA integrity_check({SHOWN})"):
            if said != "ok":
                yield str(said)
    except apsw.Error as error:  # so damaged that even the check cannot go on
        yield str(error)


def dangling(db: apsw.Connection) -> Iterator[str]:
    """Rows that speak of others that are not there, and passages that no session has."""
    broken: dict[tuple[str, str], int] = {}
    for table, _, other, _ in db.execute("PRAGMA foreign_key_check"):
        broken[str(table), str(other)] = broken.get((str(table), str(other)), 0) + 1
    for (table, other), number in broken.items():
        yield f"{number} rows of {table} speak of {other} that are not there"
    lost = db.execute("SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk FROM placements)").get
    if lost:
        yield f"{lost} passages belong to no session"


def words(db: apsw.Connection) -> Iterator[str]:
    """Passages and sessions that cannot be found by words, and words of what is not there.

    Every row of a word index names its part, so that all rows of a part can be listed.
    """
    parts = [part for (part,) in db.execute("SELECT id FROM parts ORDER BY id")]
    for index, table, name in _WORDS:
        for part in parts:
            found = {row for (row,) in db.execute(f"SELECT rowid FROM {index} WHERE {index} MATCH 'part: p{part}'")}  # noqa: S608 - constants and an integer
            there = {row for (row,) in db.execute(f"SELECT id FROM {table} WHERE part = ?", (part,))}  # noqa: S608 - constants
            if missing := there - found:
                yield f"{len(missing)} {name} of part {part} cannot be found by their words"
            if surplus := found - there:
                yield f"{index} has words of {len(surplus)} {name} of part {part} that are not there"


def vectors(db: apsw.Connection) -> Iterator[str]:
    """Groups of vectors of another shape than they must have, and passages whose vector is not where it should be.

    What sqlite-vec keeps is looked at without it.
    """
    size = length(db)
    if not size or blocks.there_are(db):
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
        yield f"{len(home)} passages have no vector where it should be"
    if slots:
        yield f"{len(slots)} vectors are where there are none"
