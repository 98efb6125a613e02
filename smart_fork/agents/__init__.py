"""The table of all supported agents: programs such as Claude Code and Codex.

Each agent has a folder of modules here, or a single module if smart-fork only reads its logs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, TypeVar

from indexer.environment import DEPTH, WORKER_ID
from indexer.transcripts.model import AgentName
from smart_fork.agents.agent import Agent, ReadOnlyAgent
from smart_fork.agents.claude import Claude
from smart_fork.agents.codex import Codex
from smart_fork.agents.copilot import Copilot
from smart_fork.agents.cursor import Cursor
from smart_fork.agents.description import Home
from smart_fork.agents.gemini import Gemini
from smart_fork.agents.opencode import OpenCode
from smart_fork.agents.qwen import Qwen
from smart_fork.display_text import one_of, plain_name, shown
from smart_fork.errors import SmartForkError, Usage, advice

if TYPE_CHECKING:
    from smart_fork.agents.agent import ProgramSpec
    from smart_fork.agents.ancestry import Ancestry
    from smart_fork.agents.copier import Copier
    from smart_fork.agents.excision.cutter import Cutter, Files
    from smart_fork.agents.hooks import Hooks
    from smart_fork.agents.log_tail import Tail
    from smart_fork.agents.login import Login
    from smart_fork.agents.mcp_registration import Registration
    from smart_fork.agents.portable_records import Converter
    from smart_fork.agents.screen import Screen
    from smart_fork.agents.start_command import Background, Starter
    from smart_fork.agents.storage import Storage

F = TypeVar("F")
#: An id or a name that an agent gets unchanged: neither an option nor a path.
_GIVEN = re.compile(r"\w[\w.:-]{0,199}")
#: The agents of the word ``both``, which were the first two.
_BOTH: tuple[AgentName, ...] = ("claude", "codex")


class AllAgents:
    """The table of all agents by name, in a fixed order.

    A facet is an object for one task with an agent, such as its copier. Methods such as `starter_of` return an agent's
    facet, and raise `Usage` with a sentence for people if the agent lacks it.
    """

    #: Selects the first two agents, Claude Code and Codex.
    BOTH: ClassVar = "both"
    ALL: ClassVar = "all"
    #: The name of an agent that its transcript tells (for cuts).
    AUTO: ClassVar = "auto"
    #: Forks of forks are followed this far. Deeper ones are read without their oldest part.
    MAX_FORK_DEPTH: ClassVar = 64

    def __init__(self, *agents: Agent) -> None:
        self._by_name = {agent.name: agent for agent in agents}

    def __iter__(self) -> Iterator[Agent]:
        return iter(self._by_name.values())

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __getitem__(self, name: str) -> Agent:
        """Return the agent called `name`. Raise `Usage` if there is none."""
        if agent := self._by_name.get(name):
            return agent
        raise Usage(f"Unknown agent: {name}", f"Agents are: {', '.join(self._by_name)}.")

    def title_of(self, agent: str) -> str:
        """Return an agent's name for people, such as "Claude Code"; an unknown name unchanged."""
        return self[agent].title if agent in self else agent

    def command_of(self, agent: str) -> ProgramSpec:
        """Return the description of an agent's program."""
        return _needed(self[agent].command, f"smart-fork cannot start {self.title_of(agent)}", self._handed_over())

    def starter_of(self, agent: str) -> Starter:
        """Return the object that makes an agent's start commands."""
        return _needed(self[agent].starter, f"smart-fork cannot start {self.title_of(agent)}", self._handed_over())

    def screen_of(self, agent: str) -> Screen:
        """Return the object that reads an agent's terminal screen."""
        return _needed(self[agent].screen, f"smart-fork cannot read the screen of {self.title_of(agent)}")

    def storage_of(self, agent: str) -> Storage:
        """Return the object that knows where an agent stores sessions."""
        return _needed(self[agent].storage, f"smart-fork does not know where {self.title_of(agent)} keeps its sessions")

    def copier_of(self, agent: str) -> Copier:
        """Return the object that copies an agent's sessions."""
        return _needed(
            self[agent].copier, f"smart-fork cannot branch {self.title_of(agent)} sessions", self._handed_over()
        )

    def converter_of(self, agent: str) -> Converter:
        """Return the object that converts an agent's records for sharing with teammates."""
        refusal = f"Sessions of {self.title_of(agent)} are not shared"
        return _needed(self[agent].converter, refusal, self.why_not(agent, "shared"))

    def handover_writer_of(self, agent: str) -> Converter:
        """Return the object that writes a session of another agent in the format of `agent`."""
        return _needed(self[agent].converter, f"{self.title_of(agent)} cannot receive sessions of other agents")

    def ancestry_of(self, agent: str) -> Ancestry:
        """Return the object that finds the parents of an agent's forked sessions."""
        return _needed(self[agent].ancestry, f"The families of {self.title_of(agent)} sessions are not known")

    def tail_of(self, agent: str) -> Tail:
        """Return the object that reads from a session's log whether its agent is working."""
        return _needed(self[agent].tail, f"smart-fork has no live status of {self.title_of(agent)} sessions")

    def login_of(self, agent: str) -> Login:
        """Return the object that knows how an agent logs in."""
        return _needed(self[agent].login, f"smart-fork does not know how {self.title_of(agent)} logs in")

    def hooks_of(self, agent: str) -> Hooks:
        """Return the object that knows an agent's hooks."""
        return _needed(self[agent].hooks, f"{self.title_of(agent)} does not report what its sessions do")

    def registration_of(self, agent: str) -> Registration:
        """Return the object that registers smart-fork's MCP server in an agent's settings."""
        return _needed(
            self[agent].registration, f"smart-fork does not know how {self.title_of(agent)} registers servers"
        )

    def background_of(self, agent: str) -> Background:
        """Return the commands for the background sessions that an agent itself manages."""
        return _needed(self[agent].background, f"{self.title_of(agent)} has no background sessions")

    def why_not(self, agent: str, ability: str) -> str:
        """Return a sentence with the reason why an agent lacks a key of `Agent.ABILITIES`; empty if unknown."""
        why = self[agent].lacks.get(ability, "")
        return f"{why[:1].upper()}{why[1:]}." if why else ""

    def _handed_over(self) -> str:
        other = next(agent.name for agent in self if agent.has("starter"))
        return advice(
            f"Hand the whole session over to another agent: `smart-fork fork ID --as {other}`.",
            tool=f"Hand the whole session over to another agent: as_agent {other}.",
        )

    def cutters(self) -> tuple[Cutter, ...]:
        """Return all agents' cutters, which load logs so that turns can be removed.

        smart-fork asks the cutters in this order which agent wrote a given log.
        """
        return tuple(agent.cutter for agent in self._cut() if agent.cutter)

    def cuttable(self) -> tuple[str, ...]:
        """Return the names of the agents from whose logs turns can be removed, in the order of `cutters`."""
        return tuple(agent.name for agent in self._cut())

    def _cut(self) -> Iterable[Agent]:
        return sorted((agent for agent in self if agent.has("cutter")), key=lambda agent: agent.writes_on)

    def first_cut(self) -> AgentName:
        """Return the default agent of commands that remove turns."""
        return next(agent.name for agent in self if agent.has("cutter"))

    def find_cutter(self, agent: str) -> Cutter | None:
        """Return an agent's cutter, which loads logs to remove turns; `None` if the agent is unknown or has none."""
        return self[agent].cutter if agent in self else None

    def files_of(self, agent: str) -> Files:
        """Return the object that reads, replaces and deletes an agent's logs: its cutter, else one for plain files."""
        from smart_fork.agents.excision.cutter import Files

        return self.find_cutter(agent) or Files()

    def cutter_of(self, agent: str) -> Cutter:
        """Return an agent's cutter, which loads its logs so that turns can be removed.

        Raises:
            Usage: The agent is unknown or has no cutter.
        """
        if found := self.find_cutter(agent):
            return found
        raise Usage(f"Unknown tool: {agent}", f"Known: {', '.join((self.AUTO, *self.cuttable()))}.")

    @cached_property
    def session_logs(self) -> re.Pattern[str]:
        """The pattern that finds a path of any agent's log, or of an exported log, in a line of text."""
        from indexer.transcripts.commands import naming_sessions

        return naming_sessions(place for agent in self for place in agent.home.places)

    def around(self, env: Mapping[str, str]) -> AgentName | None:
        """Return the agent that started a process with this environment; `None` if a person's shell did."""
        return next((agent.name for agent in self if any(env.get(mark) for mark in agent.marks)), None)

    def caller_session(self, env: Mapping[str, str], agents: Sequence[Agent] = ()) -> str | None:
        """Return the id of the session that started a process with this environment; `None` if unknown.

        Only the variables that `agents` set are read; by default those of all agents, first of the agent that started
        the process.
        """
        around = None if agents else self.around(env)
        asked = agents or [*([self[around]] if around else []), *self]
        return next((env[name] for agent in asked for name in agent.session_variables if env.get(name)), None)

    def homes(self) -> Iterator[Home]:
        """Yield the description of each agent folder that an environment variable can move."""
        return (agent.home for agent in self if agent.home.variable)

    def home_variables(self) -> tuple[str, ...]:
        """Return the environment variables with which a person can move the agents' folders and files."""
        return tuple(name for home in self.homes() for name in (home.variable, *home.beside))

    def overrides(self) -> tuple[str, ...]:
        """Return the environment variables that set the paths of the agents' programs."""
        return tuple(agent.command.override for agent in self if agent.command)

    def logins(self) -> Iterator[Login]:
        """Yield the object that knows how an agent logs in, for each agent that has one."""
        return (agent.login for agent in self if agent.login)

    def login_variables(self) -> frozenset[str]:
        """Return all agents' login variables: they hold a secret, or select the login method or the server."""
        return frozenset(name for login in self.logins() for name in login.variables())

    def note_login_variables(self, env: Mapping[str, str], agents: Iterable[str] = (), *, also: bool = False) -> None:
        """Save the names, never the values, of the login variables that `env` sets for `agents`, by default all.

        With `also`, the names saved before stay. Errors are ignored.
        """
        from smart_fork.agents.login import note_variables

        wanted = tuple(agents) or self._by_name
        note_variables((one for one in self.logins() if one.agent in wanted), env, also=also)

    def note_login_variables_of_person(self, env: Mapping[str, str]) -> None:
        """Save the names of the login variables in a person's `env`; skip the environment of an agent or a worker."""
        if not any(name in env for name in (*self.callers_own, DEPTH, WORKER_ID)):
            self.note_login_variables(env)

    def registrations(self) -> tuple[Registration, ...]:
        """Return the objects that register smart-fork's MCP server, one for each agent that has one."""
        return tuple(agent.registration for agent in self if agent.registration)

    def readable(self) -> tuple[AgentName, ...]:
        """Return the names of all agents: smart-fork can read the sessions of each."""
        return tuple(agent.name for agent in self)

    def startable(self) -> tuple[AgentName, ...]:
        """Return the names of the agents that smart-fork can start."""
        return tuple(agent.name for agent in self if agent.has("starter"))

    def in_background(self) -> tuple[AgentName, ...]:
        """Return the names of the agents that manage background sessions themselves."""
        return tuple(agent.name for agent in self if agent.has("background"))

    def handed_to(self) -> tuple[AgentName, ...]:
        """Return the names of the agents that can receive a session of another agent."""
        return tuple(agent.name for agent in self if agent.has("converter"))

    def settable(self) -> tuple[AgentName, ...]:
        """Return the names of the agents in which `setup` registers smart-fork's server or hooks."""
        return tuple(agent.name for agent in self if agent.has("registration") or agent.has("hooks"))

    def first(self) -> AgentName:
        """Return the default agent, used if neither a person nor the caller names one."""
        return self.startable()[0]

    def check_id(self, agent: AgentName, session_id: str, which: str = "source") -> str:
        """Return `session_id` if it has the form of the agent's session ids.

        Raises:
            Usage: The id has another form. `which` ("source" or "new") is a word of the message.
        """
        if not self[agent].has("starter"):  # its sessions are only handed over
            return self.check_given(session_id)
        if not self.starter_of(agent).ids.fullmatch(session_id):
            raise Usage(f"Invalid {which} sessionId: {plain_name(session_id)}")
        return session_id

    def check_given(self, session_id: str) -> str:
        """Return `session_id`, a session's id or name, if it is neither an option nor a path; else raise `Usage`."""
        if not _GIVEN.fullmatch(session_id):
            raise Usage(f"Invalid source sessionId: {plain_name(session_id)}")
        return session_id

    @cached_property
    def callers_own(self) -> tuple[str, ...]:
        """The environment variables that agents set for the programs they start.

        They are removed from the environment of a worker (an agent that smart-fork starts). With some of them, Claude
        Code would not save the session.
        """
        return tuple(name for agent in self for name in agent.tells)

    def choices(self) -> tuple[str, ...]:
        """Return the words that `selected` accepts: the agents' names, "both" and "all"."""
        return (*self.readable(), self.BOTH, self.ALL)

    def selected(self, value: object) -> tuple[AgentName, ...]:
        """Return the agents, in the table's order, that a word selects: an agent's name, "both" or "all".

        Raises:
            Usage: The word selects no agent.
        """
        word = str(value).lower()
        if word == self.ALL:
            return self.readable()
        if word == self.BOTH:
            return _BOTH
        if word in self.readable():
            return (word,)
        raise Usage(f"agent_type must be {one_of(self.choices())}, not {shown(value)}")

    def word_for(self, agents: Iterable[AgentName]) -> str:
        """Return the word that selects `agents` (see `selected`): one agent's name, "both", or else "all"."""
        meant = tuple(agents)
        return meant[0] if len(meant) == 1 else self.BOTH if meant == _BOTH else self.ALL

    def to_start(self, name: str) -> AgentName:
        """Return `name` if it is an agent that smart-fork can start; else raise `SmartForkError`."""
        if name in self.startable():
            return name
        raise SmartForkError(f"Unknown adapter: {plain_name(name)}", f"Adapters are: {', '.join(self.startable())}.")

    def to_set_up(self, words: Sequence[str]) -> tuple[AgentName, ...]:
        """Return the agents that the words of the option ``--agent`` name; all agents without words.

        Raises:
            Usage: A word names no agent that can be set up.
        """
        known = {self.ALL: self.settable(), self.BOTH: _BOTH} | {name: (name,) for name in self.settable()}
        if unknown := [word for word in words if word not in known]:
            raise Usage(f"Unknown agent: {unknown[0]}", f"Say {one_of((*self.settable(), self.BOTH, self.ALL), '')}.")
        meant = {name for word in words or (self.ALL,) for name in known[word]}
        return tuple(name for name in self.settable() if name in meant)

    def titles(self, names: Iterable[AgentName], last: str = "and") -> str:
        """Return the agents' names for people, joined for a sentence: "A, B and C", with `last` for "and"."""
        *others, end = (self[name].title for name in names)
        return f"{', '.join(others)} {last} {end}" if others else end


def _needed(facet: F | None, refusal: str, hint: str = "") -> F:
    if facet is None:
        raise Usage(refusal, hint)
    return facet


AGENTS = AllAgents(
    Claude(),
    Codex(),
    Cursor(),
    Qwen(),
    OpenCode(),
    Gemini(),
    Copilot(),
    ReadOnlyAgent("droid", "Droid", Home("FACTORY_HOME_OVERRIDE", ".factory", ("sessions",), inside=".factory")),
    ReadOnlyAgent("goose", "Goose", Home("GOOSE_PATH_ROOT", ".local/share/goose", ("sessions",), inside="data")),
    ReadOnlyAgent("kimi", "Kimi Code", Home("KIMI_CODE_HOME", ".kimi-code", ("sessions",))),
    ReadOnlyAgent("pi", "Pi", Home("PI_CODING_AGENT_DIR", ".pi/agent", ("sessions",))),
    ReadOnlyAgent("amp", "Amp", Home("XDG_DATA_HOME", ".local/share/amp", ("threads",), inside="amp")),
)
