"""What an agent is to us: its names, its folder, its program, and one facet for each thing that we do with agents."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork.errors import Usage

if TYPE_CHECKING:
    from indexer.transcripts.base import AgentAdapter
    from smart_fork.agents.ancestry import Heads
    from smart_fork.agents.birth import Births
    from smart_fork.agents.calls import Calls
    from smart_fork.agents.codec import Codec
    from smart_fork.agents.copier import Copier
    from smart_fork.agents.forms import Forms, Teller
    from smart_fork.agents.hooks import Hooks
    from smart_fork.agents.login import Login
    from smart_fork.agents.presence import Presence
    from smart_fork.agents.questions import Screen
    from smart_fork.agents.registration import Registration
    from smart_fork.agents.starter import Starter
    from smart_fork.agents.storage import Storage
    from smart_fork.agents.subagents import SubAgents
    from smart_fork.agents.tail import Tail
    from smart_fork.cuts.cutter import Cutter


class Home(NamedTuple):
    """An agent's own folder: the `variable` that may name it, and the one below a person's home otherwise.

    `beside` are variables that say where else what it writes is.
    """

    variable: str
    default: str
    beside: tuple[str, ...] = ()

    def folder(self) -> Path:
        """The folder; it need not exist."""
        return Path(os.environ.get(self.variable) or Path.home() / self.default).expanduser()

    def usual(self) -> str:
        """What the variable is where it is not set."""
        return f"~/{self.default}"


class Sign(NamedTuple):
    """What the help of a program lists, as an expression, where the program can do what we need.

    `headless` says that only a fork without a terminal needs it.
    """

    arguments: tuple[str, ...]
    listed: str
    headless: bool = False


class ProgramSpec(NamedTuple):
    """An agent's program: its name, the variable that may say where it is, how to install it, and what it must list."""

    name: str
    override: str
    install: str
    signs: tuple[Sign, ...]


class Agent:
    """One agent. A facet that it does not have, or that we do not know of, is `None`.

    Facets are imported when they are first asked for: a hook, which runs with each prompt, needs hardly any.
    """

    name: AgentName
    #: What people call it.
    title: str
    home: Home | None = None
    command: ProgramSpec | None = None
    #: The variables by which it tells the programs that it starts about itself, and those that tell it from others.
    tells: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    #: Of these, those that hold the id of its session, and the project that it works in.
    session_variables: tuple[str, ...] = ()
    project_variables: tuple[str, ...] = ()
    #: What the names contain under which it connects to MCP servers.
    clients: tuple[str, ...] = ()
    #: Why there is not what it takes to do something with it, by the name of that (see `smart_fork.agents.verbs`).
    lacks: Mapping[str, str] = MappingProxyType({})
    #: The version of its program that its folder was tried with.
    seen: str = ""
    #: About how many tokens its model takes, where nothing of its own says it.
    window: int = 128_000
    #: Its facets by name: a class or a value, as ``module:name`` in its folder. A module with a dot is anywhere.
    facets: Mapping[str, str] = MappingProxyType({})
    #: Where its logs are, and how they are read.
    reader: AgentAdapter | None
    #: How its logs begin.
    heads: Heads | None
    #: How its logs go on.
    tail: Tail | None
    #: How it is started.
    starter: Starter | None
    #: How its sessions began; also `None` where the ids of all new ones can be chosen.
    births: Births | None
    #: Where it files its sessions, and finds them.
    storage: Storage | None
    #: How its screen is read.
    screen: Screen | None
    #: How its sessions are copied.
    copier: Copier | None
    #: How its records are shared between machines.
    forms: Forms | None
    #: What its records say: texts, calls and their results, thoughts.
    codec: Codec | None
    #: Where the conversations of its sub-agents are, and how they are read.
    subagents: SubAgents | None
    #: How it is told of another agent's session; most know it by their forms.
    teller: Teller | None
    #: How its transcripts are cut.
    cutter: Cutter | None
    #: How it logs in.
    login: Login | None
    #: What its calls of our tools say of its session, beside its variables.
    caller: Calls | None
    #: How it tells what its sessions do.
    hooks: Hooks | None
    #: By what it is known where it runs.
    presence: Presence | None
    #: How it is told of our MCP server.
    registration: Registration | None

    if not TYPE_CHECKING:  # else any name would pass for a facet

        def __getattr__(self, name: str) -> object:
            """Import a facet when it is first asked for. `None` for one that the agent does not have."""
            if name not in Agent.__annotations__:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            if row := self.facets.get(name):
                module, _, value = row.partition(":")
                folder = next(one.__module__ for one in type(self).__mro__ if "facets" in vars(one))
                found = getattr(import_module(module if "." in module else f"{folder}.{module}"), value)
            else:
                found = self.forms if name == "teller" else None
            self.__dict__[name] = facet = found() if isinstance(found, type) else found
            return facet

    @classmethod
    def has(cls, facet: str) -> bool:
        """Return whether it has that facet, without importing it."""
        return bool(getattr(cls, facet, facet in cls.facets))

    def model_window(self) -> int:
        """How many tokens its model takes, as its newest log says it, else about."""
        return self.window

    @classmethod
    def is_told(cls) -> bool:
        """Return whether it can receive a handed-over session, without importing a facet."""
        return cls.has("teller") or cls.has("forms")


class Known:
    """The agents, in their order, each by its name."""

    def __init__(self, *agents: Agent) -> None:
        self._by_name = {agent.name: agent for agent in agents}

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Agent:
        """The agent of that name.

        Raises:
            Usage: there is none.
        """
        if agent := self._by_name.get(name):
            return agent
        raise Usage(f"Unknown agent: {name}", f"Agents are: {', '.join(self._by_name)}.")
