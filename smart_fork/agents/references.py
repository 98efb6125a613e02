"""A person's references to sessions: an id, its beginning, or smart-fork's id of a worker."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.snippets import storable

_NUMBER = re.compile(r"-\d+")


class Resolved(NamedTuple):
    """A resolved reference: the session's id on this machine, and the kind of reference.

    `warnings` tell what is not in a copy of a team's session.
    """

    session_id: str
    by: Literal["session", "worker", "alias", "team"]
    warnings: tuple[str, ...] = ()


class Reference(NamedTuple):
    """A parsed reference: the session's name, and its agent if given."""

    agent: AgentName | None
    name: str


def reference(agent: AgentName, session_id: str) -> str:
    """Return a reference to a session that is unique among all agents."""
    return f"{agent}:{session_id}"


def parsed(text: str) -> Reference:
    """Parse a reference: "codex:70f1a07f" names the agent, "70f1a07f" does not."""
    text = storable(text).strip()
    agent, colon, name = text.partition(":")
    if colon and agent.lower() in AGENTS:
        return Reference(agent.lower(), name.strip())
    return Reference(None, text)


def here(reference: str) -> Resolved:
    """Resolve a reference to a session or a worker of this machine."""
    return Resolved(reference, "worker" if names_worker(parsed(reference).name.lower()) else "session")


def names_worker(text: str) -> bool:
    """Return whether `text` can be smart-fork's id of a worker: an agent's name, and a number."""
    return any(text.startswith(agent.name) and _NUMBER.fullmatch(text, len(agent.name)) for agent in AGENTS)


def names_session(text: str) -> bool:
    """Return whether `text` can be a session's id, its beginning, or smart-fork's id of a worker."""
    name = parsed(text).name
    starters = (agent.starter for agent in AGENTS if agent.starter)
    return names_worker(name) or any(starter.beginnings.fullmatch(name) for starter in starters)
