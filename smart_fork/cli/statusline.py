"""``smart-fork statusline``: one segment of Claude Code's status line, for people who compose their own.

It is asked several times a minute, with the session as JSON on stdin, and says whose fork this is and what workers do.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from indexer.paths import index_db
from indexer.project import project_of
from indexer.store import glimpse
from smart_fork.cli import known_workers
from smart_fork.cli.short_ids import harmless

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
    running = known_workers.running()
    return " · ".join(
        part for part in (_fork(known_workers.source_of(session_id)), _working(running, session_id, directory)) if part
    )


def _fork(parent: str) -> str:
    if not parent:
        return ""
    return f"fork of {harmless(glimpse.title(index_db(), parent) or parent[:13], _TITLE)}"


def _working(running: list[known_workers.KnownWorker], session_id: str, directory: str) -> str:
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
