"""What smart-fork can do with each agent, derived from the agent's facets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from smart_fork.agents.agent import Agent


class Ability(NamedTuple):
    """An ability in words for people, and the facet of an agent that has it; all agents have one without a facet."""

    words: str
    facet: str = ""


#: The abilities by their JSON keys.
ABILITIES: Mapping[str, Ability] = {
    "found": Ability("search"),
    "started": Ability("fork", "starter"),
    "branched": Ability("fork at a message", "copier"),
    "budgeted": Ability("budget", "copier"),
    "told": Ability("receive hand-overs", "forms"),
    "cut": Ability("cut", "cutter"),
    "shared": Ability("share", "forms"),
    "tells": Ability("live status", "hooks"),
    "set_up": Ability("setup", "registration"),
}


def abilities_of(agent: Agent) -> dict[str, bool]:
    """Return the abilities of an agent."""
    return {name: not ability.facet or agent.has(ability.facet) for name, ability in ABILITIES.items()}
