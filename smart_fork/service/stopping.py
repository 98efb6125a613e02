"""Ending the service that runs, however it was started: it is asked first, then ended by the system (R-070)."""

from __future__ import annotations

import time
from datetime import datetime

import psutil

from smart_fork.errors import ProgramFailed
from smart_fork.processes import SystemProcesses
from smart_fork.service.address import Address, announced, withdraw
from smart_fork.service.client import find_service

#: How long it may take to end by itself, and to be ended.
GRACE_SECONDS, FORCE_SECONDS = 15.0, 5.0
LOOK_SECONDS = 0.05
#: A process that began so much later than the service said where it listens has only got its number.
LATER_SECONDS = 5.0


def stop() -> bool:
    """End the service. False where none runs; what one that died has left behind is cleared away.

    Raises:
        ProgramFailed: it does not end.
    """
    address = announced()
    if address is None:
        return False
    process = _process_of(address)
    if process is not None:
        _end(process)
    withdraw(address)
    return process is not None


def _process_of(address: Address) -> psutil.Process | None:
    """The service's process, unless it is gone and another has its number (X-003)."""
    if not SystemProcesses().alive(address.pid):
        return None
    try:
        process = psutil.Process(address.pid)
        said = datetime.fromisoformat(address.started).timestamp()
        older = process.create_time() <= said + LATER_SECONDS
    except psutil.NoSuchProcess:
        return None
    except ValueError:
        older = False
    return process if older or find_service(any_version=True) is not None else None


def _end(process: psutil.Process) -> None:
    try:
        process.terminate()
        if not _gone(process.pid, GRACE_SECONDS):
            process.kill()
    except psutil.NoSuchProcess:
        return
    except psutil.AccessDenied as error:
        raise ProgramFailed(f"Process {process.pid} is not yours to end") from error
    if not _gone(process.pid, FORCE_SECONDS):
        raise ProgramFailed(f"Process {process.pid} does not end")


def _gone(pid: int, seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while SystemProcesses().alive(pid):
        if time.monotonic() >= deadline:
            return False
        time.sleep(LOOK_SECONDS)
    return True
