"""Whose sessions can be copied."""

from __future__ import annotations

from smart_fork.agents.claude.copy import ClaudeCopier
from smart_fork.agents.codex.copy import CodexCopier
from smart_fork.agents.copier import Copier
from smart_fork.agents.facets import facet_of

_COPIERS: tuple[Copier, ...] = (
    ClaudeCopier(),
    CodexCopier(),
)


def copier(agent: str) -> Copier:
    """The copier of that agent.

    Raises:
        Usage: there is none.
    """
    return facet_of(agent, _COPIERS, f"There are no branches of {agent} sessions")
