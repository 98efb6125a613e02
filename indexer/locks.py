"""Locks that the system lets go of when their process dies, and who has one."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_ON_MACOS = sys.platform == "darwin"
#: `struct flock` of the system.
_FLOCK = struct.Struct("qqihh" if _ON_MACOS else "hhqqi4x")


@contextmanager
def held_file(path: Path, seconds: float = -1) -> Iterator[bool]:
    """Lock a file, and yield whether nobody else has held it for so many seconds; by default it is waited for."""
    from filelock import FileLock, Timeout  # takes a while to import, and most questions lock nothing

    lock = FileLock(path, mode=0o600)
    with suppress(Timeout):
        lock.acquire(timeout=seconds)
    try:
        yield lock.is_locked
    finally:
        lock.release()


@contextmanager
def held(folder: Path, how: int) -> Iterator[None]:
    """A lock on a folder, as `fcntl.flock` takes it, until it is left or the process dies. It needs no file.

    Raises:
        OSError: it cannot be had.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def locked_by(path: Path, start: int = 0, length: int = 0) -> int | None:
    """Return the process that has locked some of these bytes; 0 if it is in another container or machine.

    Asking takes no lock, so nobody is kept from starting by it.
    The caller must have no lock of its own on the file: opening and closing it here would release that.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    kind, where = fcntl.F_WRLCK, os.SEEK_SET
    ours = (start, length, 0, kind, where) if _ON_MACOS else (kind, where, start, length, 0)
    try:
        said = _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, _FLOCK.pack(*ours)))
    finally:
        os.close(descriptor)
    process, kind = (said[2], said[3]) if _ON_MACOS else (said[4], said[0])
    return None if kind == fcntl.F_UNLCK else max(0, process)
