"""Who has locked a part of a file. Asking takes no lock, so nobody is kept from starting by it."""

from __future__ import annotations

import fcntl
import os
import struct
import sys
from pathlib import Path

_ON_MACOS = sys.platform == "darwin"
#: `struct flock` of the system.
_FLOCK = struct.Struct("qqihh" if _ON_MACOS else "hhqqi4x")


def locked_by(path: Path, start: int = 0, length: int = 0) -> int | None:
    """Return the process that has locked some of these bytes; 0 if it is in another container or machine.

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
