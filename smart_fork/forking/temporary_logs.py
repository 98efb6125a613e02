"""Temporary logs that are written only to be read. The next fork, cut or forget deletes those of killed processes.

Writers share a lock. Cleaning takes it exclusively, so that it deletes files of dead processes only.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexer.files import private_dir, remove, state_home
from indexer.locks import held


@contextmanager
def folder() -> Iterator[Path]:
    """Clean the private folder for temporary logs, and yield it under the shared lock."""
    clear()
    with held(private_dir(_folder()), fcntl.LOCK_SH):
        yield _folder()


def clear() -> None:
    """Delete leftover logs, unless a process is writing."""
    if not any(_folder().glob("*")):
        return
    with suppress(BlockingIOError), held(_folder(), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in _folder().glob("*"):
            remove(path)


def _folder() -> Path:
    return state_home() / "told"
