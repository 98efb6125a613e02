"""Opens the index, and converts its errors to errors that say what to do."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import apsw

from indexer.errors import IndexerError, is_damage, next_step, what_failed
from indexer.safe_files import index_db
from indexer.store.damage import DamagedIndexError, open_sound
from indexer.store.sqlite import Store
from smart_fork.errors import IndexUnavailable, advice


class _OfThread(threading.local):
    """The index that a thread has open: `store` inside a block of `opened`, `between` after it.

    `between` also has the inode of the index's file, to notice a replacement. `held` closes the index.
    """

    store: Store | None = None
    between: tuple[Store, int] | None = None
    held: ExitStack | None = None


_index = _OfThread()


@contextmanager
def kept_open() -> Iterator[None]:
    """Keep the index open inside the block: each use of `opened` in the block gets the same index."""
    if _index.held is not None:
        yield
        return
    _index.held = held = ExitStack()
    try:
        yield
    finally:
        _index.held = _index.between = None
        held.close()


@contextmanager
def opened() -> Iterator[Store]:
    """Open the index for the block, and close it afterwards. A missing index is created.

    A thread that has the index open gets the open one again.

    Raises:
        IndexUnavailable: the index cannot be opened, or turned out to be damaged. A damaged index is set aside, and the
            next caller gets a new one.
    """
    try:
        if _index.store is not None:
            yield _index.store
            return
        with ExitStack() as using:
            _index.store = store = _kept(using) or _opened(using)
            try:
                yield store
            finally:
                _index.store = None
            if _index.held is not None:
                _index.between = store, _inode()
                _index.held.push(using.pop_all())
    except (DamagedIndexError, apsw.Error) as error:
        raise unavailable(error) from error


def _kept(using: ExitStack) -> Store | None:
    """Return the index that `kept_open` keeps open, unless its file was replaced. `using` closes it after an error."""
    between, _index.between = _index.between, None
    if _index.held is None or between is None:
        return None
    with _index.held.pop_all() as held:
        if between[1] != _inode():
            return None
        using.push(held.pop_all())
    return between[0]


def _opened(using: ExitStack) -> Store:
    try:
        return using.enter_context(open_sound(index_db()))
    except (IndexerError, OSError, ImportError) as error:
        raise unavailable(error) from error


def _inode() -> int:
    try:
        return index_db().stat().st_ino
    except OSError:
        return 0


@contextmanager
def known_index() -> Iterator[Store | None]:
    """Open the index for the block; yield `None` without a usable index. No index is created."""
    with suppress(IndexUnavailable), ExitStack() as stack:
        try:
            store = stack.enter_context(opened()) if index_db().exists() else None
        except IndexUnavailable:
            store = None
        yield store


def unavailable(error: Exception) -> IndexUnavailable:
    """Convert an error of the index to an `IndexUnavailable` that says what to do."""
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
    elif isinstance(error, IndexerError):
        hint = error.hint
    elif isinstance(error, ImportError):
        hint = "Reinstall smart-fork."
    else:
        hint = (
            next_step(error, indexing=True)
            or f"Make {path.parent} writable, or set SMART_FORK_HOME to a writable folder."
        )
    return IndexUnavailable(f"The index cannot be used: {what_failed(error)}", hint)
