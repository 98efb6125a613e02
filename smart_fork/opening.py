"""The index for whoever searches: what keeps it from being opened is said in words for a person."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import apsw

from indexer.paths import index_db
from indexer.store.schema import NewerIndexError
from indexer.store.sqlite import SqliteStore
from smart_fork.errors import IndexUnavailable


@contextmanager
def opened() -> Iterator[SqliteStore]:
    """The index, made where it is missing, closed afterwards.

    Raises:
        IndexUnavailable: it cannot be opened, or turns out to be damaged while it is used.
    """
    try:
        store = SqliteStore(index_db())
    except (NewerIndexError, apsw.Error, OSError, ImportError) as error:
        raise unavailable(error) from error
    try:
        yield store
    except apsw.Error as error:
        raise unavailable(error) from error
    finally:
        store.close()


def unavailable(error: Exception) -> IndexUnavailable:
    """`error` of the index, with what to do about it."""
    path = index_db()
    if isinstance(error, NewerIndexError):
        hint = "Update smart-fork, or give this version a folder of its own with SMART_FORK_HOME."
    elif isinstance(error, apsw.CorruptError | apsw.NotADBError):
        hint = f"Delete {path}*, then run `smart-fork index run`: it builds the index anew from the logs."
    elif isinstance(error, apsw.BusyError | apsw.LockedError):
        hint = "Another process is writing to it; try again."
    elif isinstance(error, ImportError):
        hint = "Reinstall smart-fork."
    else:
        hint = f"Make {path.parent} writable, or set SMART_FORK_HOME to a folder that is."
    return IndexUnavailable(f"The index cannot be used: {error}", hint)
