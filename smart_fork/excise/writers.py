"""Whether somebody is writing to a transcript: it is not cut then.

Agents note which sessions they have open, or lock them; older versions say nothing, but who has the file open is seen
where the system tells.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from smart_fork.agents.facets import find_cutter
from smart_fork.cuts.cutter import Cutter
from smart_fork.cuts.model import Transcript
from smart_fork.errors import ForkRefused
from smart_fork.places.liveness import lives
from smart_fork.registry.workers import known_workers
from smart_fork.system.processes import Processes


@contextmanager
def nobody_writing(session: Transcript) -> Iterator[None]:
    """Nobody is, and as far as its agent can be kept from it nobody begins to.

    Raises:
        ForkRefused: somebody is.
    """
    who = writer_of(session)
    if who:
        raise ForkRefused(
            f"The session is running: {session.session_id} ({who})",
            "End it first; or cut a copy of it: smart_fork.excise.branch.",
        )
    agent = find_cutter(session.tool)
    lock = agent.hold(session) if agent else None
    try:
        yield
    finally:
        if lock is not None:
            os.close(lock)


def writer_of(session: Transcript) -> str:
    """Who has the session open; empty where nobody is seen."""
    agent = find_cutter(session.tool)
    if agent and not agent.writes_on:
        return ""
    noted, locked = (agent.writer_of(session), _holder_of_lock(agent, session)) if agent else ("", "")
    return noted or _worker(session) or locked or _holder_of_file(session)


def _worker(session: Transcript) -> str:
    own = (worker for worker in known_workers() if worker.session_id == session.session_id)
    living = (worker.id for worker in own if lives(worker, Processes(), os.environ, time.time()))
    return next((f"worker {one}" for one in living), "")


def _holder_of_lock(agent: Cutter, session: Transcript) -> str:
    try:
        descriptor = agent.hold(session)
    except OSError:
        return agent.holder
    if descriptor is not None:
        os.close(descriptor)
    return ""


def _holder_of_file(session: Transcript) -> str:
    """A process other than this one that has the file open for writing, where the system tells (Linux)."""
    try:
        wanted = _identity(session.source_path.stat())
        processes = [*os.scandir("/proc")]
    except OSError:
        return ""
    for pid in (one.name for one in processes if one.name.isdigit()):
        if int(pid) == os.getpid():
            continue
        for link in _opened_by(pid):
            try:
                found = _identity(link.stat())
            except OSError:  # closed meanwhile
                continue
            if found == wanted and _writes(Path(f"/proc/{pid}/fdinfo/{link.name}")):
                return f"process {pid} has its file open"
    return ""


def _identity(file: os.stat_result) -> tuple[int, int]:
    return file.st_dev, file.st_ino


def _opened_by(pid: str) -> list[os.DirEntry[str]]:
    """What a process has open: thousands of files in all, so without a `Path` of each."""
    with suppress(OSError):  # it has ended, or is somebody else's
        return [*os.scandir(f"/proc/{pid}/fd")]
    return []


def _writes(info: Path) -> bool:
    with suppress(OSError, StopIteration):
        flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:"))
        return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False
