"""Whose logs say what their agent does."""

from __future__ import annotations

from smart_fork.agents.claude.tail import ClaudeTail
from smart_fork.agents.codex.tail import CodexTail
from smart_fork.agents.tail import Tail
from smart_fork.errors import Usage

_TAILS: tuple[Tail, ...] = (
    ClaudeTail(),
    CodexTail(),
)


def tail_of(agent: str) -> Tail:
    """How that agent goes on with its logs.

    Raises:
        Usage: it is not known.
    """
    if found := next((one for one in _TAILS if one.name == agent), None):
        return found
    raise Usage(f"It is not known what is going on of {agent} sessions")
