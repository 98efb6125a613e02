"""The index for whoever searches: what keeps it from being opened is said in words for a person."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import apsw

from indexer.failures import is_damage, next_step, what_failed
from indexer.files import index_db
from indexer.store.damage import DamagedIndexError, open_sound
from indexer.store.schema import NewerIndexError, OlderIndexError
from indexer.store.sqlite import SqliteStore
from smart_fork.errors import IndexUnavailable, advice


class _KeptIndex:
    """The index between two uses by a command. It is closed if another file has taken its place meanwhile."""

    def __init__(self) -> None:
        self._held, self._inode = ExitStack(), 0
        self._store: SqliteStore | None = None

    def take(self, using: ExitStack) -> SqliteStore:
        """Return the index for a use, which `using` closes if it fails."""
        with self._held.pop_all() as held:
            if self._store is not None and self._inode == _inode():
                using.push(held.pop_all())
                return self._store
        return _opened(using)

    def put_back(self, store: SqliteStore, used: ExitStack) -> None:
        """Keep the index for the next use."""
        self._store, self._inode = store, _inode()
        self._held.push(used)

    def close(self) -> None:
        """Close the index."""
        self._held.close()


class _OfThread(threading.local):
    """The index, for as long as a thread uses it, and between its uses."""

    store: SqliteStore | None = None
    kept: _KeptIndex | None = None


_open = _OfThread()


@contextmanager
def kept_open() -> Iterator[None]:
    """Open the index at most once meanwhile, however often it is used."""
    if _open.kept is not None:
        yield
        return
    _open.kept = kept = _KeptIndex()
    try:
        yield
    finally:
        _open.kept = None
        kept.close()


@contextmanager
def opened() -> Iterator[SqliteStore]:
    """The index, made where it is missing, closed afterwards. Whoever has it open already gets the same again.

    Raises:
        IndexUnavailable: it cannot be opened, or turned out to be damaged while it was used.
            One that is damaged has been set aside; the next one who asks gets a new one.
    """
    try:
        if _open.store is not None:
            yield _open.store
            return
        with ExitStack() as using:
            _open.store = store = _open.kept.take(using) if _open.kept else _opened(using)
            try:
                yield store
            finally:
                _open.store = None
            if _open.kept:
                _open.kept.put_back(store, using.pop_all())
    except (DamagedIndexError, apsw.Error) as error:
        raise unavailable(error) from error


def _opened(using: ExitStack) -> SqliteStore:
    try:
        return using.enter_context(open_sound(index_db()))
    except (NewerIndexError, OlderIndexError, OSError, ImportError) as error:
        raise unavailable(error) from error


def _inode() -> int:
    try:
        return index_db().stat().st_ino
    except OSError:
        return 0


@contextmanager
def known_index() -> Iterator[SqliteStore | None]:
    """The index, if there is one that can be used; for whoever does without. None is made by looking."""
    with suppress(IndexUnavailable), ExitStack() as stack:
        try:
            store = stack.enter_context(opened()) if index_db().exists() else None
        except IndexUnavailable:
            store = None
        yield store


def unavailable(error: Exception) -> IndexUnavailable:
    """`error` of the index, with what to do about it."""
    path = index_db()
    if isinstance(error, DamagedIndexError) and error.aside is not None:
        what = f"The index was damaged. It is kept as {error.aside}, and smart-fork builds a new one from the logs."
        return IndexUnavailable(
            what,
            advice(
                "Ask again, or run `smart-fork index run`: words come first, embeddings later.",
                tool="Ask again: words come first, embeddings later.",
            ),
        )
    if isinstance(error, DamagedIndexError) or is_damage(error):
        hint = "The next indexing rebuilds it; " + advice(
            f"if not, delete {path}* and run `smart-fork index run`.",
            tool=f"if not, the user can delete {path}* and ask again.",
        )
    elif isinstance(error, NewerIndexError | OlderIndexError):
        hint = error.hint
    elif isinstance(error, ImportError):
        hint = "Reinstall smart-fork."
    else:
        hint = (
            next_step(error, indexing=True)
            or f"Make {path.parent} writable, or set SMART_FORK_HOME to a writable folder."
        )
    return IndexUnavailable(f"The index cannot be used: {what_failed(error)}", hint)
