"""Where vectors are kept: blocks of many, each block of one part, so a search reads what it may find and nothing else.

A block is one row of chunk numbers with their vectors (see `scan.coded`); each chunk knows its block.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import apsw

#: Vectors a block. More are read a little faster, fewer are written sooner when one comes or goes.
BLOCK = 512
#: Bytes of a chunk's number and of the length of its vector's steps.
_NUMBER, _STEP = 8, 4


def read_blocks(db: apsw.Connection, parts: Iterable[int]) -> Iterator[bytes]:
    """Every block of these parts."""
    within = ", ".join(str(int(part)) for part in parts)
    for (stored,) in db.execute(f"SELECT records FROM vector_blocks WHERE part IN ({within})"):  # noqa: S608
        yield stored


def count(db: apsw.Connection, parts: Iterable[int] | None = None) -> int:
    """How many vectors there are, or are of these parts. Only the lengths of the blocks are read."""
    where = "" if parts is None else f" WHERE part IN ({', '.join(str(int(part)) for part in parts)})"
    size = db.execute(f"SELECT sum(length(records)) FROM vector_blocks{where}").get  # noqa: S608 - integers
    return int(size) // record_size(db) if size else 0


def append(db: apsw.Connection, part: int, vectors: Mapping[int, bytes]) -> None:
    """Keep coded vectors by chunk, in blocks of this part that have room, then in new ones.

    Raises:
        ValueError: they are not of the length that the index has.
    """
    waiting = list(vectors.items())
    size = record_size(db)
    if any(_NUMBER + len(vector) != size for vector in vectors.values()):
        raise ValueError("these are no vectors of the model that the index is embedded with")
    while waiting:
        block, stored = db.execute(
            "SELECT id, records FROM vector_blocks WHERE part = ? AND length(records) < ? LIMIT 1", (part, BLOCK * size)
        ).fetchone() or (None, b"")
        room = BLOCK - len(stored) // size
        now, waiting = waiting[:room], waiting[room:]
        stored += b"".join(chunk.to_bytes(_NUMBER, "little") + vector for chunk, vector in now)
        db.execute("INSERT OR REPLACE INTO vector_blocks(id, part, records) VALUES(?, ?, ?)", (block, part, stored))
        block = db.last_insert_rowid()
        db.executemany("UPDATE chunks SET block = ? WHERE id = ?", [(block, chunk) for chunk, _ in now])


def adopt(db: apsw.Connection, part: int, chunks: Sequence[int]) -> None:
    """Give those of these chunks that wait the vector of the same text in another part, where there is one."""
    marks = ", ".join(str(int(chunk)) for chunk in chunks)
    twins: list[Any] = db.execute(
        "SELECT chunks.id, twin.id, twin.block FROM chunks "  # noqa: S608 - integers
        "JOIN chunks AS twin ON twin.hash = chunks.hash AND twin.block <> 0 "
        f"WHERE chunks.id IN ({marks}) AND chunks.block = 0"
    ).fetchall()
    known = dict(records(db, {block for _, _, block in twins}))
    append(db, part, {chunk: known[twin] for chunk, twin, _ in twins})


def remove(db: apsw.Connection, chunks: Sequence[int]) -> None:
    """Let go of the vectors of these chunks."""
    marks = ", ".join(str(int(chunk)) for chunk in chunks)
    gone: defaultdict[int, set[int]] = defaultdict(set)
    for chunk, block in db.execute(f"SELECT id, block FROM chunks WHERE id IN ({marks}) AND block <> 0"):  # noqa: S608
        gone[block].add(chunk)
    for block, leaving in gone.items():
        kept = [
            chunk.to_bytes(_NUMBER, "little") + vector
            for chunk, vector in records(db, (block,))
            if chunk not in leaving
        ]
        if kept:
            db.execute("UPDATE vector_blocks SET records = ? WHERE id = ?", (b"".join(kept), block))
        else:
            db.execute("DELETE FROM vector_blocks WHERE id = ?", (block,))


def records(db: apsw.Connection, blocks: Iterable[int]) -> Iterator[tuple[int, bytes]]:
    """The chunks of these blocks with their coded vectors."""
    size = record_size(db)
    for block in blocks:
        stored = db.execute("SELECT records FROM vector_blocks WHERE id = ?", (block,)).get or b""
        for start in range(0, len(stored), size):
            yield int.from_bytes(stored[start : start + _NUMBER], "little"), stored[start + _NUMBER : start + size]


def record_size(db: apsw.Connection) -> int:
    """Bytes of one chunk's number and vector."""
    return _NUMBER + _STEP + int(db.execute("SELECT value FROM meta WHERE key = 'dimensions'").get or 0)
