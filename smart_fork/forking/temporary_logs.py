"""Temporary session logs, written only to be read once and then deleted.

A killed process leaves its temporary logs behind. The next command that forks, cuts (removes turns) or forgets
sessions deletes them. Processes that write temporary logs hold a shared lock. Deleting needs the exclusive lock, so
that only files of dead processes are deleted.
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
    """Yield the private folder for temporary logs. Logs of killed processes are deleted first.

    Inside the context, a shared lock protects the folder's new files from deletion by other processes.
    """
    delete_leftover_logs()
    with held(private_dir(_folder()), fcntl.LOCK_SH):
        yield _folder()


def delete_leftover_logs() -> None:
    """Delete temporary logs of killed processes. If a living process is writing a temporary log, delete nothing."""
    if not any(_folder().glob("*")):
        return
    with suppress(BlockingIOError), held(_folder(), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in _folder().glob("*"):
            remove(path)


def _folder() -> Path:
    return state_home() / "told"
