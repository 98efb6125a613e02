"""Locks of the indexer: one writer at a time, and reduced priority beside other work.

The system lets go of a lock when its process dies. Indexing takes what others leave over: the thread that does it steps
back, and nothing else of its process. A process that is not root cannot become more important again, nor can what it
starts. So a service that was started with a low priority would give that to every agent it starts.
"""

from __future__ import annotations

import fcntl
import logging
import os
import struct
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from indexer.errors import IndexerError
from indexer.files import private_dir, state_home

log = logging.getLogger(__name__)
_thread = threading.local()

#: Of -20…19. On Linux the disk follows: its priority is that of the processor, where none of its own was set.
NICE = 5
#: "Work that the user does not wait for", in <sys/qos.h> of macOS: less of processor and disk.
_QOS_CLASS_UTILITY = 0x11
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


#: How long somebody who asks a question waits for another process that is indexing.
LOCK_SECONDS = 1.0
#: Between two looks at how far another process is.
LOOK_SECONDS = 1.0
#: Held by who waits for another process that is indexing.
_WANTED = "wanted.lock"


class IndexBusyError(IndexerError):
    """Another process is indexing."""

    code = "index_busy"
    usual_hint = "Try again in a moment."


@contextmanager
def only_writer(patience: float, name: str = "index", waiting: Callable[[], None] | None = None) -> Iterator[None]:
    """Hold the index's writer lock; the system lets go of it when the process dies.

    `waiting` is called about every second for as long as another process has it.

    Raises:
        IndexBusyError: another process has held it for `patience` seconds.
    """
    path, deadline = private_dir(state_home()) / f"{name}.lock", time.monotonic() + patience
    with ExitStack() as held:
        with _wanting(patience):
            while True:
                left = max(0.0, deadline - time.monotonic())
                if held.enter_context(held_file(path, min(left, LOOK_SECONDS) if waiting else left)):
                    break
                if waiting is None or time.monotonic() >= deadline:
                    raise IndexBusyError("another process is indexing")
                waiting()
        yield


@contextmanager
def _wanting(patience: float) -> Iterator[None]:
    """Have who indexes in the background know that somebody waits, and not for a moment only."""
    if patience <= LOCK_SECONDS:
        yield
        return
    with held_file(private_dir(state_home()) / _WANTED, 0):  # where it is not had, another one waits, too
        yield


def give_way(*_: object) -> None:
    """For who indexes in the background, where nothing is half done: whoever waits for it does the rest itself, with
    all processors. A process that has stepped back could not.

    Raises:
        IndexBusyError: somebody waits.
    """
    path = state_home() / _WANTED
    if not path.exists():
        return
    with held_file(path, 0) as free:
        if not free:
            raise IndexBusyError("another process takes over the rest")


def processors() -> int:
    """Count the processors for the calling thread: one if it has stepped back, else all of this process."""
    if getattr(_thread, "has_stepped_back", False):
        return 1
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def step_back() -> None:
    """Lower the priority of the calling thread, for good; threads that it starts on Linux have the same.

    It takes one processor from then on.
    """
    _thread.has_stepped_back = True
    try:
        if sys.platform == "darwin":  # where `setpriority` would be for the whole process
            import ctypes

            ctypes.CDLL(None).pthread_set_qos_class_self_np(_QOS_CLASS_UTILITY, 0)
        elif sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    except (OSError, AttributeError) as error:
        log.info("indexing has the priority of everything else: %s", error)
