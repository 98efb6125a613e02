"""Locks that the system lets go of when their process dies."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
