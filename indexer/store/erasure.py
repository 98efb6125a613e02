"""What was taken out of the index is gone from its file as well, where SQLite would keep it: in pages that are free, in
parts of the word indexes that are not merged yet, and in the write-ahead log.

That there is something to erase is noted in the transaction that deletes it, so whatever interrupts the erasing, it is
done at the next occasion.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import apsw

from indexer.store.schema import immediate

log = logging.getLogger(__name__)

#: How long readers who are still at what was there before, and other writers, are waited for.
PATIENCE_MILLISECONDS = 5_000
#: How much of an index is erased from in a second, on a slow machine.
BYTES_PER_SECOND = 30_000_000
_NOTE = "erase"
_ALL, _LOG = "all", "log"
_WORD_INDEXES = ("chunk_words", "session_words", "session_work")


def owe(db: apsw.Connection) -> None:
    """Note that something is to be erased, in the transaction that deletes it."""
    db.execute("INSERT OR REPLACE INTO meta VALUES(?, ?)", (_NOTE, _ALL))


def is_owed(db: apsw.Connection) -> bool:
    """Whether something that was deleted may still be in the file."""
    return _owed(db) != ""


def erase(db: apsw.Connection) -> bool:
    """Write the database again without anything that was deleted. Whether it is gone: somebody who reads what was there
    before, another writer or a full disk may keep it from being so for now.

    For whoever holds the index's lock: nobody else deletes meanwhile.
    """
    if _owed(db) == _ALL and _done(db, _rewrite_all):
        db.execute("UPDATE meta SET value = ? WHERE key = ?", (_LOG, _NOTE))
    if _owed(db) == _LOG and _done(db, _empty_log):
        db.execute("DELETE FROM meta WHERE key = ?", (_NOTE,))
    return not is_owed(db)


def compact(db: apsw.Connection) -> bool:
    """The same for a database without word indexes."""
    return _done(db, _rewrite) and _done(db, _empty_log)


def _done(db: apsw.Connection, work: Callable[[apsw.Connection], bool]) -> bool:
    patience = db.execute("PRAGMA busy_timeout").get
    db.set_busy_timeout(PATIENCE_MILLISECONDS)
    try:
        return work(db)
    except (apsw.BusyError, apsw.FullError) as error:
        log.warning("what was taken out of %s is not erased yet: %s", db.filename, error)
        return False
    finally:
        db.set_busy_timeout(int(patience or 0))


def _rewrite_all(db: apsw.Connection) -> bool:
    with immediate(db):
        for table in _WORD_INDEXES:
            db.execute(f"INSERT INTO {table}({table}) VALUES('optimize')")
    return _rewrite(db)


def _rewrite(db: apsw.Connection) -> bool:
    stored = db.execute("PRAGMA temp_store").get
    db.execute("PRAGMA temp_store = FILE")  # a large index is not written again in memory
    try:
        db.execute("VACUUM")
    finally:
        db.execute(f"PRAGMA temp_store = {int(stored or 0)}")
    return True


def _empty_log(db: apsw.Connection) -> bool:
    busy, _, _ = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone() or (1, 0, 0)
    return not busy


def _owed(db: apsw.Connection) -> str:
    return str(db.execute("SELECT value FROM meta WHERE key = ?", (_NOTE,)).get or "")
