"""The description of an agent: its names, its program, and its facets (one object for each task, such as copying)."""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork.agents.description import AgentDescription, AgentFacet, Home

if TYPE_CHECKING:
    from smart_fork.agents.agent_processes import AgentProcesses
    from smart_fork.agents.ancestry import Ancestry, WorkerSessions
    from smart_fork.agents.copier import Copier
    from smart_fork.agents.decoders import Codec
    from smart_fork.agents.excision.cutter import Cutter
    from smart_fork.agents.hooks import Hooks
    from smart_fork.agents.log_tail import Tail
    from smart_fork.agents.login import Login
    from smart_fork.agents.mcp_registration import Registration
    from smart_fork.agents.portable_records import Converter
    from smart_fork.agents.screen import Screen
    from smart_fork.agents.start_command import Background, Starter
    from smart_fork.agents.storage import Storage
    from smart_fork.agents.subagents import SubAgents


class Sign(NamedTuple):
    """A sign that an agent's program has an option for forks: its output with `arguments` matches the pattern `listed`.

    `headless` is True if only forks without a terminal need the option.
    """

    listed: str
    arguments: tuple[str, ...] = ("--help",)
    headless: bool = False


class ProgramSpec(NamedTuple):
    """An agent's program: its name, its npm package, and the patterns that its help must match."""

    name: str
    package: str
    signs: tuple[Sign, ...]

    @property
    def override(self) -> str:
        """The environment variable that names the program's path."""
        return f"SMART_FORK_{self.name.upper()}"


#: Where an agent has its facets: a class or a value, as ``module:name`` in its folder. The braces stand for the name of
#: its class. A module with a dot is absolute.
USUAL: Mapping[str, str] = MappingProxyType({
    "reader": "log_files:{}Adapter",
    "codec": "session_reader:{}Codec",
    "ancestry": "session_reader:{}Ancestry",
    "tail": "session_reader:TAIL",
    "starter": "runtime:{}Starter",
    "worker_sessions": "runtime:{}WorkerSessions",
    "storage": "log_files:{}Storage",
    "screen": "runtime:{}Screen",
    "copier": "session_writer:{}Copier",
    "converter": "session_writer:{}Converter",
    "cutter": "excision:{}Cutter",
    "login": "settings:{}Login",
    "caller": "settings:{}Caller",
    "hooks": "settings:{}Hooks",
    "processes": "runtime:{}Processes",
    "prompts": "log_files:kept_prompts",
    "registration": "settings:{}Registration",
    "subagents": "session_reader:{}SubAgents",
    "background": "",
})  # fmt: skip


def usual_facets(*without: str, **elsewhere: str) -> Mapping[str, str]:
    """Return an agent's facets with their places ("module:name"): `USUAL`, changed by `elsewhere`, less `without`."""
    return MappingProxyType(
        {name: place for name, place in {**USUAL, **elsewhere}.items() if place and name not in without}
    )


class Ability(NamedTuple):
    """An ability of agents: its name for people, and the facet that it needs, such as "copier"; empty if none."""

    words: str
    facet: str = ""


