"""Which sessions are of one family, through several agents, and whose fork each of them is."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

from indexer.transcripts.boilerplate import HANDOVER_TAG
from indexer.transcripts.model import AgentName, Session
from smart_fork import handovers
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import Kin
from smart_fork.agents.readers import READERS
from smart_fork.workers.registry import WorkerRecord

#: Where a note is gone, the beginning of a log says it: what was told stands among so many of its bytes.
_BYTES = 1 << 18
_SAID = re.compile(
    rb"<%b>\\n ?What follows is session ([A-Za-z0-9_-]{8,128}) of ([A-Za-z0-9 .-]{1,40})," % HANDOVER_TAG.encode()
)


@dataclass(frozen=True, slots=True)
class Crossings:
    """Whose fork sessions are, as far as logs of their own do not tell it, and whose agent's they are.

    `through` is the last message that one which was handed over was told of. Of what is merged `others` has the parents
    that come behind the first.
    """

    forks: dict[str, str] = field(default_factory=dict)
    agents: dict[str, AgentName] = field(default_factory=dict)
    through: dict[str, str] = field(default_factory=dict)
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def same_agent(self, known: Mapping[str, AgentName]) -> dict[str, AgentName]:
        """The sessions of the same agents that those which are `known` were forked from, or forked as: also those
        without a log.
        """
        ties = defaultdict[str, set[str]](set)
        for one, other in self.forks.items():
            ties[one].add(other)
            ties[other].add(one)
        reached, waiting = dict(known), list(known)
        while waiting:
            agent = reached[one := waiting.pop()]
            new = {other: agent for other in ties[one] - reached.keys() if self.agents.get(other) == agent}
            reached |= new
            waiting += new
        return reached

    def neighbours(self, known: Mapping[str, AgentName]) -> list[tuple[AgentName, str]]:
        """The sessions of other agents that those which are `known` were forked from, or forked as.

        And those of any agent that they are merged from, or are merged in.
        """
        merged = [(fork, parent) for fork, parents in self.others.items() for parent in parents]
        ties = [(pair, False) for pair in self.forks.items()] + [(pair, True) for pair in merged]
        found = dict.fromkeys(
            (self.agents[other], other)
            for pair, is_merged in ties
            for one, other in (pair, pair[::-1])
            if one in known and other not in known and other in self.agents
            if is_merged or self.agents[other] != known[one]
        )
        return list(found)


def crossings(asked: Session, workers: Sequence[WorkerRecord]) -> Crossings:
    """All that is known of it; of the session that is `asked` for, also by what it was told itself."""
    found = Crossings()
    for one in workers:
        if one.session_id:
            found.agents[one.session_id] = one.agent
            if one.is_fork and one.source_session_id not in ("", one.session_id):
                found.forks[one.session_id] = one.source_session_id
    for noted in handovers.all_known():
        if noted.agent in AGENTS and noted.source_agent in AGENTS:
            found.agents.update({noted.session_id: noted.agent, noted.source_session_id: noted.source_agent})
            if noted.merged:
                known = found.others.get(noted.session_id, ())
                found.others[noted.session_id] = (*known, noted.source_session_id)
                continue
            found.forks[noted.session_id] = noted.source_session_id
            found.through[noted.session_id] = noted.through
    if asked.session_id not in found.forks and (said := _said_in(asked)):
        agent, parent = said
        found.agents.setdefault(parent, agent)
        found.agents[asked.session_id] = asked.agent
        found.forks[asked.session_id] = parent
    return found


def relatives(asked: Session, root: str, found: Crossings) -> list[Kin]:
    """The logs of the family of a session, whichever agents' they are."""
    family: list[Kin] = []
    known: dict[str, AgentName] = {}
    waiting = [(asked.agent, asked.session_id)]
    while waiting:
        agent, session_id = waiting.pop()
        if session_id in known:
            continue
        own = (
            AGENTS.heads_of(agent).family(session_id, root, found.forks)
            if AGENTS[agent].heads
            else _logs(agent, session_id)
        )
        family += own
        known |= {kin.session_id: agent for kin in own} | {session_id: agent}
        known |= found.same_agent(known)
        waiting += found.neighbours(known)
    return family


