"""Another program's SQLite database: reading it without any write, and deleting rows so that no byte remains."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import apsw

from smart_fork.errors import ForkRefused

#: The longest wait for a writer.
BUSY_MILLISECONDS = 2000
_WORD_INDEXES = "SELECT name FROM sqlite_schema WHERE sql LIKE 'CREATE VIRTUAL TABLE%USING fts5%'"
#: The two bytes of a database's header that announce a ``-wal``, and their position.
_WAL, _AT = b"\2\2", 18


@contextmanager
def read_only(path: Path, *, locked: bool = False) -> Iterator[apsw.Connection]:
    """Yield a connection that reads the database as it is at this moment, with the changes in its ``-wal`` file.

    With `locked`, a copy is read if another program has locked the database; else that is an error.

    Raises:
        OSError: The file is not a regular file, or cannot be copied.
        apsw.Error: The database cannot be opened or read.
    """
    if not stat.S_ISREG(path.stat().st_mode):
        raise OSError(f"not a regular file: {path}")
    try:
        db = _as_it_is(path)
    except apsw.BusyError:
        if not locked:
            raise
        db = None
    if db is not None:
        with closing(db):
            yield db
        return
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:  # which nobody else can enter
        copy = Path(folder, "copy.db")
        for ending in ("", "-wal"):
            shutil.copyfile(f"{path}{ending}", f"{copy}{ending}")
        with closing(_begun(copy, "")) as db:
            yield db


@contextmanager
def with_tables(path: Path, needed: Mapping[str, Collection[str]], what: str) -> Iterator[apsw.Connection]:
    """Yield a connection that reads the database if it has the columns `needed`, given by table. A view is no table.

    `what` is the database's name in errors, such as "a Goose database".

    Raises:
        OSError: The database cannot be opened or read, or lacks a table or column.
    """
    try:
        with read_only(path) as db:
            for table, names in needed.items():
                kind = db.execute("SELECT type FROM sqlite_schema WHERE name = ?", (table,)).get
                if kind != "table" or not set(names).issubset(columns(db, table)):
                    raise OSError(f"{path} is not {what}, or its format is newer")
            yield db
    except (apsw.Error, UnicodeDecodeError) as error:
        raise OSError(f"{path} cannot be read: {error}") from error


def columns(db: apsw.Connection, table: str) -> list[str]:
    """Return the names of a table's columns."""
    return [str(name) for (name,) in db.execute("SELECT name FROM pragma_table_info(?)", (table,))]


@contextmanager
def rewriting(path: Path, *, alone: bool = False) -> Iterator[apsw.Connection]:
    """Yield a connection in a transaction for deleting rows, and commit so that no byte of the rows remains.

    Free pages, word indexes and the ``-wal`` file are cleaned as well. With `alone`, no other program may have the
    database open.

    Raises:
        apsw.Error: The database cannot be written, or a program still reads deleted bytes in the ``-wal``.
    """
    locking, begin = ("EXCLUSIVE", "EXCLUSIVE") if alone else ("NORMAL", "IMMEDIATE")
    with closing(apsw.Connection(str(path.resolve()), flags=apsw.SQLITE_OPEN_READWRITE)) as db:
        db.set_busy_timeout(BUSY_MILLISECONDS)
        db.execute(
            f"PRAGMA trusted_schema = OFF; PRAGMA locking_mode = {locking}; PRAGMA secure_delete = ON"
        ).fetchall()
        db.execute(f"BEGIN {begin}")
        yield db
        for (table,) in db.execute(_WORD_INDEXES).fetchall():
            db.execute(f'INSERT INTO "{table}"("{table}") VALUES (\'rebuild\')')  # noqa: S608 - its own
        db.execute("COMMIT; VACUUM").fetchall()
        if db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()[0][0]:
            raise apsw.BusyError("something reads it")


def erase(path: Path, owner: str, change: Callable[[apsw.Connection], object]) -> None:
    """Delete rows with `change`, so that no byte of them remains. `owner` is the program's name for errors.

    Raises:
        ForkRefused: The database cannot be changed, or a program still reads deleted bytes in the ``-wal``.
    """
    if not path.is_file():
        return
    try:
        with rewriting(path) as db:
            change(db)
    except apsw.Error as error:
        raise ForkRefused(
            f"{owner}'s database cannot be changed: {path}: {error}", f"End {owner}. Try again."
        ) from error


def _as_it_is(path: Path) -> apsw.Connection | None:
    """Open the database in place for reading; `None` if SQLite would have to write a file beside it, so copy it."""
    if not _size(f"{path}-wal"):
        with path.open("rb") as file:
            has_wal = file.read(_AT + len(_WAL))[_AT:] == _WAL
        if not has_wal:  # with a rollback journal no file is made; where it is locked it is read as it is
            with suppress(apsw.Error):
                return _begun(path, "")
        return _begun(path, "immutable=1")  # without anything to replay nobody writes
    # The first reader of a `-shm` locks it briefly to write it again. If the program starts in that moment, it ends
    # with "database is locked". So the `-shm` is opened read-only.
    with suppress(apsw.CantOpenError, apsw.ReadOnlyError):
        return _begun(path, "readonly_shm=1")
    return None


def _begun(path: Path, how: str) -> apsw.Connection:
    uri = f"{Path(os.path.realpath(path)).as_uri()}?mode=ro&{how}"
    db = apsw.Connection(uri, flags=apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI)
    try:
        db.set_busy_timeout(BUSY_MILLISECONDS)
        db.execute("PRAGMA trusted_schema = OFF; BEGIN; SELECT 1 FROM sqlite_schema").fetchall()
    except BaseException:
        db.close()
        raise
    return db


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - as text
    except OSError:
        return 0
