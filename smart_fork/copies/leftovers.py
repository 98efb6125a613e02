"""Logs that are written only to be read: whoever is killed meanwhile leaves one, and the next who forks, cuts or
forgets takes it away.

Who writes holds a lock, shared with others who write; who clears up has it alone, and so finds only what the dead left.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexer.files import remove
from indexer.paths import private_dir, state_home

_LOCK = "writing.lock"


@contextmanager
def folder() -> Iterator[Path]:
    """The private folder for them, for as long as one is written and read; what was left in it is gone."""
    clear()
    with _locked(fcntl.LOCK_SH):
        yield _folder()


def clear() -> None:
    """Take away what was left, unless somebody writes just now."""
    if not any(path.name != _LOCK for path in _folder().glob("*")):
        return
    with suppress(BlockingIOError), _locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in _folder().glob("*"):
            if path.name != _LOCK:
                remove(path)


@contextmanager
def _locked(how: int) -> Iterator[None]:
    private_dir(_folder())
    file = os.open(_folder() / _LOCK, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, how)
        yield
    finally:
        os.close(file)


def _folder() -> Path:
    return state_home() / "told"
