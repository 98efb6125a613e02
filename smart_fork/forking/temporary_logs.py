"""Temporary logs, written only to be read and then deleted. Leftovers of killed processes are deleted later.

The next fork, cut (removal of turns) or forget does that. Processes that write share a lock; deleting takes it
exclusively, so that only files of dead processes go.
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
    """Yield the private folder for temporary logs. Leftovers are deleted first; a shared lock protects new files."""
    delete_leftover_logs()
    with held(private_dir(_folder()), fcntl.LOCK_SH):
        yield _folder()


def delete_leftover_logs() -> None:
    """Delete temporary logs of killed processes, unless a process is writing one."""
    if not any(_folder().glob("*")):
        return
    with suppress(BlockingIOError), held(_folder(), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for path in _folder().glob("*"):
            remove(path)


def _folder() -> Path:
    return state_home() / "told"
