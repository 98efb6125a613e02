"""Vectors as they were kept before sqlite-vec kept them: blocks of many in one row. They are moved, and that is all.

In one transaction, once the extension can be loaded: until then words alone are searched, and nothing is lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import apsw

from indexer.store import extension, vectors
from indexer.store.groups import in_blocks, length
from indexer.store.schema import immediate


def move(db: apsw.Connection) -> None:
    """Have sqlite-vec keep the vectors of an index that has them in blocks."""
    if not in_blocks(db) or not extension.is_loaded(db):
        return
    with immediate(db):
        if in_blocks(db):  # nobody else was quicker
            _move(db)


def remove(db: apsw.Connection, chunks: Iterable[int]) -> None:
    """Let go of the vectors of these chunks with their whole blocks. The others of those wait again."""
    within = ", ".join(str(int(chunk)) for chunk in chunks)
    having = f"SELECT DISTINCT block FROM chunks WHERE id IN ({within}) AND block <> 0"  # noqa: S608 - integers
    for (block,) in db.execute(having).fetchall():
        db.execute("DELETE FROM vector_blocks WHERE id = ?", (block,))
        db.execute("UPDATE chunks SET block = 0 WHERE block = ?", (block,))


def _move(db: apsw.Connection) -> None:
    if size := length(db):
        vectors.create(db, size)
        blocks: list[Any] = db.execute("SELECT id FROM vector_blocks ORDER BY id").fetchall()
        for (block,) in blocks:
            _move_block(db, block, size)
    db.execute("DROP TABLE vector_blocks")


def _move_block(db: apsw.Connection, block: int, size: int) -> None:
    """A record is the chunk's number, the length of a step (which only makes it a unit vector), and the steps."""
    from indexer.arrays import np
    from indexer.store.nearest import coded

    part, stored = db.execute("SELECT part, records FROM vector_blocks WHERE id = ?", (block,)).fetchone() or (0, b"")
    records = np.frombuffer(stored, np.dtype([("chunk", "<i8"), ("step", "<f4"), ("values", "i1", (size,))]))
    there = {chunk for (chunk,) in db.execute("SELECT id FROM chunks WHERE block = ? AND part = ?", (block, part))}
    codes = coded([row.tobytes() for row in records["values"].astype(np.float32)])
    kept = {chunk: code for chunk, code in zip(records["chunk"].tolist(), codes, strict=True) if chunk in there}
    db.execute("DELETE FROM vector_blocks WHERE id = ?", (block,))  # its pages are where the next ones go
    vectors.append(db, part, kept)
