"""How a person names a session: by its id, by the beginning of one, or by our own id of a worker."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from smart_fork.agents import AGENTS

_NUMBER = re.compile(r"-\d+")


class Resolved(NamedTuple):
    """What a reference means: the id that the session has on this machine, and as what it was found."""

    session_id: str
    by: Literal["session", "worker", "alias", "team"]


def here(reference: str) -> Resolved:
    """What a reference to a session or a worker of this machine means."""
    return Resolved(reference, "worker" if names_worker(reference.strip().lower()) else "session")


def names_worker(text: str) -> bool:
    """Whether `text` may be our own id of a worker: its agent's name, and a number."""
    return any(text.startswith(agent.name) and _NUMBER.fullmatch(text, len(agent.name)) for agent in AGENTS)


def names_session(text: str) -> bool:
    """Whether `text` may be the id of a session, the beginning of one, or our own id of a worker."""
    starters = (agent.starter for agent in AGENTS if agent.starter)
    return names_worker(text) or any(starter.beginnings.fullmatch(text) for starter in starters)
