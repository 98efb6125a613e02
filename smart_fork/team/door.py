"""The team as the rest of smart-fork uses it: see `smart_fork.finding.team_search.Team`."""

from __future__ import annotations

from smart_fork.team.conversation import listed, look_into, read
from smart_fork.team.failed_jobs import server_state
from smart_fork.team.find import TeamSearch, fetched, is_shared

__all__ = ["fetched", "is_shared", "listed", "look_into", "read", "search", "server_state"]


def search(*, wanted: bool) -> TeamSearch:
    """Return what asks the server a question; with `wanted`, a project that has none is an error."""
    return TeamSearch(wanted=wanted)
