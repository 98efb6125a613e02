"""Which agents are meant: one by its name, Claude Code and Codex together, or all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.errors import SmartForkError, Usage
from smart_fork.text.snippets import shown

BOTH, ALL = "both", "all"
#: The two that there were before there were others. The word keeps its meaning.
_BOTH: tuple[AgentName, ...] = ("claude", "codex")


def readable() -> tuple[AgentName, ...]:
    """The agents whose sessions are found, listed and read."""
    return tuple(agent.name for agent in AGENTS if agent.has("reader"))


def startable() -> tuple[AgentName, ...]:
    """The agents that are started."""
    return tuple(agent.name for agent in AGENTS if agent.has("starter"))


def handed_to() -> tuple[AgentName, ...]:
    """The agents that are told of other agents' sessions."""
    return tuple(agent.name for agent in AGENTS if agent.is_told())


def first() -> AgentName:
    """The agent that is meant where nobody says which, and none asks."""
    return startable()[0]


def choices() -> tuple[str, ...]:
    """What `selected` takes."""
    return (*readable(), BOTH, ALL)


def selected(value: object) -> tuple[AgentName, ...]:
    """The agents whose sessions are meant, in their order.

    Raises:
        Usage: there is none of that name whose sessions are read.
    """
    word = str(value).lower()
    if word == ALL:
        return readable()
    if word == BOTH:
        return _BOTH
    if word in readable():
        return (word,)
    raise Usage(f"agent_type must be {one_of(choices())}, not {shown(value)}")


def word_for(agents: Iterable[AgentName]) -> str:
    """The shortest word that `selected` takes for these agents."""
    meant = tuple(agents)
    return meant[0] if len(meant) == 1 else BOTH if meant == _BOTH else ALL


def named(name: str) -> AgentName:
    """The agent of that name, to be started.

    Raises:
        SmartForkError: there is none.
    """
    if name in startable():
        return name
    from smart_fork.agents.plan import plain_name

    raise SmartForkError(f"Unknown adapter: {plain_name(name)}", f"Adapters are: {', '.join(startable())}.")


def one_of(names: Iterable[str], mark: str = "'") -> str:
    """The names as a choice: ``'a', 'b', or 'c'``."""
    *others, last = (f"{mark}{name}{mark}" for name in names)
    if len(others) < 2:
        return " or ".join((*others, last))
    return f"{', '.join(others)}, or {last}"


def titles(names: Iterable[AgentName], last: str = "and") -> str:
    """What people call these agents, in a sentence."""
    *others, end = (AGENTS[name].title for name in names)
    return f"{', '.join(others)} {last} {end}" if others else end


def settable() -> tuple[AgentName, ...]:
    """The agents that we are made known to, or that tell us what their sessions do."""
    return tuple(agent.name for agent in AGENTS if agent.has("registration") or agent.has("hooks"))


def to_set_up(words: Sequence[str]) -> tuple[AgentName, ...]:
    """Those of them that all ``--agent`` together mean; all of them without any.

    Raises:
        Usage: one means none.
    """
    known = {ALL: settable(), BOTH: _BOTH} | {name: (name,) for name in settable()}
    if unknown := [word for word in words if word not in known]:
        raise Usage(f"Unknown agent: {unknown[0]}", f"Say {one_of((*settable(), BOTH, ALL), '')}.")
    meant = {name for word in words or (ALL,) for name in known[word]}
    return tuple(name for name in settable() if name in meant)
