"""Whose sessions can be copied."""

from __future__ import annotations

from smart_fork.agents.claude.copy import ClaudeCopier
from smart_fork.agents.codex.copy import CodexCopier
from smart_fork.agents.copier import Copier
from smart_fork.errors import Usage

_COPIERS: tuple[Copier, ...] = (
    ClaudeCopier(),
    CodexCopier(),
)


def copier(agent: str) -> Copier:
    """The copier of that agent.

    Raises:
        Usage: there is none.
    """
    if found := next((one for one in _COPIERS if one.name == agent), None):
        return found
    raise Usage(f"There are no branches of {agent} sessions")
