"""One service a home: its process holds a lock from its start to its end, however it ends."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from indexer.paths import state_home
from smart_fork.system.locks import locked_by

_held: int | None = None


def hold() -> bool:
    """Become the process that runs the service of this home. Return False if another one does.

    Raises:
        OSError: The state folder cannot be written.
    """
    global _held  # noqa: PLW0603 - the process has the lock, not an object
    descriptor = os.open(_file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as POSIX lets a system choose
        os.close(descriptor)
        return False
    _held = descriptor
    return True


def holder() -> int | None:
    """Return the process that runs or starts the service of this home; 0 if it is in another container or machine."""
    if _held is not None:  # to open the file and close it again would release the lock
        return os.getpid()
    return locked_by(_file())


def _file() -> Path:
    return state_home() / "service.lock"
