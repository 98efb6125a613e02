"""The common interface of external search programs."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from pkgutil import resolve_name
from typing import Any, Literal, NamedTuple, Protocol

from indexer.lazy import dataclass
from indexer.settings import Setting
from indexer.transcripts.model import AgentName
from smart_fork import config
from smart_fork.agents import AGENTS
from smart_fork.errors import SmartForkError, Usage
from smart_fork.snippets import shown


def collection_of(agent: AgentName) -> str:
    """The name by which a search program knows the exports of that agent."""
    return f"{agent}-sessions"


def collections() -> dict[AgentName, str]:
    """Those of all agents whose sessions are exported."""
    return {agent: collection_of(agent) for agent in AGENTS.readable()}


Way = Literal["hybrid", "vector", "lexical"]


class EngineUnavailable(SmartForkError):
    """The search program is not there, or does not know our exports."""

    code = "engine_unavailable"


class RankedDocument(NamedTuple):
    """An export that answers: whose session it is, how well (0 to 1, where the program says), and what it quotes."""

    agent: AgentName
    session_id: str
    score: float | None
    snippet: str


@dataclass(frozen=True, slots=True)
class EngineQuestion:
    """A question to a search engine: the intent, its key words, the agents, and the number of documents.

    Where there are more of them, and those do not do as `enough` says, `most` are asked for.
    """

    intent: str
    words: tuple[str, ...]
    agents: tuple[AgentName, ...]
    wanted: int = 50
    most: int = 1000
    enough: Callable[[Sequence[RankedDocument]], bool] = bool


@dataclass(frozen=True, slots=True)
class Ranking:
    """An answer. `way` is how it was found, `None` where nothing could be searched; `error` why not otherwise.

    `dropped` were no exports of ours. `said` is what the answer repeats of it, as JSON values.
    """

    documents: tuple[RankedDocument, ...]
    way: Way | None
    error: str = ""
    dropped: int = 0
    said: Mapping[str, Any] = field(default_factory=dict)


class SearchEngine(Protocol):
    """A search program that reads the exports."""

    name: str

    def refresh(self, stamp: str) -> None:
        """Have it read the exports, unless it has at the same `stamp`: that of the last change of the own index.

        Raises:
            EngineUnavailable: it is not there, or cannot be made to know the exports.
        """
        ...

    def renew(self, stamp: str, patience: float) -> None:
        """The same, and make vectors of all that has none: for whoever has time.

        Raises:
            EngineUnavailable: as `refresh`.
            IndexBusyError: another process has been at it for `patience` seconds.
            ProgramFailed: the words are searched, the meaning is not.
        """
        ...

    def erase(self) -> bool:
        """Return True if nothing removed from the exports is left in its files."""
        ...

    def ask(self, question: EngineQuestion) -> Ranking:
        """The documents that answer best. A failure is part of the answer."""
        ...

    def what_to_do(self) -> tuple[str, tuple[str, ...]]:
        """Return the error code and the next steps for a missing engine."""
        ...


# Which engine answers: ``SMART_FORK_ENGINE``, else ``engine`` in ``config.toml``, else the own index.

OWN = Setting.ENGINE.default
#: It is imported where it answers.
_QMD = "smart_fork.finding.qmd:Qmd"


def configured_engine(environment: Mapping[str, str] | None = None) -> SearchEngine | None:
    """The search program that answers in the place of the own index; `None` where none does.

    Raises:
        Usage: there is no such engine, or ``config.toml`` cannot be read.
    """
    environment = os.environ if environment is None else environment
    name = Setting.ENGINE.text(environment).lower() or config.engine()
    if name in ("", OWN):
        return None
    if name == "qmd":
        found: SearchEngine = resolve_name(_QMD)(environment=environment)
        return found
    raise Usage(
        f"engine must be '{OWN}' or 'qmd', not {shown(name)}", f"Set {Setting.ENGINE}, or `engine` in config.toml."
    )
