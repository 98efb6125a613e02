"""Whose families are known."""

from __future__ import annotations

from smart_fork.agents.claude.head import ClaudeHeads
from smart_fork.agents.codex.head import CodexHeads
from smart_fork.agents.kin import Heads
from smart_fork.errors import Usage

_HEADS: tuple[Heads, ...] = (
    ClaudeHeads(),
    CodexHeads(),
)


def heads_of(agent: str) -> Heads:
    """How the logs of that agent begin.

    Raises:
        Usage: it is not known.
    """
    if found := next((one for one in _HEADS if one.name == agent), None):
        return found
    raise Usage(f"The families of {agent} sessions are not known")
