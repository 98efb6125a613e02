"""The common part of all agents' logins. Only names of variables are stored and shown, never their values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.system.processes import Processes

#: The longest time for an agent to report whether it is logged in.
STATUS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether an agent would be logged in (`None` if unknown), and the missing variables."""

    logged_in: bool | None
    lacks: tuple[str, ...] = ()


class Login(ABC):
    """The login of one agent."""

    agent: AgentName
    #: The command with which a person logs in permanently.
    command: str
    #: The variable that names its home. A worker always has the home of its session.
    folder: str

    #: Variables of which any one is a login, and those that select a method or a server.
    keys: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[tuple[str, ...]] = ()

    def variables(self) -> tuple[str, ...]:
        """The variables that decide how it logs in and which server it uses, without its folder."""
        return (*self.keys, *self.beside)

    def settled(self) -> frozenset[str]:
        """Those that its own settings set, whatever the environment has."""
        return frozenset()

    def required(self) -> tuple[str, ...]:
        """Those that its own settings require; none if one of several is enough."""
        return ()

    @abstractmethod
    def is_plain(self, env: Mapping[str, str]) -> bool:
        """Return whether `env`, or a file of the agent, shows that it is logged in."""

    def standing(self, env: Mapping[str, str], program: str, processes: Processes) -> Standing:
        """Return whether the agent would be logged in with `env`, asking its own `program` if necessary.

        Without such a command, other ways to log in may exist, so that a missing variable does not mean no.
        """
        del program, processes
        return Standing(True if self.is_plain(env) else None)
