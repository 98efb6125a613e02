"""Ends the running service, however it was started: first SIGTERM, then SIGKILL."""

from __future__ import annotations

import os
import signal
import time

from indexer.paths import state_home
from smart_fork.errors import ProgramFailed
from smart_fork.service import crashes
from smart_fork.service.address import withdraw
from smart_fork.service.lock import holder

#: How long it may take to end by itself, and to be ended.
GRACE_SECONDS, FORCE_SECONDS = 15.0, 5.0
LOOK_SECONDS = 0.05


def stop() -> bool:
    """End the service, also one that is just starting. Return False where none runs.

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
