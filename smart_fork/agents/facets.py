"""Returns one agent's facet, or refuses with a sentence if the agent does not have it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.errors import Usage, advice

if TYPE_CHECKING:
    from smart_fork.agents.agent import ProgramSpec, Storage
    from smart_fork.agents.ancestry import Heads
    from smart_fork.agents.copier import Copier
    from smart_fork.agents.description import Home
    from smart_fork.agents.forms import Forms
    from smart_fork.agents.hooks import Hooks
    from smart_fork.agents.login import Login
    from smart_fork.agents.questions import Screen
    from smart_fork.agents.registration import Registration
    from smart_fork.agents.starter import Starter
    from smart_fork.agents.tail import Tail
    from smart_fork.cuts.cutter import Cutter, Files

F = TypeVar("F")
#: Instead of a name: the file itself tells its agent.
AUTO = "auto"


def title_of(agent: str) -> str:
    """Return an agent's name for people; an unknown name as it is."""
    return AGENTS[agent].title if agent in AGENTS else agent


def agent_around(env: Mapping[str, str]) -> AgentName | None:
    """Return the agent that started a program with this environment; `None` for a person's own shell."""
    return next((agent.name for agent in AGENTS if any(env.get(mark) for mark in agent.marks)), None)


def homes() -> Iterator[Home]:
    """Yield the own folder of each agent that has one."""
    return (agent.home for agent in AGENTS if agent.home.variable)


def home_variables() -> tuple[str, ...]:
    """Return the variables that name the agents' folders and files."""
    return tuple(name for home in homes() for name in (home.variable, *home.beside))


def overrides() -> tuple[str, ...]:
    """Return the variables that name the agents' programs."""
    return tuple(agent.command.override for agent in AGENTS if agent.command)


def command_of(agent: str) -> ProgramSpec:
    """Return the agent's program. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].command, f"smart-fork cannot start {title_of(agent)}", _handed_over())


def starter_of(agent: str) -> Starter:
    """Return the agent's starter. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].starter, f"smart-fork cannot start {title_of(agent)}", _handed_over())


def screen_of(agent: str) -> Screen:
    """Return the agent's screen. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].screen, f"smart-fork cannot read the screen of {title_of(agent)}")


def storage_of(agent: str) -> Storage:
    """Return the agent's storage. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].storage, f"smart-fork does not know where {title_of(agent)} keeps its sessions")


def copier(agent: str) -> Copier:
    """Return the agent's copier. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].copier, f"smart-fork cannot branch {title_of(agent)} sessions", _handed_over())


def forms_of(agent: str) -> Forms:
    """Return the agent's forms. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].forms, f"Sessions of {title_of(agent)} are not shared", why_not(agent, "shared"))


def teller_of(agent: str) -> Forms:
    """Return the writer of sessions handed over to the agent. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].forms, f"{title_of(agent)} cannot receive sessions of other agents")


def heads_of(agent: str) -> Heads:
    """Return the agent's heads. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].heads, f"The families of {title_of(agent)} sessions are not known")


def tail_of(agent: str) -> Tail:
    """Return the agent's tail. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].tail, f"smart-fork has no live status of {title_of(agent)} sessions")


def login_of(agent: str) -> Login:
    """Return the agent's login. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].login, f"smart-fork does not know how {title_of(agent)} logs in")


def logins() -> Iterator[Login]:
    """Yield the login of each agent that has one."""
    return (agent.login for agent in AGENTS if agent.login)


def login_variables() -> frozenset[str]:
    """Return all agents' variables that can hold a secret, or name the server that gets it."""
    return frozenset(name for login in logins() for name in login.variables())


def hooks_of(agent: str) -> Hooks:
    """Return the agent's hooks. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].hooks, f"{title_of(agent)} does not report what its sessions do")


def registration_of(agent: str) -> Registration:
    """Return the agent's registration. Raise `Usage` if it has none."""
    return _needed(AGENTS[agent].registration, f"smart-fork does not know how {title_of(agent)} registers servers")


def registrations() -> tuple[Registration, ...]:
    """Return the registration of each agent that has one."""
    return tuple(agent.registration for agent in AGENTS if agent.registration)


def cutters() -> tuple[Cutter, ...]:
    """Return all cutters, in the order in which each is asked if a file is its own."""
    return tuple(sorted((agent.cutter for agent in AGENTS if agent.cutter), key=lambda cutter: cutter.writes_on))


def cuttable() -> tuple[str, ...]:
    """Return the names of the agents whose transcripts can be cut, in that order."""
    return tuple(cutter.tool for cutter in cutters())


def first_cut() -> AgentName:
    """Return the default agent of cuts: the first whose transcripts can be cut."""
    return next(agent.name for agent in AGENTS if agent.has("cutter"))


def find_cutter(tool: str) -> Cutter | None:
    """Return the cutter of that name; `None` for a transcript of an unknown agent."""
    return AGENTS[tool].cutter if tool in AGENTS else None


def files_of(tool: str) -> Files:
    """Return how transcripts of that agent are stored; of an unknown agent, as files."""
    from smart_fork.cuts.cutter import Files

    return find_cutter(tool) or Files()


def cutter(tool: str) -> Cutter:
    """Return the cutter of that name.

    Raises:
        Usage: There is none.
    """
    if found := find_cutter(tool):
        return found
    raise Usage(f"Unknown tool: {tool}", f"Known: {', '.join((AUTO, *cuttable()))}.")


def why_not(agent: str, ability: str) -> str:
    """Return the reason why an agent lacks an ability, as a sentence; empty if none is given."""
    why = AGENTS[agent].lacks.get(ability, "")
    return f"{why[:1].upper()}{why[1:]}." if why else ""


def _handed_over() -> str:
    other = next(agent.name for agent in AGENTS if agent.has("starter"))
    return advice(
        f"Hand the whole session over to another agent: `smart-fork fork ID --as {other}`.",
        tool=f"Hand the whole session over to another agent: as_agent {other}.",
    )


def _needed(facet: F | None, refusal: str, hint: str = "") -> F:
    if facet is None:
        raise Usage(refusal, hint)
    return facet
