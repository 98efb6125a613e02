"""Work on any SQLite database: transactions, added tables and columns, and erasing what was deleted from its file."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, contextmanager

import apsw

log = logging.getLogger(__name__)

#: How long erasing waits for readers of the old content, and for other writers.
PATIENCE_MILLISECONDS = 5_000
#: Values for added columns that must not be NULL and have no default.
_EMPTY = {"INTEGER": "0", "TEXT": "''", "BLOB": "x''"}


@contextmanager
def write_transaction(db: apsw.Connection) -> Iterator[None]:
    """Run this block as a transaction with the write lock from its start, so that values it reads do not change."""
    db.execute("BEGIN IMMEDIATE")
    try:
        yield
        db.execute("COMMIT")
    finally:
        if db.in_transaction:  # a full disk may have ended it
            db.execute("ROLLBACK")


def write_ahead(db: apsw.Connection, milliseconds: int) -> None:
    """Switch the database to write-ahead logging, so that readers never wait for the writer.

    Raises:
        apsw.BusyError: another process has held a lock, for which SQLite does not wait, for `milliseconds`.
    """
    db.set_busy_timeout(milliseconds)
    deadline = time.monotonic() + milliseconds / 1000
    while db.execute("PRAGMA journal_mode").get != "wal":
        db.execute("BEGIN IMMEDIATE; COMMIT")  # waits for whoever is doing the same just now
        try:
            if db.execute("PRAGMA journal_mode = WAL").get != "wal":
                return  # a file system without shared memory: slower, and just as safe
        except apsw.BusyError:  # somebody was quicker
            if time.monotonic() > deadline:
                raise


def add_missing_tables(db: apsw.Connection, tables: str) -> None:
    """Add to `db` the tables, columns and indexes of the SQL `tables` that it lacks, in the caller's transaction."""
    with closing(apsw.Connection(":memory:")) as new:
        new.execute(tables)
        wanted = new.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql <> '' ORDER BY type = 'index'").get
        for kind, name, sql in wanted:
            if not db.execute("SELECT 1 FROM sqlite_schema WHERE name = ?", (name,)).get:
                db.execute(sql)
            elif kind == "table":
                _add_columns(db, new, name)


def _add_columns(db: apsw.Connection, new: apsw.Connection, table: str) -> None:
    had = {column for _, column, *_ in db.execute(f"PRAGMA table_info({table})")}
    for _, column, kind, needed, default, _ in new.execute(f"PRAGMA table_info({table})").fetchall():
        if column not in had:
            value = f" NOT NULL DEFAULT {default or _EMPTY[str(kind)]}" if needed else ""
            db.execute(f"ALTER TABLE {table} ADD COLUMN {column} {kind}{value}")


def vacuum(db: apsw.Connection, word_indexes: Iterable[str] = ()) -> bool:
    """Rewrite the whole database, so that no deleted text is left in it or in these FTS tables. Return True if done."""

    def work() -> bool:
        with write_transaction(db):
            for table in word_indexes:
                db.execute(f"INSERT INTO {table}({table}) VALUES('optimize')")
        stored = db.execute("PRAGMA temp_store").get
        db.execute("PRAGMA temp_store = FILE")  # a large index is not written again in memory
        try:
            db.execute("VACUUM")
        finally:
            db.execute(f"PRAGMA temp_store = {int(stored or 0)}")
        return True

    return _done(db, work)


def empty_write_ahead_log(db: apsw.Connection) -> bool:
    """Empty the write-ahead log, which may still have deleted text. Return True on success."""

    def work() -> bool:
        busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() or (1, 0, 0)
        return not busy

    return _done(db, work)


def _done(db: apsw.Connection, work: Callable[[], bool]) -> bool:
    patience = db.execute("PRAGMA busy_timeout").get
    db.set_busy_timeout(PATIENCE_MILLISECONDS)
    try:
        return work()
    except (apsw.BusyError, apsw.FullError) as error:
        log.warning("what was taken out of %s is not erased yet: %s", db.filename, error)
        return False
    finally:
        db.set_busy_timeout(int(patience or 0))
