"""The register of workers for whoever cannot wait: it is read as it is, and nothing is looked at besides."""

from __future__ import annotations

import os
from typing import NamedTuple

from indexer.store import glimpse
from smart_fork.workers.registry_file import registry_file


class KnownWorker(NamedTuple):
    """A worker that runs, as far as the register knows. `status` is what its hooks said last."""

    worker_id: str
    name: str
    status: str
    session_id: str
    source_session_id: str
    caller_session_id: str
    cwd: str
    pid: int | None


def running() -> list[KnownWorker]:
    """Those that run, newest first. One whose process is gone is none, whatever the register says."""
    query = (
        "SELECT id, name, status, coalesce(session_id, ''), source_session_id, coalesce(caller_session_id, ''), cwd,"
        " pid FROM workers WHERE state IN ('starting', 'running') ORDER BY started_at DESC"
    )
    found = [KnownWorker(*row) for row in glimpse.rows(registry_file(), query, ())]
    return [one for one in found if one.pid is None or _lives(one.pid)]


def source_of(session_id: str) -> str:
    """The session that a worker's session is a fork of, whether that worker still runs or not; empty for any other."""
    query = "SELECT source_session_id FROM workers WHERE session_id = ? AND kind IN ('fork', 'branch')"
    found = glimpse.rows(registry_file(), query, (session_id,))
    return str(found[0][0]) if found else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # somebody else's, or no number of a process
    return True
