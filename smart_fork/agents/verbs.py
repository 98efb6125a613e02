"""What can be done with each agent, told from the parts that there are of it: said nowhere else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from smart_fork.agents.agent import Agent


class Ability(NamedTuple):
    """Something that can be done with an agent, in words for a person, and whether there is what it takes."""

    words: str
    has: Callable[[Agent], bool]


def _leaves_out(agent: Agent) -> bool:
    """Whether copies of its sessions can leave something out."""
    from smart_fork.agents.copier import Copier

    return agent.copier is not None and type(agent.copier).live is not Copier.live


#: By what they are called in JSON.
ABILITIES: Mapping[str, Ability] = {
    "found": Ability("search", lambda agent: agent.has("reader")),
    "started": Ability("fork", lambda agent: agent.has("starter")),
    "branched": Ability("fork at a message", lambda agent: agent.has("copier")),
    "budgeted": Ability("budget", _leaves_out),
    "told": Ability("receive hand-overs", lambda agent: agent.is_told()),
    "cut": Ability("cut", lambda agent: agent.has("cutter")),
    "shared": Ability("share", lambda agent: agent.has("forms")),
    "tells": Ability("live status", lambda agent: agent.has("hooks")),
    "set_up": Ability("setup", lambda agent: agent.has("registration")),
}


def abilities_of(agent: Agent) -> dict[str, bool]:
    """What of it can be done with an agent."""
    return {name: ability.has(agent) for name, ability in ABILITIES.items()}