def _logs(agent: AgentName, session_id: str) -> list[Kin]:
    """The logs of a session whose agent's families are not known."""
    paths = READERS[agent].locate(session_id) if agent in READERS.names else ()
    return [Kin(agent, session_id, path) for path in paths]


def _said_in(session: Session) -> tuple[AgentName, str] | None:
    """From which session of another agent it says that it was told, and whose that is."""
    try:
        with READERS[session.agent].as_file(session.source_path) as path, path.open("rb") as file:
            said = _SAID.search(file.read(_BYTES))
    except OSError:
        return None
    if said is None:
        return None
    title, parent = said[2].decode("ascii"), said[1].decode("ascii")
    agent = next((agent.name for agent in AGENTS if agent.title == title), None)
    return (agent, parent) if agent and agent != session.agent and parent != session.session_id else None


def parents(family: Sequence[Kin], forks: Mapping[str, str]) -> dict[str, str]:
    """Find each session's parent; the first ones of all are not in it. There are no circles in it.

    Forks of some agents, and the branches that are written, say whose copies they are. Others say nothing, but copy the
    records of their parent with their ids: the parent is the session that shares the longest beginning and began first.
    """
    found: dict[str, str] = {}
    for kin in family if len(family) > 1 else ():
        if not kin.messages and AGENTS[kin.agent].heads:  # it was alone in its family
            AGENTS.heads_of(kin.agent).read(kin)
    guess = _Shared(family)
    children: dict[str, list[str]] = defaultdict(list)
    for child, parent in forks.items():
        children[parent].append(child)
    for kin in sorted(family, key=lambda kin: (kin.begun, kin.session_id)):
        # No known fork of a session is its parent, however early its log seems to begin.
        likely = forks.get(kin.session_id) or guess.parent(kin, reached({kin.session_id}, children) - {kin.session_id})
        above: str | None = likely
        while above and above != kin.session_id:
            above = found.get(above)
        if likely and above is None:
            found[kin.session_id] = likely
    return found


def reached(first: set[str], links: Mapping[str, Iterable[str]]) -> set[str]:
    """These sessions, and those that links lead to from them."""
    found, waiting = set(first), list(first)
    while waiting:
        new = set(links.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


class _Shared:
    """Which messages the logs have in common; sets of logs are bits of a number, since there may be hundreds."""

    def __init__(self, family: Sequence[Kin]) -> None:
        self._family = sorted(family, key=lambda kin: (kin.begun, kin.session_id))
        self._has: dict[str, int] = defaultdict(int)
        for place, kin in enumerate(self._family):
            for message in kin.messages:
                self._has[message.id] |= 1 << place

    def parent(self, kin: Kin, below: Collection[str]) -> str:
        """The one that began earlier and shares most, and is not `below` it; of several the one that is recorded, or
        records the same.
        """
        earlier = (1 << self._family.index(kin)) - 1
        later = sum(1 << place for place, one in enumerate(self._family) if below and one.session_id in below)
        alive, shared = self._alive(kin, earlier & ~later)
        copied = takewhile(lambda one: one.session_id == kin.recorded, kin.messages)
        said = sum(1 for _ in copied) if kin.recorded else 0
        candidates = [one for place, one in enumerate(self._family) if shared and alive >> place & 1]
        if kin.native and kin.recorded:
            candidates = [one for one in candidates if one.recorded == kin.recorded] or candidates
        elif shared <= said:  # also where that one is gone
            return kin.recorded
        best = max(
            candidates, key=lambda one: (one.session_id == kin.recorded, one.recorded == kin.recorded), default=None
        )
        return best.session_id if best else kin.recorded

    def _alive(self, kin: Kin, alive: int) -> tuple[int, int]:
        """Those of `alive` that share the longest beginning with `kin`, and how long it is."""
        shared = 0
        for message in kin.messages:
            left = alive & (self._has.get(message.id, 0) | self._has.get(message.message_id, 0))
            if not left:
                break
            alive, shared = left, shared + 1
        return alive, shared
