"""Whoever waits is told that a model is being loaded, whatever it was that needed one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

#: The stage, as `indexer.changes.Progress` is told of it.
STAGE = "loading"
_told: ContextVar[Callable[[str, int, int], None] | None] = ContextVar("told", default=None)


@contextmanager
def telling(progress: Callable[[str, int, int], None] | None) -> Iterator[None]:
    """In here, and in this context alone, `progress` is told of each model that is loaded."""
    before = _told.set(progress)
    try:
        yield
    finally:
        _told.reset(before)


@contextmanager
def loading() -> Iterator[None]:
    """A model is loaded in here, which may take seconds."""
    progress = _told.get()
    if progress is not None:
        progress(STAGE, 0, 1)
    yield
    if progress is not None:
        progress(STAGE, 1, 1)
