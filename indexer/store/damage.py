"""Checks for damage of the index, and repair: a damaged index is set aside (renamed) and rebuilt from the logs.

A damaged index is kept as ``index.db.corrupt-<time>``, one too old for an upgrade as ``index.db.outdated-<time>`` until
all logs are read again. Each check yields its findings as texts.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import apsw

from indexer.errors import IndexerError, is_damage
from indexer.locks import IndexBusyError, only_writer
from indexer.store.schema import BUSY_MILLISECONDS, OlderIndexError, opening, renaming
from indexer.store.sqlite import Store

log = logging.getLogger(__name__)

#: Maximum number of set-aside indexes, and maximum size of all but the newest.
MAX_KEPT, MAX_KEPT_BYTES = 3, 2 << 30
#: If the maximum number has been set aside within this time, the disk is at fault, and the index is not rebuilt again.
DAMAGE_WINDOW = timedelta(hours=1)
#: How long a process that finds damage waits for the process that is writing.
_PATIENCE = 1.0
_SQLITE_SUFFIXES = ("-wal", "-shm")
_TIME_FORMAT = "%Y%m%dT%H%M%S"
_CORRUPT, _OUTDATED = "corrupt", "outdated"


class DamagedIndexError(IndexerError):
    """The index turned out to be damaged. `aside` is the path to which it was renamed; `None` if that failed."""

    code = "damaged_index"

    def __init__(self, error: BaseException, aside: Path | None) -> None:
        super().__init__(f"the index is damaged ({error})")
        self.aside = aside


@contextmanager
def open_sound(path: Path) -> Iterator[Store]:
    """Open the index for this block. First replace one that is too old, or too damaged to be opened.

    Raises:
        DamagedIndexError: the index turned out to be damaged, and was set aside if possible.
        NewerIndexError: a newer smart-fork has written the index.
        OlderIndexError: the index is too old, and another process is writing.
        apsw.Error, OSError: the disk or another process prevents the opening.
    """
    store, inode = _opened(path)
    try:
        yield store
    except Exception as error:
        if not is_damage(error):
            raise
        store.close()
        raise DamagedIndexError(error, set_aside(path, inode, error)) from error
    finally:
        with suppress(Exception):  # what is damaged may refuse that as well
            store.close()


def _opened(path: Path) -> tuple[Store, int]:
    """Open the index, and replace it if it is damaged. Return the open index with the inode of its file."""
    with opening(path):
        inode = path.stat().st_ino if path.exists() else 0
        try:
            return Store(path), path.stat().st_ino
        except Exception as error:
            if not is_damage(error) and not isinstance(error, OlderIndexError):
                raise
            found = error
    if set_aside(path, inode, found) is None:
        raise found if isinstance(found, OlderIndexError) else DamagedIndexError(found, None) from found
    with opening(path):
        store = Store(path)
        if isinstance(found, OlderIndexError):
            store.owe_erasing()  # what was set aside goes when all is read again
        return store, path.stat().st_ino


def set_aside(path: Path, inode: int, reason: BaseException) -> Path | None:
    """Rename a database that is damaged or too old, and the files beside it. Return the new path.

    Return `None` if another process is writing, or if the index is damaged again and again. If the file no longer has
    this `inode`, another process has already renamed it; return the latest renamed one.
    """
    try:
        with only_writer(_PATIENCE):
            before = kept(path)
            if not path.exists() or path.stat().st_ino != inode:
                return max((*before, *kept(path, _OUTDATED)), key=_time_of, default=None)
            if sum(_is_recent(one) for one in before) >= MAX_KEPT:
                log.error(
                    "the index was damaged %d times within an hour: is the disk of %s broken?", MAX_KEPT, path.parent
                )
                return None
            with renaming(path):
                aside = _rename(path, _OUTDATED if isinstance(reason, OlderIndexError) else _CORRUPT)
    except (IndexBusyError, OSError) as error:
        log.warning("the damaged index %s stays where it is: %s", path, error)
        return None
    log.error("the index cannot be used (%s): it is kept as %s, and rebuilt from the logs", reason, aside)
    _make_room(path)
    return aside


def kept(path: Path, why: str = _CORRUPT) -> list[Path]:
    """Return the databases that were set aside (renamed) for the reason `why`, oldest first."""
    return sorted(one for one in path.parent.glob(f"{path.name}.{why}-*") if not one.name.endswith(_SQLITE_SUFFIXES))


def remove_older(path: Path, moment: str) -> None:
    """Remove databases set aside up to `moment` (ISO 8601 in UTC): they may contain sessions forgotten since."""
    latest = "".join(character for character in moment[:19] if character.isalnum())
    for one in (*kept(path), *kept(path, _OUTDATED)):
        if _time_of(one) <= latest:
            _remove(one)


def _rename(path: Path, why: str) -> Path:
    """Rename a database, after the files that SQLite keeps beside it.

    In this order, a killed process leaves no old file of SQLite beside a new database.
    """
    aside = path.with_name(f"{path.name}.{why}-{datetime.now(UTC).strftime(f'{_TIME_FORMAT}%f')}Z")
    for end in _SQLITE_SUFFIXES:
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(aside.with_name(aside.name + end))
    return path.rename(aside)


def _make_room(path: Path) -> None:
    """Remove the oldest databases that were set aside if they are too many or too large, but never the newest."""
    used = 0
    for number, one in enumerate(reversed(kept(path))):
        used += one.stat().st_size
        if number and (number >= MAX_KEPT or used > MAX_KEPT_BYTES):
            _remove(one)


def _remove(aside: Path) -> None:
    log.warning("%s is removed", aside)
    for end in ("", *_SQLITE_SUFFIXES):
        aside.with_name(aside.name + end).unlink(missing_ok=True)


def _is_recent(aside: Path) -> bool:
    now = datetime.now(UTC)
    return (now - DAMAGE_WINDOW).strftime(_TIME_FORMAT) <= _time_of(aside) <= now.strftime(_TIME_FORMAT)


def _time_of(aside: Path) -> str:
    return aside.name.rpartition("-")[2][:15]


#: Maximum number of findings of one kind.
MAX_FAULTS = 5
_WORD_INDEXES = (
    ("chunk_words", "chunks", "passages"), ("session_words", "sessions", "sessions"),
    ("session_work", "sessions", "sessions"),
)  # fmt: skip


@contextmanager
def read_only(path: Path) -> Iterator[apsw.Connection]:
    """Open the database for reading, as it is at one moment, even if other processes write to it."""
    with ExitStack() as stack:
        with opening(path):
            db = stack.enter_context(closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)))
            db.set_busy_timeout(BUSY_MILLISECONDS)
            db.execute("BEGIN; SELECT count(*) FROM sqlite_schema")  # it is that moment when something is first read
        yield db


def damage(db: apsw.Connection) -> Iterator[str]:
    """Yield the damage that SQLite's own check finds in pages, tables and word indexes."""
    try:
        for (said,) in db.execute(f"PRAGMA integrity_check({MAX_FAULTS})"):
            if said != "ok":
                yield str(said)
    except apsw.Error as error:  # so damaged that even the check cannot go on
        yield str(error)


