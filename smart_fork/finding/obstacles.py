"""What keeps a session from being forked. Results say it, and forks are refused for it: one function decides."""

from __future__ import annotations

import os

from indexer.shapes import dataclass
from indexer.transcripts.files import file_of
from indexer.transcripts.model import AgentName
from smart_fork.errors import advice
from smart_fork.text.snippets import shown
from smart_fork.whereabouts import is_there, unplaced, where_now


@dataclass(frozen=True, slots=True)
class Forkable:
    """A session that may be forked. `asked` is whether anybody has asked anything in it.

    `path` is its log, `cwd` where it worked, `works_in` where the fork is to work if not there.
    """

    agent: AgentName
    session_id: str
    path: str | None
    cwd: str
    origin: str
    asked: bool
    works_in: str | None = None


def obstacles(one: Forkable) -> list[str]:
    """Why it cannot be forked now; empty where it can."""
    return [why for why in (_of_its_log(one), _of_its_kind(one), _of_its_place(one)) if why]


def _of_its_log(one: Forkable) -> str:
    file = file_of(one.path) if one.path else ""
    size = _size(file)
    if size is None:
        from indexer import kept_logs  # nearly all sessions have their logs

        return "" if kept_logs.find(one.agent, one.session_id) is not None else _deleted()
    if size == 0 or not one.asked:
        return "it has no prompt yet"
    return "" if os.access(file, os.R_OK) else "its log cannot be read"


def _of_its_kind(one: Forkable) -> str:
    return "it is a sub-agent's log; fork the session that started it" if one.origin == "subagent" else ""


def _of_its_place(one: Forkable) -> str:
    if one.works_in is not None or is_there(where_now(one.cwd)):
        return ""
    elsewhere = advice("give one: smart-fork fork ID --cwd DIR", tool="give one: project_path")
    return f"{unplaced(one.cwd) or f'its directory no longer exists: {shown(one.cwd)}'}; {elsewhere}"


def _deleted() -> str:
    return advice(
        "its log is deleted; `smart-fork show` prints it, but it cannot be forked",
        tool="its log is deleted; read_session reads it, but it cannot be forked",
    )


def _size(path: str) -> int | None:
    try:
        return os.stat(path).st_size if path else None  # noqa: PTH116 - may be an empty text
    except OSError:
        return None
