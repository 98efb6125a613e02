"""The description of an agent: its names, folder and program, and one facet for each thing that smart-fork does with
it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from indexer.transcripts.model import AgentName
from smart_fork.agents.description import Description, Facet, Home

if TYPE_CHECKING:
    from smart_fork.agents.ancestry import Births, Heads
    from smart_fork.agents.background import Background
    from smart_fork.agents.codec import Codec
    from smart_fork.agents.copier import Copier
    from smart_fork.agents.cuts.cutter import Cutter
    from smart_fork.agents.forms import Forms
    from smart_fork.agents.hooks import Hooks
    from smart_fork.agents.login import Login
    from smart_fork.agents.presence import Presence
    from smart_fork.agents.questions import Screen
    from smart_fork.agents.registration import Registration
    from smart_fork.agents.starter import Starter
    from smart_fork.agents.subagents import SubAgents
    from smart_fork.agents.tail import Tail


class Sign(NamedTuple):
    """A regular expression that a program's help matches if the program can do what smart-fork needs.

    `headless` means that only a fork without a terminal needs it.
    """

    listed: str
    arguments: tuple[str, ...] = ("--help",)
    headless: bool = False


class ProgramSpec(NamedTuple):
    """An agent's program: its name, npm's package with what that needs, and the required options."""

    name: str
    package: str
    signs: tuple[Sign, ...]

    @property
    def override(self) -> str:
        """The variable that names its path."""
        return f"SMART_FORK_{self.name.upper()}"


#: Where an agent has its facets: a class or a value, as ``module:name`` in its folder. The braces stand for the name of
#: its class. A module with a dot is absolute.
USUAL: Mapping[str, str] = MappingProxyType({
    "reader": "log:{}Adapter",
    "codec": "fold:{}Codec",
    "heads": "fold:{}Heads",
    "tail": "tail:TAIL",
    "starter": "command:{}Starter",
    "births": "head:{}Births",
    "storage": "log:{}Storage",
    "screen": "command:{}Screen",
    "copier": "copy:{}Copier",
    "forms": "copy:{}Forms",
    "cutter": "cut:{}Cutter",
    "login": "login:{}Login",
    "caller": "hooks:{}Calls",
    "hooks": "hooks:{}Hooks",
    "presence": "command:{}Presence",
    "prompts": "log:kept_prompts",
    "registration": "registration:{}Registration",
    "subagents": "fold:{}SubAgents",
    "background": "",
})  # fmt: skip


def usual(*without: str, **elsewhere: str) -> Mapping[str, str]:
    """Return all facets but those `without`, each in its usual place or `elsewhere`."""
    return MappingProxyType(
        {name: place for name, place in {**USUAL, **elsewhere}.items() if place and name not in without}
    )


class Ability(NamedTuple):
    """An ability in words for people, and the facet of an agent that has it; all agents have one without a facet."""

    words: str
    facet: str = ""


class Agent(Description):
    """One agent. A missing facet is `None`.

    Facets are imported at their first use: a hook runs with each prompt, and needs hardly any.
    """

    #: What smart-fork can do with agents, by JSON keys.
    ABILITIES: ClassVar[Mapping[str, Ability]] = MappingProxyType({
        "found": Ability("search"),
        "started": Ability("fork", "starter"),
        "branched": Ability("fork at a message", "copier"),
        "budgeted": Ability("budget", "copier"),
        "told": Ability("receive hand-overs", "forms"),
        "cut": Ability("cut", "cutter"),
        "shared": Ability("share", "forms"),
        "tells": Ability("live status", "hooks"),
        "set_up": Ability("setup", "registration"),
    })  # fmt: skip
    command: ProgramSpec | None = None
    #: Of the variables that it sets, those that identify it.
    marks: tuple[str, ...] = ()
    #: Those with its session's id, and with the project's directory.
    session_variables: tuple[str, ...] = ()
    project_variables: tuple[str, ...] = ()
    #: Parts of the names under which it connects to MCP servers.
    clients: tuple[str, ...] = ()
    #: Whether its program appends to a file that was cut.
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
    heads: Heads | None
    #: Reads a worker's state from the end of its log.
    tail: Tail | None
    #: Makes the commands that start it.
    starter: Starter | None
    #: Recognizes new sessions by their logs; `None` also if smart-fork can choose the ids.
    births: Births | None
    #: Knows where it stores sessions, and from which directories it finds them.
    storage: Storage | None
    #: Reads its screen.
    screen: Screen | None
    #: Copies its sessions.
    copier: Copier | None
    #: Converts its records for other machines, and writes handed-over sessions.
    forms: Forms | None
    #: Decodes its records: texts, calls and their results, thoughts.
    codec: Codec | None
    #: Finds and reads the conversations of its sub-agents.
    subagents: SubAgents | None
    #: Reads its transcripts for cuts.
    cutter: Cutter | None
    #: Knows how it logs in.
    login: Login | None
    #: Identifies the calling session in its tool calls, beyond its variables.
    caller: Calls | None
    #: Knows its hooks.
    hooks: Hooks | None
    #: Recognizes its processes.
    presence: Presence | None
    #: Lists the prompts that it keeps beside its logs, without those of known sessions.
    prompts: Callable[[Container[str]], Iterator[KeptPrompt]] | None
    #: Registers smart-fork's MCP server in its settings.
    registration: Registration | None
    #: Knows its verbs for background sessions.
    background: Background | None

    if not TYPE_CHECKING:  # else any name would pass for a facet

        def __getattr__(self, name: str) -> object:
            """Import a facet at its first use. Return `None` if the agent does not have it."""
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
                found = found(self) if issubclass(found, Facet) else found()
            self.__dict__[name] = found
            return found

    def compared(self, version: str, parts: int = 2) -> str:
        """Return "newer" or "older" than what was seen, by so many parts of a version; empty if neither, or unknown."""
        own, oldest, newest = (_numbers(one)[:parts] for one in (version, self.seen, self.newest or self.seen))
        if not own or not oldest or oldest <= own <= newest:
            return ""
        return "newer" if own > newest else "older"

    @classmethod
    def has(cls, facet: str) -> bool:
        """Return whether it has that facet, without importing it."""
        return bool(getattr(cls, facet, facet in cls.facets))

    def abilities(self) -> dict[str, bool]:
        """Return the abilities of the agent, derived from its facets."""
        return {name: not ability.facet or self.has(ability.facet) for name, ability in self.ABILITIES.items()}

    def model_window(self) -> int:
        """Return its model's context window in tokens, from its newest log, or the estimate."""
        return (self.tail.window() if self.tail else None) or self.window


