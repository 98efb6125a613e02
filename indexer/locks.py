"""Locks that the system lets go of when their process dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


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
