"""Who may write the index: one process at a time, and who waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from indexer.errors import IndexerError
from indexer.locks import held_file
from indexer.paths import private_dir, state_home

#: How long somebody who asks a question waits for another process that is indexing.
LOCK_SECONDS = 1.0
#: Between two looks at how far another process is.
LOOK_SECONDS = 1.0
#: Held by who waits for another process that is indexing.
_WANTED = "wanted.lock"


class IndexBusyError(IndexerError):
    """Another process is indexing."""

    code = "index_busy"
    usual_hint = "Try again in a moment."


@contextmanager
def only_writer(patience: float, name: str = "index", waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the index's writer lock; the system lets go of it when the process dies.

    `waiting` is called about every second for as long as another process has it.

    Raises:
        IndexBusyError: another process has held it for `patience` seconds.
    """
    path, deadline = private_dir(state_home()) / f"{name}.lock", time.monotonic() + patience
    with ExitStack() as held:
        with _wanting(patience):
            while True:
                left = max(0.0, deadline - time.monotonic())
                if held.enter_context(held_file(path, min(left, LOOK_SECONDS) if waiting else left)):
                    break
                if waiting is None or time.monotonic() >= deadline:
                    raise IndexBusyError("another process is indexing")
                waiting()
        yield


@contextmanager
def _wanting(patience: float) -> Iterator[None]:
    """Have who indexes in the background know that somebody waits, and not for a moment only."""
    if patience <= LOCK_SECONDS:
        yield
        return
    with held_file(private_dir(state_home()) / _WANTED, 0):  # where it is not had, another one waits, too
        yield


def give_way(*_: object) -> None:
    """For who indexes in the background, where nothing is half done: whoever waits for it does the rest itself, with
    all processors. A process that has stepped back could not.

    Raises:
        IndexBusyError: somebody waits.
    """
    path = state_home() / _WANTED
    if not path.exists():
        return
    with held_file(path, 0) as free:
        if not free:
            raise IndexBusyError("another process takes over the rest")