def _numbers(version: str) -> tuple[int, ...]:
    plain = version.split("-", maxsplit=1)[0].split("+", maxsplit=1)[0]
    return tuple(int(part) for part in plain.split(".")) if re.fullmatch(r"\d+(?:\.\d+)+", plain) else ()


class ReadOnlyAgent(Agent):
    """An agent whose sessions are found, shown and handed over, and whose program smart-fork does not start.

    Its adapter and its codec are in ``smart_fork/agents/<name>.py``.
    """

    lacks = MappingProxyType(
        dict.fromkeys(
            ("started", "branched", "budgeted", "told", "cut", "shared", "tells", "set_up"),
            "smart-fork only reads its sessions",
        )
    )
    facets = MappingProxyType({"reader": "Adapter", "codec": "Codec"})

    def __init__(self, name: AgentName, title: str, home: Home) -> None:
        self.name, self.title, self.home = name, title, home
        rows = {facet: f"smart_fork.agents.{name}:{name.capitalize()}{what}" for facet, what in self.facets.items()}
        self.facets = MappingProxyType(rows)


class Storage:
    """The storage of an agent that finds its sessions from every directory. Others override it."""

    def folder(self, directory: Path) -> Path | None:
        """Return the only folder in which it looks for sessions from `directory`; `None` if it looks everywhere."""
        return None

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        """Return whether it can resume, from `directory`, the session of this log, which worked in `cwd`."""
        return self.folder(directory) in (None, log.parent)

    def restored(self, place: str, session_id: str) -> str:
        """Return where a restored log belongs below its own folder. `place` is where it was."""
        return place

    def resumed(self, log: Path, session_id: str, directory: Path) -> Path | None:
        """Return a second name under which the log is found from `directory`, and remains when its agent resumes it;
        `None` if it needs none.
        """
        return None


class ClientCall(NamedTuple):
    """One tool call from an agent: `environment` of the server's process, `project` its directory.

    All of it is untrusted text.
    """

    meta: Mapping[str, Any]
    arguments: Mapping[str, Any]
    environment: Mapping[str, str]
    project: str | None


class Calls:
    """Identifies the session and the directories in one agent's calls."""

    #: An argument with the session's id, added to each call by our code inside the agent. Tools never see it.
    argument: str | None = None

    def session_id(self, call: ClientCall) -> str | None:
        """Return the session that a call names; `None` if only the environment can tell."""
        return None

    def workspaces(self, meta: Mapping[str, Any]) -> list[str]:
        """Return the directories in which the agent works, by the request's data; none if it names roots instead."""
        return []


#: Logs of a folder that are looked into for the session that calls.
MAX_LOGS = 8


def newest_logs(folder: Path, pattern: str) -> list[Path]:
    """Return the logs of that name in a folder that were written last, the newest first; none if it cannot be read."""
    try:
        logs = [path for path in folder.glob(pattern) if path.is_file()]
        return sorted(logs, key=lambda path: path.stat().st_mtime_ns, reverse=True)[:MAX_LOGS]
    except OSError:
        return []


class KeptPrompt(NamedTuple):
    """One prompt, as its agent keeps it: not masked. `moment` is in UTC, `directory` as the agent names it."""

    session_id: str
    moment: str
    directory: str
    text: str
