"""Whose logs say what their agent does."""

from __future__ import annotations

from smart_fork.agents.claude.tail import CLAUDE
from smart_fork.agents.codex.tail import CODEX
from smart_fork.agents.facets import facet_of
from smart_fork.agents.tail import Tail

_TAILS: tuple[Tail, ...] = (
    CLAUDE,
    CODEX,
)


def tail_of(agent: str) -> Tail:
    """How that agent goes on with its logs.

    Raises:
        Usage: it is not known.
    """
    return facet_of(agent, _TAILS, f"It is not known what is going on of {agent} sessions")
