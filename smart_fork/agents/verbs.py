"""What smart-fork can do with each agent, derived from the agent's facets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from smart_fork.agents.agent import Agent


class Ability(NamedTuple):
    """An ability in words for people, and whether an agent has it."""

    words: str
    has: Callable[[Agent], bool]


#: The abilities by their JSON keys.
ABILITIES: Mapping[str, Ability] = {
    "found": Ability("search", lambda _: True),
    "started": Ability("fork", lambda agent: agent.has("starter")),
    "branched": Ability("fork at a message", lambda agent: agent.has("copier")),
    "budgeted": Ability("budget", lambda agent: agent.has("copier")),
    "told": Ability("receive hand-overs", lambda agent: agent.has("forms")),
    "cut": Ability("cut", lambda agent: agent.has("cutter")),
    "shared": Ability("share", lambda agent: agent.has("forms")),
    "tells": Ability("live status", lambda agent: agent.has("hooks")),
    "set_up": Ability("setup", lambda agent: agent.has("registration")),
}


def abilities_of(agent: Agent) -> dict[str, bool]:
    """Return the abilities of an agent."""
    return {name: ability.has(agent) for name, ability in ABILITIES.items()}
