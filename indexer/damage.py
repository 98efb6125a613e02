"""An index that is damaged is set aside, and a new one is built from the logs: nothing is lost but time.

It is kept as ``index.db.corrupt-<time>`` for an examination; of several the newest. One of a form that is too old to be
upgraded is ``index.db.outdated-<time>`` until all logs are read again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from indexer.errors import IndexerError
from indexer.failures import is_damage
from indexer.store.schema import OlderIndexError, opening, renaming
from indexer.store.sqlite import SqliteStore

log = logging.getLogger(__name__)

#: So many are kept, and all but the newest only as long as they are no larger together.
KEPT, KEPT_BYTES = 3, 2 << 30
#: When as many have been set aside within so long, the disk damages whatever is built: it is not built for ever.
WINDOW = timedelta(hours=1)
#: How long somebody who finds damage waits for the process that is writing just now.
_PATIENCE = 1.0
_BESIDE = ("-wal", "-shm")
_NAME = "%Y%m%dT%H%M%S"
_CORRUPT, _OUTDATED = "corrupt", "outdated"


class DamagedIndexError(IndexerError):
    """The index was found to be damaged while it was used. `aside` is where it is now, `None` where it still is."""

    code = "damaged_index"

    def __init__(self, error: BaseException, aside: Path | None) -> None:
        super().__init__(f"the index is damaged ({error})")
        self.aside = aside


@contextmanager
def open_sound(path: Path) -> Iterator[SqliteStore]:
    """The index, closed afterwards; one that cannot be opened for damage is set aside, and the new one is given.

    Raises:
        DamagedIndexError: it turned out to be damaged, and has been set aside where that was possible.
        NewerIndexError: a newer smart-fork has written it.
        OlderIndexError: an older one has, and another process is writing.
        apsw.Error, OSError: the disk, or another process, refuses.
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


def _opened(path: Path) -> tuple[SqliteStore, int]:
    """The index and its inode."""
    with opening(path):
        inode = path.stat().st_ino if path.exists() else 0
        try:
            return SqliteStore(path), path.stat().st_ino
        except Exception as error:
            if not is_damage(error) and not isinstance(error, OlderIndexError):
                raise
            found = error
    if set_aside(path, inode, found) is None:
        raise found if isinstance(found, OlderIndexError) else DamagedIndexError(found, None) from found
    with opening(path):
        store = SqliteStore(path)
        if isinstance(found, OlderIndexError):
            store.owe_erasing()  # what was set aside goes when all is read again
        return store, path.stat().st_ino


def set_aside(path: Path, inode: int, reason: BaseException) -> Path | None:
    """Rename the damaged database and what SQLite has beside it; where it is now.

    `None` where that must not be done: another process is writing, or everything is damaged again and again. If the
    file has not that `inode` any more, another process has done it.
    """
    from indexer.writer import IndexBusyError, only_writer

    try:
        with only_writer(_PATIENCE):
            before = kept(path)
            if not path.exists() or path.stat().st_ino != inode:
                return max((*before, *kept(path, _OUTDATED)), key=_time_of, default=None)
            if sum(_is_recent(one) for one in before) >= KEPT:
                log.error("the index was damaged %d times within an hour: is the disk of %s broken?", KEPT, path.parent)
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
    """Return the databases that were set aside for this reason, oldest first."""
    return sorted(one for one in path.parent.glob(f"{path.name}.{why}-*") if not one.name.endswith(_BESIDE))


def remove_older(path: Path, moment: str) -> None:
    """Remove what was set aside up to `moment` (ISO 8601 in UTC): it may hold what has been forgotten since."""
    latest = "".join(character for character in moment[:19] if character.isalnum())
    for one in (*kept(path), *kept(path, _OUTDATED)):
        if _time_of(one) <= latest:
            _remove(one)


def _rename(path: Path, why: str) -> Path:
    """What lies beside it first: if we are killed here, no old log stays beside a new database."""
    aside = path.with_name(f"{path.name}.{why}-{datetime.now(UTC).strftime(f'{_NAME}%f')}Z")
    for end in _BESIDE:
        with suppress(FileNotFoundError):
            path.with_name(path.name + end).rename(aside.with_name(aside.name + end))
    return path.rename(aside)


def _make_room(path: Path) -> None:
    """Remove the oldest; never the one that is the newest."""
    used = 0
    for number, one in enumerate(reversed(kept(path))):
        used += one.stat().st_size
        if number and (number >= KEPT or used > KEPT_BYTES):
            _remove(one)


def _remove(aside: Path) -> None:
    log.warning("%s is removed", aside)
    for end in ("", *_BESIDE):
        aside.with_name(aside.name + end).unlink(missing_ok=True)


def _is_recent(aside: Path) -> bool:
    now = datetime.now(UTC)
    return (now - WINDOW).strftime(_NAME) <= _time_of(aside) <= now.strftime(_NAME)


def _time_of(aside: Path) -> str:
    return aside.name.rpartition("-")[2][:15]
