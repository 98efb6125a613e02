"""How each agent is told of our MCP server: where its settings are, and one entry in them. One file each."""

from __future__ import annotations

from smart_fork.agents.registration.base import NAME, Registration, UnsuitableError
from smart_fork.agents.registration.claude import ClaudeRegistration
from smart_fork.agents.registration.codex import CodexRegistration

#: Of each agent.
REGISTRATIONS: tuple[Registration, ...] = (ClaudeRegistration(), CodexRegistration())

__all__ = ["NAME", "REGISTRATIONS", "Registration", "UnsuitableError", "registration_of"]


def registration_of(agent: str) -> Registration:
    """That of the agent of this name.

    Raises:
        KeyError: there is no such agent.
    """
    return {str(one.agent): one for one in REGISTRATIONS}[agent]
