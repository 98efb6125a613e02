"""One service a home: its process holds a lock from its start to its end, however it ends; and how it is ended."""

from __future__ import annotations

import fcntl
import os
import signal
import time
from pathlib import Path

from indexer.locks import locked_by
from indexer.safe_files import state_home
from smart_fork.cli.service import crashes
from smart_fork.cli.service.address import withdraw
from smart_fork.errors import ProgramFailed

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


#: How long it may take to end by itself, and to be ended.
GRACE_SECONDS, FORCE_SECONDS = 15.0, 5.0
LOOK_SECONDS = 0.05


def stop() -> bool:
    """End the service, also one that is just starting: by SIGTERM, then by SIGKILL. Return False where none runs.

    Raises:
        ProgramFailed: it does not end.
    """
    process = holder()
    if process is not None:
        _end(process)
        crashes.end(state_home())  # it was told to end: that is no crash
    withdraw()
    return process is not None


def _end(process: int) -> None:
    if not process:
        raise ProgramFailed("The service runs in another container or on another machine", "Stop it there.")
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, FORCE_SECONDS)):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            raise ProgramFailed(f"Process {process} is not yours to end") from error
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if holder() != process:
                return
            time.sleep(LOOK_SECONDS)
    raise ProgramFailed(f"Process {process} does not end")
