"""Whose families are known."""

from __future__ import annotations

from smart_fork.agents.claude.head import ClaudeHeads
from smart_fork.agents.codex.head import CodexHeads
from smart_fork.agents.facets import facet_of
from smart_fork.agents.kin import Heads

_HEADS: tuple[Heads, ...] = (
    ClaudeHeads(),
    CodexHeads(),
)


def heads_of(agent: str) -> Heads:
    """How the logs of that agent begin.

    Raises:
        Usage: it is not known.
    """
    return facet_of(agent, _HEADS, f"The families of {agent} sessions are not known")
