"""Recent sessions as JSON values, for the command line and MCP."""

from __future__ import annotations

from typing import Any, NamedTuple

from smart_fork.agents import AGENTS
from smart_fork.errors import Usage
from smart_fork.retrieval.finding import current_project
from smart_fork.retrieval.recent import recent_sessions
from smart_fork.retrieval.results import recent_session
from smart_fork.snippets import shown


class Listing(NamedTuple):
    """Sessions as JSON values, and how many that no person started were left out."""

    sessions: list[dict[str, Any]]
    hidden: int


def list_recent(
    agent: str, project: str | None, limit: int, *, everywhere: bool = False, automated: bool = False
) -> Listing:
    """The newest sessions of a project, straight from the logs.

    Raises:
        Usage: an unknown agent or directory, or a limit below 1.
    """
    if agent not in ("claude", "codex", "both"):
        raise Usage(f"agent_type must be 'claude', 'codex', or 'both', not {shown(agent)}")
    if limit < 1:
        raise Usage(f"limit must be at least 1, not {limit}", "Leave it out for the default.")
    adapters = [one for one in AGENTS if agent in (one.name, "both")]
    within = None if everywhere else current_project(project)
    found = recent_sessions(adapters, within, limit, automated=automated)
    return Listing([recent_session(session) for session in found.sessions], found.hidden)
