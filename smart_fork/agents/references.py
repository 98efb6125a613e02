"""How a person names a session: by its id, by the beginning of one, or by our own id of a worker."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.text.snippets import storable

_NUMBER = re.compile(r"-\d+")


class Resolved(NamedTuple):
    """What a reference means: the id that the session has on this machine, and as what it was found."""

    session_id: str
    by: Literal["session", "worker", "alias", "team"]


class Reference(NamedTuple):
    """What a person wrote: the name of a session, and whose it is, where that was said."""

    agent: AgentName | None
    name: str


def reference(agent: AgentName, session_id: str) -> str:
    """How to say a session's id that another agent's session may have as well."""
    return f"{agent}:{session_id}"


def parsed(text: str) -> Reference:
    """A reference in its parts: "codex:70f1a07f" says whose session is meant, "70f1a07f" does not."""
    text = storable(text).strip()
    agent, colon, name = text.partition(":")
    if colon and agent.lower() in AGENTS:
        return Reference(agent.lower(), name.strip())
    return Reference(None, text)


def here(reference: str) -> Resolved:
    """What a reference to a session or a worker of this machine means."""
    return Resolved(reference, "worker" if names_worker(parsed(reference).name.lower()) else "session")


def names_worker(text: str) -> bool:
    """Whether `text` may be our own id of a worker: its agent's name, and a number."""
    return any(text.startswith(agent.name) and _NUMBER.fullmatch(text, len(agent.name)) for agent in AGENTS)


def names_session(text: str) -> bool:
    """Whether `text` may be the id of a session, the beginning of one, or our own id of a worker."""
    name = parsed(text).name
    starters = (agent.starter for agent in AGENTS if agent.starter)
    return names_worker(name) or any(starter.beginnings.fullmatch(name) for starter in starters)