def dangling(db: apsw.Connection) -> Iterator[str]:
    """Yield findings about rows that refer to missing rows, and about chunks that no session has."""
    broken: dict[tuple[str, str], int] = {}
    for table, _, other, _ in db.execute("PRAGMA foreign_key_check"):
        broken[str(table), str(other)] = broken.get((str(table), str(other)), 0) + 1
    for (table, other), number in broken.items():
        yield f"{number} rows of {table} point to missing {other}"
    lost = db.execute("SELECT count(*) FROM chunks WHERE id NOT IN (SELECT chunk FROM placements)").get
    if lost:
        yield f"{lost} passages belong to no session"


def words(db: apsw.Connection) -> Iterator[str]:
    """Yield findings about chunks and sessions missing from the word indexes, and about entries without a row."""
    parts = [part for (part,) in db.execute("SELECT id FROM parts ORDER BY id")]
    for index, table, name in _WORD_INDEXES:
        for part in parts:
            found = {row for (row,) in db.execute(f"SELECT rowid FROM {index} WHERE {index} MATCH 'part: p{part}'")}  # noqa: S608 - constants and an integer
            there = {row for (row,) in db.execute(f"SELECT id FROM {table} WHERE part = ?", (part,))}  # noqa: S608 - constants
            if missing := there - found:
                yield f"{len(missing)} {name} of part {part} are missing from the word index"
            if surplus := found - there:
                yield f"{index} has words of {len(surplus)} {name} of part {part} that are not there"
