"""Whether somebody is writing to a transcript: it is not cut then (E-075).

Claude Code notes each running session in ``sessions/<pid>.json`` and takes the note away at its end. Codex holds a lock
for each session that it has open, also in its background server for a while after its window was closed; older versions
of both say nothing, but who has the file open is seen where the system tells.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from indexer.paths import claude_home, codex_home, state_home
from smart_fork.errors import ForkRefused
from smart_fork.excise.model import Session
from smart_fork.places.liveness import lives
from smart_fork.processes import SystemProcesses
from smart_fork.registry import Registry

_ID = re.compile(r"[0-9a-fA-F-]{36}")


@contextmanager
def nobody_writing(session: Session) -> Iterator[None]:
    """Nobody is, and as far as Codex can be kept from it nobody begins to.

    Raises:
        ForkRefused: somebody is.
    """
    who = writer_of(session)
    if who:
        raise ForkRefused(
            f"The session is running: {session.session_id} ({who})",
            "End it first; or cut a copy of it: smart_fork.excise.branch.",
        )
    lock = _lock_of(session)
    if lock is None:
        yield
        return
    try:
        yield
    finally:
        os.close(lock)


def writer_of(session: Session) -> str:
    """Who has the session open; empty where nobody is seen."""
    if session.tool == "cursor":
        return ""
    return _note_of_claude(session) or _worker(session) or _holder_of_lock(session) or _holder_of_file(session)


def _note_of_claude(session: Session) -> str:
    if session.tool != "claude":
        return ""
    for path in (claude_home() / "sessions").glob("*.json"):
        try:
            note = orjson.loads(path.read_bytes())
        except (OSError, orjson.JSONDecodeError):
            continue
        pid = note.get("pid") if isinstance(note, dict) else None
        if isinstance(pid, int) and note.get("sessionId") == session.session_id and SystemProcesses().alive(pid):
            return f"Claude Code, process {pid}"
    return ""


def _worker(session: Session) -> str:
    if not (state_home() / "workers.db").exists():
        return ""
    with Registry() as registry:
        for worker in registry.workers(states=("starting", "running")):
            if worker.session_id == session.session_id and lives(worker, SystemProcesses(), os.environ, time.time()):
                return f"worker {worker.id}"
    return ""


def _lock_path(session: Session) -> Path:
    return codex_home() / "thread-writer-locks" / f"{session.session_id}.lock"


def _lock_of(session: Session) -> int | None:
    """Codex's own lock of this session, where it has one, held by us; the file is only opened."""
    if session.tool != "codex" or not _ID.fullmatch(session.session_id):
        return None
    try:
        descriptor = os.open(_lock_path(session), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def _holder_of_lock(session: Session) -> str:
    try:
        descriptor = _lock_of(session)
    except OSError:
        return "Codex has it open; its server lets go of it a while after its last window: codex app-server daemon stop"
    if descriptor is not None:
        os.close(descriptor)
    return ""


def _holder_of_file(session: Session) -> str:
    """A process other than this one that has the file open for writing, where the system tells (Linux)."""
    try:
        wanted = session.source_path.stat()
    except OSError:
        return ""
    own = str(os.getpid())
    for folder in Path("/proc").glob("[0-9]*/fd"):
        pid = folder.parent.name
        if pid == own:
            continue
        try:
            for link in folder.iterdir():
                info = link.stat()
                same = (info.st_dev, info.st_ino) == (wanted.st_dev, wanted.st_ino)
                if same and _writes(folder.parent / "fdinfo" / link.name):
                    return f"process {pid} has its file open"
        except OSError:
            continue
    return ""


def _writes(info: Path) -> bool:
    try:
        flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:"))
    except (OSError, StopIteration):
        return False
    return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
