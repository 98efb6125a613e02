"""``smart-fork statusline``: one segment of Claude Code's status line, for people who compose their own.

It is asked several times a minute, with the session as JSON on stdin, and says whose fork this is and what workers do.
The register is read as it is, without importing what writes it.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any, NamedTuple

from indexer.project import project_of
from indexer.safe_files import index_db
from smart_fork.cli import index_queries
from smart_fork.cli.short_ids import harmless
from smart_fork.workers.registry_file import registry_file

MAX_BYTES = 1 << 20
_TITLE = 32


def main() -> None:
    """Print the segment, if there is one. Does not return, and never fails: the line is other people's as well."""
    try:
        said = segment(json.loads(sys.stdin.buffer.read(MAX_BYTES)))
        sys.stdout.buffer.write(f"{said}\n".encode() if said else b"")
        sys.stdout.buffer.flush()
    except BaseException:  # noqa: BLE001, S110 - see above
        pass
    os._exit(0)


def segment(status: Any) -> str:
    """``fork of … · 2 workers, 1 asks`` for what Claude Code says of its session; empty where nothing is to be said."""
    session_id = _text(status, "session_id")
    directory = _text(status, "workspace", "project_dir") or _text(status, "cwd")
    there = running()
    return " · ".join(part for part in (_fork(source_of(session_id)), _working(there, session_id, directory)) if part)


def _fork(parent: str) -> str:
    if not parent:
        return ""
    return f"fork of {harmless(index_queries.title(index_db(), parent) or parent[:13], _TITLE)}"


def _working(running: list[KnownWorker], session_id: str, directory: str) -> str:
    """The workers of this session, and of the same project."""
    here = project_of(directory).key if directory else ""
    mine = [
        one
        for one in running
        if one.session_id != session_id
        and ((session_id and one.caller_session_id == session_id) or (here and project_of(one.cwd).key == here))
    ]
    if not mine:
        return ""
    asking = sum(one.status == "waiting" for one in mine)
    asks = f", {asking} ask{'s' if asking == 1 else ''}" if asking else ""
    return f"{len(mine)} worker{'s' if len(mine) > 1 else ''}{asks}"


def _text(value: Any, *names: str) -> str:
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    return value if isinstance(value, str) else ""


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
    found = [KnownWorker(*row) for row in index_queries.rows(registry_file(), query, ())]
    return [one for one in found if one.pid is None or _lives(one.pid)]


def source_of(session_id: str) -> str:
    """The session that a worker's session is a fork of, whether that worker still runs or not; empty for any other."""
    query = "SELECT source_session_id FROM workers WHERE session_id = ? AND kind IN ('fork', 'branch')"
    found = index_queries.rows(registry_file(), query, (session_id,))
    return str(found[0][0]) if found else ""


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):
        pass  # somebody else's, or no number of a process
    return True
