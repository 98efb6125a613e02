"""Opening the database: any number of processes at once, cold or warm."""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from pathlib import Path

import apsw

from indexer.errors import joined
from indexer.locks import held
from indexer.paths import private_dir
from indexer.store import extension
from indexer.store.schema import create

log = logging.getLogger(__name__)

BUSY_MILLISECONDS = 30_000
#: Nobody holds an index so long that it cannot even be opened, but a program that is none of ours: a question goes on
#: without it.
OPEN_MILLISECONDS = 5_000
#: As much of the file is read as memory, which halves the time of reading all vectors of a large index.
MAPPED_BYTES = 1 << 30
_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)


def connect(path: Path) -> apsw.Connection:
    """Open `path` (created with mode 0600 where it is missing), with sqlite-vec where it can be loaded.

    Where nothing may be written, as on a read-only file system, one that is there is opened to be read.

    Raises:
        NewerIndexError: a newer smart-fork has written it.
        OlderIndexError: its form is too old to be brought up to date.
        apsw.Error: it is not a database, or the disk refuses.
    """
    try:
        private_dir(path.parent)
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    except OSError as error:
        if error.errno not in _NOT_ALLOWED or not path.is_file():
            raise
        db = _to_read(path)
    else:
        db = _in_wal_mode(path)
    db.set_busy_timeout(BUSY_MILLISECONDS)
    db.execute(
        "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536; "
        "PRAGMA temp_store = MEMORY; PRAGMA wal_autocheckpoint = 4000"  # each one waits for the disk
    )
    db.execute(f"PRAGMA mmap_size = {MAPPED_BYTES}").fetchall()
    create(db)
    try:
        with_vectors(db)
    except extension.VectorsUnavailableError as error:
        log.warning("%s", joined(error.message, error.hint))
    return db


def _to_read(path: Path) -> apsw.Connection:
    """As its writers have left it: where they may still write it, with what they have beside it."""
    for how in ("mode=ro", "mode=ro&immutable=1"):
        db = apsw.Connection(
            f"{path.absolute().as_uri()}?{how}", flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        )
        try:
            db.execute("SELECT count(*) FROM sqlite_schema").fetchall()
        except (apsw.CantOpenError, apsw.ReadOnlyError, apsw.IOError):
            db.close()
        else:
            return db
    raise apsw.CantOpenError(f"{path} cannot be read")


def _in_wal_mode(path: Path) -> apsw.Connection:
    db = apsw.Connection(str(path))
    try:
        write_ahead(db, OPEN_MILLISECONDS)
    except (apsw.IOError, apsw.CantOpenError):
        # A full disk has no room for the file that connections share. One that is alone needs none, and can read.
        db.close()
        db = apsw.Connection(str(path))
        db.execute("PRAGMA locking_mode = EXCLUSIVE").fetchall()
        write_ahead(db, OPEN_MILLISECONDS)
    return db


def with_vectors(db: apsw.Connection) -> None:
    """Let this connection search and keep vectors.

    Raises:
        VectorsUnavailableError: sqlite-vec cannot be loaded.
    """
    if not extension.is_loaded(db):
        extension.load(db)


def write_ahead(db: apsw.Connection, milliseconds: int) -> None:
    """Readers never wait for the writer. Changing the mode takes the lock, for which SQLite does not wait by itself.

    Raises:
        apsw.BusyError: another process has held it for so many milliseconds.
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


def opening(path: Path) -> AbstractContextManager[None]:
    """While somebody renames the database, whoever opens it waits; any number may open it at once."""
    return _gate(path.parent, fcntl.LOCK_SH)


def renaming(path: Path) -> AbstractContextManager[None]:
    """Nobody opens the database meanwhile: it and what SQLite has beside it are several files."""
    return _gate(path.parent, fcntl.LOCK_EX)


@contextmanager
def _gate(folder: Path, how: int) -> Iterator[None]:
    """Hold the folder's own lock, which needs no file; where there is no folder, or it has no locks, go without."""
    with ExitStack() as stack:
        with suppress(OSError):
            stack.enter_context(held(folder, how))
        yield
