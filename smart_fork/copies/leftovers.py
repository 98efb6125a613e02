"""Logs that are written only to be read: whoever is killed meanwhile leaves one, and the next who forks, cuts or
forgets takes it away.

Who writes holds a lock, shared with others who write; who clears up has it alone, and so finds only what the dead left.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexer.files import remove
from indexer.locks import held
from indexer.paths import private_dir, state_home


@contextmanager
def folder() -> Iterator[Path]:
    """The private folder for them, for as long as one is written and read; what was left in it is gone."""
    clear()
    with held(private_dir(_folder()), fcntl.LOCK_SH):
        yield _folder()


def clear() -> None:
    """Take away what was left, unless somebody writes just now."""
    if not any(_folder().glob("*")):
        return
    with suppress(BlockingIOError), held(_folder(), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in _folder().glob("*"):
            remove(path)


def _folder() -> Path:
    return state_home() / "told"
