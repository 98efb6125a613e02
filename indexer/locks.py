"""Locks that admit one writer to the index at a time, and a lower priority for background indexing.

The operating system releases a lock when its process dies. Only the thread that indexes lowers its priority: a process
that is not root cannot raise it again, and would pass it to every agent that it starts.
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
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from pathlib import Path

from indexer.errors import IndexerError
from indexer.safe_files import private_dir, state_home

log = logging.getLogger(__name__)
_thread = threading.local()

#: The "nice" value of background work, -20 to 19. On Linux, the disk's priority follows it unless it was set
#: separately.
NICE = 5
#: The class for "work that the user does not wait for" in <sys/qos.h> of macOS: less processor and disk.
_QOS_CLASS_UTILITY = 0x11
_ON_MACOS = sys.platform == "darwin"
#: The layout of the system's `struct flock`.
_FLOCK = struct.Struct("qqihh" if _ON_MACOS else "hhqqi4x")


@contextmanager
def held_file(path: Path, seconds: float = -1) -> Iterator[bool]:
    """Lock a file and yield True, or False if another process holds it for `seconds` (-1: wait forever)."""
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
    """Lock a folder, as `fcntl.flock` does, until the block ends or the process dies. The lock needs no file."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, how)
        yield
    finally:
        os.close(descriptor)


def locked_by(path: Path, start: int = 0, length: int = 0) -> int | None:
    """Return the id of the process that has locked `length` bytes of a file from `start` on (length 0: all), or `None`.

    The id is 0 if the process is in another container or on another machine. No lock is taken. The caller must hold
    none on the file: this function closes the file, which would release it.
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


#: How long a search waits for another process that is indexing.
LOCK_SECONDS = 1.0
#: Interval at which a waiting process looks how far the other process is.
LOOK_SECONDS = 1.0
#: The lock that a process holds while it waits for another process that is indexing.
_WAITING_LOCK = "wanted.lock"


class IndexBusyError(IndexerError):
    """Another process is indexing."""

    code = "index_busy"
    usual_hint = "Try again in a moment."


@contextmanager
def only_writer(
    patience: float = LOCK_SECONDS, name: str = "index", waiting: Callable[[], None] | None = None
) -> Iterator[None]:
    """Hold the index's writer lock `name` in this block. Until it is free, call `waiting` about every second.

    Raises:
        IndexBusyError: another process has held the lock for `patience` seconds.
    """
    path, deadline = private_dir(state_home()) / f"{name}.lock", time.monotonic() + patience
    with ExitStack() as held:
        # While it waits for more than a moment, it holds a lock that tells a background indexer so.
        with held_file(path.with_name(_WAITING_LOCK), 0) if patience > LOCK_SECONDS else nullcontext():
            while True:
                left = max(0.0, deadline - time.monotonic())
                if held.enter_context(held_file(path, min(left, LOOK_SECONDS) if waiting else left)):
                    break
                if waiting is None or time.monotonic() >= deadline:
                    raise IndexBusyError("another process is indexing")
                waiting()
        yield


def give_way(*_: object) -> None:
    """Raise `IndexBusyError` if another process waits for the index. Call this where no work is half done.

    That process then does the rest of the work with all processors, which this indexer's low priority does not allow.
    """
    path = state_home() / _WAITING_LOCK
    if not path.exists():
        return
    with held_file(path, 0) as free:
        if not free:
            raise IndexBusyError("another process takes over the rest")


def processors() -> int:
    """Return how many processors the calling thread may use: 1 after `step_back`, else all that the process may use."""
    if getattr(_thread, "has_stepped_back", False):
        return 1
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1


def step_back() -> None:
    """Lower the priority of the calling thread, and on Linux of threads that it starts, and its `processors` to 1."""
    _thread.has_stepped_back = True
    try:
        if sys.platform == "darwin":  # where `setpriority` would be for the whole process
            import ctypes

            ctypes.CDLL(None).pthread_set_qos_class_self_np(_QOS_CLASS_UTILITY, 0)
        elif sys.platform == "linux":
            os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))
    except (OSError, AttributeError) as error:
        log.info("indexing has the priority of everything else: %s", error)
