"""References to sessions that people type: an id, the beginning of an id, or smart-fork's id of a worker."""

from __future__ import annotations

import re
from typing import Literal, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.display_text import storable

_NUMBER = re.compile(r"-\d+")
#: The number of a result, and what is too short to be an id and is no word either.
_RANK, _SHORT_ID = re.compile(r"[1-9]\d?", re.ASCII), re.compile(r"(?=.*\d)[0-9a-f]{4,7}", re.ASCII)


class Resolved(NamedTuple):
    """The session that a reference names: its id on this machine, and the kind of the reference.

    `warnings` say which parts are missing in a copy of a teammate's session.
    """

    session_id: str
    by: Literal["session", "worker", "alias", "team"]
    warnings: tuple[str, ...] = ()

    @classmethod
    def here(cls, reference: str) -> Resolved:
        """Return the reference as it is: as a worker's id if it has the form of one, else as a session's id."""
        one = Reference.parsed(reference)
        return cls(reference, "worker" if one._replace(name=one.name.lower()).names_worker else "session")


class Reference(NamedTuple):
    """A reference to a session: its name, and its agent if given, since two agents can have sessions of one name."""

    agent: AgentName | None
    name: str

    def __str__(self) -> str:
        return f"{self.agent}:{self.name}" if self.agent else self.name

    @classmethod
    def parsed(cls, text: str) -> Reference:
        """Return the reference in `text`: "codex:70f1a07f" names the agent, "70f1a07f" does not."""
        text = storable(text).strip()
        agent, colon, name = text.partition(":")
        if colon and agent.lower() in AGENTS:
            return cls(agent.lower(), name.strip())
        return cls(None, text)

    @property
    def names_worker(self) -> bool:
        """True if the name can be the id of a worker (an agent that smart-fork started), such as "codex-3"."""
        return any(self.name.startswith(one.name) and _NUMBER.fullmatch(self.name, len(one.name)) for one in AGENTS)

    @property
    def is_number(self) -> bool:
        """True if the reference has the form of a search result's number, from 1 to 99."""
        return self.agent is None and _RANK.fullmatch(self.name) is not None

    @property
    def looks_like_one(self) -> bool:
        """True if the name has the form of a reference and not of a word: a number, an id, or part of an id."""
        return self.is_number or self.names_session or _SHORT_ID.fullmatch(self.name) is not None

    @property
    def names_session(self) -> bool:
        """True if the name can be a session's id, the beginning of an id, or a worker's id."""
        starters = (agent.starter for agent in AGENTS if agent.starter)
        return self.names_worker or any(starter.beginnings.fullmatch(self.name) for starter in starters)
