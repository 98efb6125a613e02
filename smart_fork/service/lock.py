"""One service a home: its process holds a lock from its start to its end, however it ends."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

from indexer.paths import state_home

_ON_MACOS = sys.platform == "darwin"
#: `struct flock` of the system.
_FLOCK = struct.Struct("qqihh" if _ON_MACOS else "hhqqi4x")
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
    try:
        descriptor = os.open(_file(), os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    ours = (0, 0, 0, fcntl.F_WRLCK, os.SEEK_SET) if _ON_MACOS else (fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        said = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(*ours)))
    finally:
        os.close(descriptor)
    process, kind = (said[2], said[3]) if _ON_MACOS else (said[4], said[0])
    return None if kind == fcntl.F_UNLCK else max(0, process)


def _file() -> Path:
    return state_home() / "service.lock"
