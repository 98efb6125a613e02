"""Temporary session logs, written only to be read once and then deleted.

Processes that write them hold a shared lock. The next command that forks, cuts (removes turns) or forgets sessions
deletes those of killed processes: deleting needs the exclusive lock.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from indexer.locks import held
from indexer.safe_files import private_dir, remove, state_home


@contextmanager
def temporary_log_folder() -> Iterator[Path]:
    """Yield the private folder for temporary logs, and lock it against deletion of its new files.

    Logs of killed processes are deleted first.
    """
    delete_leftover_logs()
    with held(private_dir(_folder()), fcntl.LOCK_SH):
        yield _folder()


def delete_leftover_logs() -> None:
    """Delete temporary logs of killed processes, unless a living process is writing one."""
    if not any(_folder().glob("*")):
        return
    with suppress(BlockingIOError), held(_folder(), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in _folder().glob("*"):
            remove(path)


def _folder() -> Path:
    return state_home() / "told"
