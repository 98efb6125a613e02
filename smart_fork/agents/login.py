"""What is common to all agents' logins. Names of variables are kept and told; their values never are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.processes import Processes

#: How long an agent may take to say whether it is logged in.
STATUS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether an agent would be logged in, `None` where nobody can tell, and which variables it lacks for that."""

    logged_in: bool | None
    lacks: tuple[str, ...] = ()


class Login(Protocol):
    """How one agent logs in."""

    agent: AgentName
    #: What a person types to log in once and for all.
    command: str
    #: The variable that says where its home is. A worker always has the one that its session was found in.
    folder: str

    def variables(self) -> tuple[str, ...]:
        """The names that decide how it logs in and whom it asks, but for its folder."""
        ...

    def settled(self) -> frozenset[str]:
        """Those of them that its own settings set, whatever the environment says."""
        ...

    def required(self) -> tuple[str, ...]:
        """Those of them without which its own settings do not work."""
        ...

    def is_plain(self, env: Mapping[str, str]) -> bool:
        """Whether `env`, or a file of its own, says without further asking that it is logged in."""
        ...

    def standing(self, env: Mapping[str, str], program: str, processes: Processes) -> Standing:
        """Whether it would be logged in with `env`, if need be by its own `program`."""
        ...
