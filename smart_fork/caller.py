"""Identifies the caller: the agent and session that started this program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent

#: The agent that asks, where it is known; `None` for a person, or nobody knows whom.
calling: ContextVar[AgentName | None] = ContextVar("calling", default=None)


def caller_session(environment: Mapping[str, str], agents: Sequence[Agent] = ()) -> str | None:
    """Return the session that has started the program with this environment, if that says so.

    It is one of `agents`; without any, of any agent, and rather of the one around.
    """
    around = None if agents else AGENTS.around(environment)
    asked = agents or [*([AGENTS[around]] if around else []), *AGENTS]
    names = (name for agent in asked for name in agent.session_variables)
    return next((environment[name] for name in names if environment.get(name)), None)
