"""How each agent logs in: which variables it reads for that, and whether it would be logged in."""

from __future__ import annotations

from smart_fork.agents.claude.login import ClaudeLogin
from smart_fork.agents.codex.login import CodexLogin
from smart_fork.agents.login import Login, Standing

#: Of each agent.
LOGINS: tuple[Login, ...] = (ClaudeLogin(), CodexLogin())

__all__ = ["LOGINS", "Login", "Standing", "all_variables", "login_of"]


def login_of(agent: str) -> Login:
    """That of the agent of this name.

    Raises:
        KeyError: there is no such agent.
    """
    return {str(one.agent): one for one in LOGINS}[agent]


def all_variables() -> frozenset[str]:
    """The variables of all agents that may hold a secret, or say where it is sent."""
    return frozenset(name for one in LOGINS for name in one.variables())
