"""The newest session of Claude Code."""

from __future__ import annotations

from pathlib import Path

from smart_fork.agents.claude.home import claude_home
from smart_fork.errors import NotFound


def discover_newest_claude() -> Path:
    """The newest session of Claude Code over all projects; sub-agents' own files are none.

    Raises:
        NotFound: there is no such folder, or no session in it.
    """
    projects = claude_home() / "projects"
    if not projects.is_dir():
        raise NotFound(f"no Claude projects directory at {projects}", "Give a path or a session's id.")
    newest: tuple[int, Path] | None = None
    for path in sorted(projects.glob("*/*.jsonl")):
        if path.name.startswith("agent-"):
            continue
        try:
            moment = path.stat().st_mtime_ns
        except OSError:
            continue
        if newest is None or moment > newest[0]:
            newest = (moment, path)
    if newest is None:
        raise NotFound(f"no .jsonl session files under {projects}", "Give a path or a session's id.")
    return newest[1]
