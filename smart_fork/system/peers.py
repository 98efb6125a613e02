"""Process and user id of the other end of a Unix socket. Hooks import this module, so it imports little."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # `typing` itself takes longer to import than all of this
if TYPE_CHECKING:
    from typing import Protocol

    class UnixSocket(Protocol):
        """A connected Unix socket."""

        def getsockopt(self, level: int, name: int, size: int, /) -> bytes: ...


#: The service's host name on its socket. No browser can send it as the host of a page that it shows.
SERVICE = "smart-fork"


def credentials(line: UnixSocket) -> tuple[int, int]:
    """Return the process id and the user id of the process at the other end of a Unix socket.

    Raises:
        OSError: the other process is gone.
    """
    if sys.platform == "darwin":
        # SOL_LOCAL with LOCAL_PEERPID and LOCAL_PEERCRED: a version and the user begin `struct xucred`.
        process, user = line.getsockopt(0, 2, 4), line.getsockopt(0, 1, 76)[4:8]
    else:
        from _socket import SO_PEERCRED, SOL_SOCKET

        found = line.getsockopt(SOL_SOCKET, SO_PEERCRED, 12)
        process, user = found[:4], found[4:8]
    return int.from_bytes(process, sys.byteorder), int.from_bytes(user, sys.byteorder)


def is_ours(line: UnixSocket) -> bool:
    """Return True if the process at the other end of a Unix socket belongs to this process's user."""
    try:
        return credentials(line)[1] == os.geteuid()
    except OSError:
        return False
