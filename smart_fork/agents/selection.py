"""A selection of agents: one by its name, Claude Code and Codex together, or all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.errors import SmartForkError, Usage
from smart_fork.snippets import shown

BOTH, ALL = "both", "all"
#: The agents of the word ``both``, which were the first two.
_BOTH: tuple[AgentName, ...] = ("claude", "codex")


def readable() -> tuple[AgentName, ...]:
    """Return the agents whose sessions smart-fork reads."""
    return tuple(agent.name for agent in AGENTS)


def startable() -> tuple[AgentName, ...]:
    """Return the agents that smart-fork starts."""
    return tuple(agent.name for agent in AGENTS if agent.has("starter"))


def handed_to() -> tuple[AgentName, ...]:
    """Return the agents that can receive a handed-over session."""
    return tuple(agent.name for agent in AGENTS if agent.has("forms"))


def first() -> AgentName:
    """Return the default agent, if neither a person nor an agent named one."""
    return startable()[0]


def choices() -> tuple[str, ...]:
    """Return the words that `selected` accepts."""
    return (*readable(), BOTH, ALL)


def selected(value: object) -> tuple[AgentName, ...]:
    """Return the selected agents in their order.

    Raises:
        Usage: There is no agent of that name whose sessions smart-fork reads.
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
    """Return the shortest word with which `selected` returns these agents."""
    meant = tuple(agents)
    return meant[0] if len(meant) == 1 else BOTH if meant == _BOTH else ALL


def named(name: str) -> AgentName:
    """Return the agent of that name, to start it.

    Raises:
        SmartForkError: There is no such agent.
    """
    if name in startable():
        return name
    from smart_fork.agents.plan import plain_name

    raise SmartForkError(f"Unknown adapter: {plain_name(name)}", f"Adapters are: {', '.join(startable())}.")


def one_of(names: Iterable[str], mark: str = "'") -> str:
    """Return the names as a choice: ``'a', 'b', or 'c'``."""
    *others, last = (f"{mark}{name}{mark}" for name in names)
    if len(others) < 2:
        return " or ".join((*others, last))
    return f"{', '.join(others)}, or {last}"


def titles(names: Iterable[AgentName], last: str = "and") -> str:
    """Return the names of these agents for people, in a sentence."""
    *others, end = (AGENTS[name].title for name in names)
    return f"{', '.join(others)} {last} {end}" if others else end


def settable() -> tuple[AgentName, ...]:
    """Return the agents in which smart-fork registers its server or hooks."""
    return tuple(agent.name for agent in AGENTS if agent.has("registration") or agent.has("hooks"))


def to_set_up(words: Sequence[str]) -> tuple[AgentName, ...]:
    """Return those that all ``--agent`` options name; all without any.

    Raises:
        Usage: An option names none.
    """
    known = {ALL: settable(), BOTH: _BOTH} | {name: (name,) for name in settable()}
    if unknown := [word for word in words if word not in known]:
        raise Usage(f"Unknown agent: {unknown[0]}", f"Say {one_of((*settable(), BOTH, ALL), '')}.")
    meant = {name for word in words or (ALL,) for name in known[word]}
    return tuple(name for name in settable() if name in meant)
