"""A person's references to sessions: an id, its beginning, or smart-fork's id of a worker."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.snippets import storable

_NUMBER = re.compile(r"-\d+")
#: The number of a result, and what is too short to be an id and is no word either.
_RANK, _SHORT_ID = re.compile(r"[1-9]\d?", re.ASCII), re.compile(r"(?=.*\d)[0-9a-f]{4,7}", re.ASCII)


class Resolved(NamedTuple):
    """A resolved reference: the session's id on this machine, and the kind of reference.

    `warnings` tell what is not in a copy of a team's session.
    """

    session_id: str
    by: Literal["session", "worker", "alias", "team"]
    warnings: tuple[str, ...] = ()

    @classmethod
    def here(cls, reference: str) -> Resolved:
        """Resolve a reference to a session or a worker of this machine."""
        one = Reference.parsed(reference)
        return cls(reference, "worker" if one._replace(name=one.name.lower()).names_worker else "session")


class Reference(NamedTuple):
    """A reference: the session's name, and its agent if given. With it, its text is unique among all agents."""

    agent: AgentName | None
    name: str

    def __str__(self) -> str:
        return f"{self.agent}:{self.name}" if self.agent else self.name

    @classmethod
    def parsed(cls, text: str) -> Reference:
        """Parse a reference: "codex:70f1a07f" names the agent, "70f1a07f" does not."""
        text = storable(text).strip()
        agent, colon, name = text.partition(":")
        if colon and agent.lower() in AGENTS:
            return cls(agent.lower(), name.strip())
        return cls(None, text)

    @property
    def names_worker(self) -> bool:
        """Return True if the name can be a worker's id: an agent's name and a number."""
        return any(self.name.startswith(one.name) and _NUMBER.fullmatch(self.name, len(one.name)) for one in AGENTS)

    @property
    def is_number(self) -> bool:
        """Return True if it is the number of a result."""
        return self.agent is None and _RANK.fullmatch(self.name) is not None

    @property
    def looks_like_one(self) -> bool:
        """Return True if it looks like a session's reference, even a missing one's: a number, an id, or part of one."""
        return self.is_number or self.names_session or _SHORT_ID.fullmatch(self.name) is not None

    @property
    def names_session(self) -> bool:
        """Return True if the name can be a session's id, its beginning, or a worker's id."""
        starters = (agent.starter for agent in AGENTS if agent.starter)
        return self.names_worker or any(starter.beginnings.fullmatch(self.name) for starter in starters)
