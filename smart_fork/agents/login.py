"""What is common to all agents' logins. Names of variables are kept and told; their values never are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName
from smart_fork.system.processes import Processes

#: How long an agent may take to say whether it is logged in.
STATUS_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class Standing:
    """Whether an agent would be logged in, `None` where nobody can tell, and which variables it lacks for that."""

    logged_in: bool | None
    lacks: tuple[str, ...] = ()


class Login(ABC):
    """How one agent logs in."""

    agent: AgentName
    #: What a person types to log in once and for all.
    command: str
    #: The variable that says where its home is. A worker always has the one that its session was found in.
    folder: str

    #: Variables of which any logs it in, and those that say how, and whom it asks.
    keys: ClassVar[tuple[str, ...]] = ()
    beside: ClassVar[tuple[str, ...]] = ()

    def variables(self) -> tuple[str, ...]:
        """The names that decide how it logs in and whom it asks, but for its folder."""
        return (*self.keys, *self.beside)

    def settled(self) -> frozenset[str]:
        """Those of them that its own settings set, whatever the environment says."""
        return frozenset()

    def required(self) -> tuple[str, ...]:
        """Those of them without which its own settings do not work; none where one of several may do."""
        return ()

    @abstractmethod
    def is_plain(self, env: Mapping[str, str]) -> bool:
        """Whether `env`, or a file of its own, says without further asking that it is logged in."""

    def standing(self, env: Mapping[str, str], program: str, processes: Processes) -> Standing:
        """Whether it would be logged in with `env`, if need be by its own `program`.

        If it has no command for that, other ways to log in may exist: that none is seen does not say no.
        """
        del program, processes
        return Standing(True if self.is_plain(env) else None)
