"""The index for whoever searches: what keeps it from being opened is said in words for a person."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import apsw

from indexer.damage import DamagedIndexError, open_sound
from indexer.failures import is_damage, next_step, what_failed
from indexer.paths import index_db
from indexer.store.schema import NewerIndexError, OlderIndexError
from indexer.store.sqlite import SqliteStore
from smart_fork.errors import IndexUnavailable, advice


class _OfThread(threading.local):
    """The index, for as long as a thread has it open."""

    store: SqliteStore | None = None


_open = _OfThread()


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
        with ExitStack() as stack:
            try:
                store = stack.enter_context(open_sound(index_db()))
            except (NewerIndexError, OlderIndexError, OSError, ImportError) as error:
                raise unavailable(error) from error
            _open.store = store
            stack.callback(setattr, _open, "store", None)
            yield store
    except (DamagedIndexError, apsw.Error) as error:
        raise unavailable(error) from error


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
