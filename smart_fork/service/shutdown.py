"""Ending the service that runs, however it was started: it is asked first, then ended by the system."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path

import psutil

from indexer.paths import state_home
from smart_fork.errors import ProgramFailed
from smart_fork.processes import SystemProcesses, every_process
from smart_fork.service import crashes
from smart_fork.service.address import Address, announced, withdraw
from smart_fork.service.client import find_service

#: How long it may take to end by itself, and to be ended.
GRACE_SECONDS, FORCE_SECONDS = 15.0, 5.0
LOOK_SECONDS = 0.05
#: A process that began so much later than the service said where it listens has only got its number.
LATER_SECONDS = 5.0


def stop() -> bool:
    """End the service. False where none runs; what one that died has left behind is cleared away.

    One that is just starting has not said yet where it listens: it is known by its command, and by its home.

    Raises:
        ProgramFailed: it does not end.
    """
    address = announced()
    process = process_of(address) if address else None
    found = {one.pid: one for one in (process, *starting()) if one is not None}
    for one in found.values():
        _end(one)
    if found:
        crashes.end(state_home())  # it was told to end: that is no crash
    if address is not None:
        withdraw(address)
    return bool(found)


def starting() -> Iterator[psutil.Process]:
    """Processes of one's own that are to be the service of this home, whether they have come up already or not."""
    home = os.path.realpath(state_home())
    for process in every_process():
        try:
            serves = process.pid != os.getpid() and _serves(process.cmdline())
            if serves and _is_ones_own(process) and _home_of(process) == home:
                yield process
        except (psutil.Error, OSError):  # it has ended, or is somebody else's
            continue


def _serves(argv: Sequence[str]) -> bool:
    """Whether this is `smart-fork serve`, run in any of the ways in which it is."""
    if "serve" not in argv[1:]:
        return False
    program, *words = argv[: argv.index("serve", 1)]
    if Path(program).name.startswith("python"):
        return any(Path(word).name == "smart-fork" or word == "smart_fork" for word in words)
    return Path(program).name == "smart-fork"


def _is_ones_own(process: psutil.Process) -> bool:
    """Whether it is the same person's, and sees the same files: a container's may have a home of the same name."""
    if process.uids().real != os.getuid():
        return False
    root = Path("/proc", str(process.pid), "root")
    return not root.parent.exists() or root.samefile("/")


def _home_of(process: psutil.Process) -> str:
    env = process.environ()
    return os.path.realpath(Path(env.get("SMART_FORK_HOME") or f"{env.get('HOME', '~')}/.smart-fork").expanduser())


def process_of(address: Address) -> psutil.Process | None:
    """The service's process, unless it is gone and another has its number."""
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
