"""What one agent has of something that not every agent has; a refusal in one sentence where it has none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.errors import Usage

if TYPE_CHECKING:
    from smart_fork.agents.agent import Home, ProgramSpec
    from smart_fork.agents.ancestry import Heads
    from smart_fork.agents.copier import Copier
    from smart_fork.agents.forms import Forms, Teller
    from smart_fork.agents.hooks import Hooks
    from smart_fork.agents.login import Login
    from smart_fork.agents.presence import Presence
    from smart_fork.agents.questions import Screen
    from smart_fork.agents.registration import Registration
    from smart_fork.agents.starter import Starter
    from smart_fork.agents.storage import Storage
    from smart_fork.agents.tail import Tail
    from smart_fork.cuts.cutter import Cutter

F = TypeVar("F")
#: In the place of a name: whose transcript it is is seen from the file.
AUTO = "auto"


def title_of(agent: str) -> str:
    """What people call the agent of this name; of one that is not known, its name."""
    return AGENTS[agent].title if agent in AGENTS else agent


def agent_around(env: Mapping[str, str]) -> AgentName | None:
    """The agent that has started the program whose environment this is; `None` for a person's own shell."""
    return next((agent.name for agent in AGENTS if any(env.get(mark) for mark in agent.marks)), None)


def homes() -> Iterator[Home]:
    """The folder of each agent that has one of its own."""
    return (agent.home for agent in AGENTS if agent.home)


def home_variables() -> tuple[str, ...]:
    """The variables that say where the agents' folders are, and what they write."""
    return tuple(name for home in homes() for name in (home.variable, *home.beside))


def overrides() -> tuple[str, ...]:
    """The variables that say where the agents' programs are."""
    return tuple(agent.command.override for agent in AGENTS if agent.command)


def command_of(agent: str) -> ProgramSpec:
    """The program of that agent. Raises `Usage` where we start none."""
    return _needed(AGENTS[agent].command, f"smart-fork cannot start {title_of(agent)}")


def starter_of(agent: str) -> Starter:
    """How that agent is started. Raises `Usage` where nothing of ours starts it."""
    return _needed(AGENTS[agent].starter, f"smart-fork cannot start {title_of(agent)}")


def screen_of(agent: str) -> Screen:
    """How the screen of that agent is read. Raises `Usage` where that is not known."""
    return _needed(AGENTS[agent].screen, f"smart-fork cannot read the screen of {title_of(agent)}")


def storage_of(agent: str) -> Storage:
    """Where that agent files its sessions. Raises `Usage` where that is not known."""
    return _needed(AGENTS[agent].storage, f"smart-fork does not know where {title_of(agent)} keeps its sessions")


def copier(agent: str) -> Copier:
    """How that agent's sessions are copied. Raises `Usage` where they are not."""
    return _needed(AGENTS[agent].copier, f"smart-fork cannot branch {title_of(agent)} sessions")


def forms_of(agent: str) -> Forms:
    """How that agent's records are shared. Raises `Usage` where they are not."""
    return _needed(AGENTS[agent].forms, f"Sessions of {title_of(agent)} are not shared", why_not(agent, "shared"))


def teller_of(agent: str) -> Teller:
    """How that agent is told of another one's session. Raises `Usage` where it is not."""
    return _needed(AGENTS[agent].teller, f"{title_of(agent)} cannot receive sessions of other agents")


def heads_of(agent: str) -> Heads:
    """How the logs of that agent begin. Raises `Usage` where that is not known."""
    return _needed(AGENTS[agent].heads, f"The families of {title_of(agent)} sessions are not known")


def tail_of(agent: str) -> Tail:
    """How that agent goes on with its logs. Raises `Usage` where that is not known."""
    return _needed(AGENTS[agent].tail, f"smart-fork has no live status of {title_of(agent)} sessions")


def login_of(agent: str) -> Login:
    """How that agent logs in. Raises `Usage` where that is not known."""
    return _needed(AGENTS[agent].login, f"smart-fork does not know how {title_of(agent)} logs in")


def logins() -> Iterator[Login]:
    """How each agent logs in of which that is known."""
    return (agent.login for agent in AGENTS if agent.login)


def login_variables() -> frozenset[str]:
    """The variables of all agents that may hold a secret, or say where it is sent."""
    return frozenset(name for login in logins() for name in login.variables())


def hooks_of(agent: str) -> Hooks:
    """How that agent tells what its sessions do. Raises `Usage` where it does not."""
    return _needed(AGENTS[agent].hooks, f"{title_of(agent)} does not report what its sessions do")


def presences() -> Iterator[Presence]:
    """By what each agent is known where it runs."""
    return (agent.presence for agent in AGENTS if agent.presence)


def registration_of(agent: str) -> Registration:
    """How that agent is told of our MCP server. Raises `Usage` where that is not known."""
    return _needed(AGENTS[agent].registration, f"smart-fork does not know how {title_of(agent)} registers servers")


def registrations() -> tuple[Registration, ...]:
    """How each agent is told of our MCP server."""
    return tuple(agent.registration for agent in AGENTS if agent.registration)


def cutters() -> tuple[Cutter, ...]:
    """How transcripts are cut, in the order in which each is asked whether a file is its own."""
    return tuple(sorted((agent.cutter for agent in AGENTS if agent.cutter), key=lambda cutter: cutter.writes_on))


def cuttable() -> tuple[str, ...]:
    """The names of the agents whose transcripts can be cut, in that order."""
    return tuple(cutter.tool for cutter in cutters())


def first_cut() -> AgentName:
    """The agent whose transcripts are meant where nobody says whose: the first of those that can be cut."""
    return next(agent.name for agent in AGENTS if agent.has("cutter"))


def find_cutter(tool: str) -> Cutter | None:
    """The cutter of that name; `None` for a transcript of which nobody knows whose it is."""
    return AGENTS[tool].cutter if tool in AGENTS else None


def cutter(tool: str) -> Cutter:
    """The cutter of that name.

    Raises:
        Usage: there is none.
    """
    if found := find_cutter(tool):
        return found
    raise Usage(f"Unknown tool: {tool}", f"Known: {', '.join((AUTO, *cuttable()))}.")


def why_not(agent: str, ability: str) -> str:
    """Why something cannot be done with an agent, as a sentence; empty where nobody says it."""
    why = AGENTS[agent].lacks.get(ability, "")
    return f"{why[:1].upper()}{why[1:]}." if why else ""


def _needed(facet: F | None, refusal: str, hint: str = "") -> F:
    if facet is None:
        raise Usage(refusal, hint)
    return facet
