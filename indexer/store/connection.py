"""Opening the database: any number of processes at once, cold or warm."""

from __future__ import annotations

import os
import time
from pathlib import Path

import apsw

from indexer.paths import private_dir
from indexer.store.schema import migrate

BUSY_MILLISECONDS = 30_000
#: Nobody holds an index so long that it cannot even be opened, but a program that is none of ours: a question goes on
#: without it.
OPEN_MILLISECONDS = 5_000
#: As much of the file is read as memory, which halves the time of reading all vectors of a large index.
MAPPED_BYTES = 1 << 30


def connect(path: Path) -> apsw.Connection:
    """Open `path` (created with mode 0600 where it is missing), migrated.

    Raises:
        NewerIndexError: a newer smart-fork has written it.
        apsw.Error: it is not a database, or the disk refuses.
    """
    private_dir(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    db = apsw.Connection(str(path))
    db.set_busy_timeout(OPEN_MILLISECONDS)
    _write_ahead(db)
    db.set_busy_timeout(BUSY_MILLISECONDS)
    db.execute(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536; "
        "PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 4000"  # each one waits for the disk
    )
    db.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}").fetchall()
    migrate(db)
    return db


def _write_ahead(db: apsw.Connection) -> None:
    """Readers never wait for the writer. Changing the mode takes the lock, for which SQLite does not wait by itself."""
    deadline = time.monotonic() + OPEN_MILLISECONDS / 1000
    while db.execute("PRAGMA journal_mode").get != "wal":
        db.execute("BEGIN IMMEDIATE; COMMIT")  # waits for whoever is doing the same just now
        try:
            if db.execute("PRAGMA journal_mode = WAL").get != "wal":
                return  # a file system without shared memory: slower, and just as safe
        except apsw.BusyError:  # somebody was quicker
            if time.monotonic() > deadline:
                raise