class Agent(AgentDescription):
    """The description of one agent. The attributes named in `USUAL` are its facets: objects for one task each.

    A facet is imported at its first use, so that hooks, which run at each prompt, start quickly. It is `None` if the
    agent lacks it.
    """

    #: What smart-fork can do with agents, by JSON keys.
    ABILITIES: ClassVar[Mapping[str, Ability]] = MappingProxyType({
        "found": Ability("search"),
        "started": Ability("fork", "starter"),
        "branched": Ability("fork at a message", "copier"),
        "budgeted": Ability("budget", "copier"),
        "told": Ability("receive hand-overs", "converter"),
        "cut": Ability("cut", "cutter"),
        "shared": Ability("share", "converter"),
        "tells": Ability("live status", "hooks"),
        "set_up": Ability("setup", "registration"),
    })  # fmt: skip
    command: ProgramSpec | None = None
    #: The variables that identify the agent, of those that it sets.
    marks: tuple[str, ...] = ()
    #: The variables with its session's id, and with the project's directory.
    session_variables: tuple[str, ...] = ()
    project_variables: tuple[str, ...] = ()
    #: Parts of the names under which it connects to MCP servers.
    clients: tuple[str, ...] = ()
    #: True if its program appends to a file that was cut.
    writes_on: bool = True
    #: Reasons for what it cannot do, by ability (see `ABILITIES`).
    lacks: Mapping[str, str] = MappingProxyType({})
    #: The version of its program that the tests run, and the newest that they were seen to pass with.
    seen: str = ""
    newest: str = ""
    #: An estimate of its model's context window in tokens, if the agent does not tell.
    window: int = 128_000
    #: The places of its facets by name (see `USUAL`).
    facets: Mapping[str, str] = MappingProxyType({})
    #: Finds the parents of its sessions, from the beginnings of logs.
    ancestry: Ancestry | None
    #: Reads a worker's state from the end of its log.
    tail: Tail | None
    #: Makes the commands that start it.
    starter: Starter | None
    #: Recognizes new sessions by their logs; `None` also if smart-fork can choose the ids.
    worker_sessions: WorkerSessions | None
    #: Knows where it stores sessions, and from which directories it finds them.
    storage: Storage | None
    #: Reads its screen.
    screen: Screen | None
    #: Copies its sessions.
    copier: Copier | None
    #: Converts its records for other machines, and writes handed-over sessions.
    converter: Converter | None
    #: Decodes its records: texts, calls and their results, thoughts.
    codec: Codec | None
    #: Finds and reads the conversations of its sub-agents.
    subagents: SubAgents | None
    #: Reads its transcripts for cuts.
    cutter: Cutter | None
    #: Knows how it logs in.
    login: Login | None
    #: Identifies the calling session in its tool calls, beyond its variables.
    caller: CallerIdentity | None
    #: Knows its hooks.
    hooks: Hooks | None
    #: Recognizes its processes.
    processes: AgentProcesses | None
    #: Lists the prompts that it keeps beside its logs, without those of known sessions.
    prompts: Callable[[Container[str]], Iterator[KeptPrompt]] | None
    #: Registers smart-fork's MCP server in its settings.
    registration: Registration | None
    #: Knows its commands for background sessions.
    background: Background | None

    if not TYPE_CHECKING:  # else any name would pass for a facet

        def __getattr__(self, name: str) -> object:
            """Import the facet called `name` at its first use; return `None` if the agent lacks it."""
            if name not in USUAL:
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            if row := self.facets.get(name):
                owner = type(self)
                while "facets" not in vars(owner):
                    owner = owner.__mro__[1]
                module, _, value = row.format(owner.__name__).partition(":")
                found = getattr(import_module(module if "." in module else f"{owner.__module__}.{module}"), value)
            else:
                found = None
            if isinstance(found, type):
                found = found(self) if issubclass(found, AgentFacet) else found()
            self.__dict__[name] = found
            return found

    def compared(self, version: str, parts: int = 2) -> str:
        """Return "newer" or "older" if `version` is outside the tested versions; empty if it is tested or unknown.

        Only the first `parts` numbers of the version are compared.
        """
        own, oldest, newest = (_numbers(one)[:parts] for one in (version, self.seen, self.newest or self.seen))
        if not own or not oldest or oldest <= own <= newest:
            return ""
        return "newer" if own > newest else "older"

    @classmethod
    def has(cls, facet: str) -> bool:
        """Return True if the agent has this facet (an object for one task, such as "copier"), without importing it."""
        return bool(getattr(cls, facet, facet in cls.facets))

    def abilities(self) -> dict[str, bool]:
        """Return all abilities by JSON key, each with True if the agent has it."""
        return {name: not ability.facet or self.has(ability.facet) for name, ability in self.ABILITIES.items()}

    def calling_session(
        self, meta: Mapping[str, Any], arguments: Mapping[str, Any], environment: Mapping[str, str], project: str | None
    ) -> str | None:
        """Return the id of the session that made a tool call (see `ClientCall`); `None` if unknown."""
        return self.caller.session_id(ClientCall(meta, arguments, environment, project)) if self.caller else None

    def model_window(self) -> int:
        """Return the context window of the agent's model in tokens: from its newest log, else an estimate."""
        return (self.tail.window() if self.tail else None) or self.window


def _numbers(version: str) -> tuple[int, ...]:
    plain = version.split("-", maxsplit=1)[0].split("+", maxsplit=1)[0]
    return tuple(int(part) for part in plain.split(".")) if re.fullmatch(r"\d+(?:\.\d+)+", plain) else ()


class ReadOnlyAgent(Agent):
    """An agent that smart-fork only reads: its sessions are found, shown and handed over, but it is not started.

    Its adapter and its codec are in ``smart_fork/agents/<name>.py``.
    """

    lacks = MappingProxyType({
        ability: "smart-fork only reads its sessions" for ability in Agent.ABILITIES if ability != "found"
    })  # fmt: skip
    facets = MappingProxyType({"reader": "Adapter", "codec": "Codec"})

    def __init__(self, name: AgentName, title: str, home: Home) -> None:
        self.name, self.title, self.home = name, title, home
        rows = {facet: f"smart_fork.agents.{name}:{name.capitalize()}{what}" for facet, what in self.facets.items()}
        self.facets = MappingProxyType(rows)


class ClientCall(NamedTuple):
    """A tool call that an agent sent to smart-fork's MCP server, with the server's environment and project directory.

    All fields are untrusted.
    """

    meta: Mapping[str, Any]
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    project: str | None


class CallerIdentity:
    """Finds the session that made a tool call, and the directories in which its agent works."""

    #: An argument with the session's id, added to each call by our code inside the agent. Tools never see it.
    argument: str | None = None

    def session_id(self, call: ClientCall) -> str | None:
        """Return the id of the session that made a call; `None` if unknown."""
        return None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """Return the directories in which the agent works, from a request's metadata; empty if it names none."""
        return []


#: The number of logs of a folder that are searched for a tool call.
MAX_LOGS = 8


def newest_logs(folder: Path, pattern: str) -> list[Path]:
    """Return the newest files in `folder` with a name like `pattern`, newest first, at most `MAX_LOGS`.

    Empty if the folder cannot be read.
    """
    try:
        logs = [path for path in folder.glob(pattern) if path.is_file()]
        return sorted(logs, key=lambda path: path.stat().st_mtime_ns, reverse=True)[:MAX_LOGS]
    except OSError:
        return []


class KeptPrompt(NamedTuple):
    """A prompt, unmasked, from an agent's own list of prompts outside its logs. `moment` is its time in UTC."""

    session_id: str
    moment: str
    directory: str
    text: str
