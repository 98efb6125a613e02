"""The family of a session, across agents: its ancestors, and all logs made from these (copies, forks, handovers).

A handover is text written for another agent. Relations come from the logs, the worker registry, and the records of
handovers and cuts (removals of turns from a log). No index is needed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from itertools import takewhile
from pathlib import Path
from typing import Self

from indexer.lazy_compilation import dataclass
from indexer.transcripts.base import LogFile
from indexer.transcripts.model import AgentName, Session
from indexer.transcripts.texts import HANDOVER_TAG
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import FamilyLog
from smart_fork.agents.excision import snapshots
from smart_fork.agents.excision.cutter import Cutter
from smart_fork.agents.log_readers import OWN, READERS
from smart_fork.workers.registry import Registry, WorkerRecord

#: Bytes at a log's beginning that are searched for the heading of a handover, in case the record of it is gone.
_BYTES = 1 << 18
_SAID = re.compile(
    rb"<%b>\\n ?What follows is session ([A-Za-z0-9_-]{8,128}) of ([A-Za-z0-9 .-]{1,40})," % HANDOVER_TAG.encode()
)


@dataclass(frozen=True, slots=True)
class KnownRelations:
    """Relations between sessions that are recorded outside their logs.

    `forks` maps a session to its parent. `shared` has pairs: a session, and a related session or a message that it
    shares with others. `through` maps a session made by a handover (text for another agent) to the last message handed
    over. `others` maps a merged session to its further parents.
    """

    forks: dict[str, str] = field(default_factory=dict)
    shared: set[tuple[str, str]] = field(default_factory=set)
    agents: dict[str, AgentName] = field(default_factory=dict)
    through: dict[str, str] = field(default_factory=dict)
    others: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def same_agent(self, known: Mapping[str, AgentName]) -> dict[str, AgentName]:
        """Return `known` and all sessions of the same agents that `forks` connects with these, each with its agent."""
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
        """Return (agent, id) of sessions that a merge or handover (text for another agent) connects to `known` ones."""
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


def known_relations(asked: Session, workers: Sequence[WorkerRecord]) -> KnownRelations:
    """Collect relations of sessions from `workers` and the records of handovers (text for another agent).

    A handover without a record is found by the first text in the log of `asked`.
    """
    found = KnownRelations(shared={(asked.session_id, FamilyLog.tie(one)) for one in asked.beginnings})
    for one in workers:
        if one.session_id:
            found.agents[one.session_id] = one.agent
            if one.is_fork and one.source_session_id not in ("", one.session_id):
                found.forks[one.session_id] = one.source_session_id
    for noted in provenance.handovers():
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


def relatives(asked: Session, root: str, found: KnownRelations) -> list[FamilyLog]:
    """Return the logs of the family of the session `asked`, of all agents. `root` is its project's directory.

    `found` has the relations that the logs do not show.
    """
    family: list[FamilyLog] = []
    known: dict[str, AgentName] = {}
    waiting = [(asked.agent, asked.session_id)]
    while waiting:
        agent, session_id = waiting.pop()
        if session_id in known:
            continue
        own = (
            AGENTS.ancestry_of(agent).family(session_id, root, found.forks, found.shared)
            if AGENTS[agent].ancestry
            else _logs(agent, session_id)
        )
        family += own
        known |= {kin.session_id: agent for kin in own} | {session_id: agent}
        known |= found.same_agent(known)
        waiting += found.neighbours(known)
    return family


def _logs(agent: AgentName, session_id: str) -> list[FamilyLog]:
    """Return the logs of one session, for agents whose logs do not show forks."""
    paths = READERS[agent].locate(session_id) if agent in READERS.names else ()
    return [FamilyLog(agent, session_id, path) for path in paths]


def _said_in(session: Session) -> tuple[AgentName, str] | None:
    """Return the session that was handed over to `session`, as (agent, id), from the heading in its log; or `None`."""
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


def parents(family: Sequence[FamilyLog], forks: Mapping[str, str]) -> dict[str, str]:
    """Return each session's parent as child id → parent id, without cycles.

    Recorded parents in `forks` come first. Otherwise, logs are compared: the parent is the earlier session that shares
    the longest beginning.
    """
    found: dict[str, str] = {}
    for kin in family if len(family) > 1 else ():
        if not kin.messages and AGENTS[kin.agent].ancestry:  # it was alone in its family
            AGENTS.ancestry_of(kin.agent).read(kin)
    guess = _Shared(family)
    children = _inverted({child: {parent} for child, parent in forks.items()})
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
    """Return the ids in `first`, and all ids that can be reached from them by following `links` (id → next ids)."""
    found, waiting = set(first), list(first)
    while waiting:
        new = set(links.get(waiting.pop(), ())) - found
        found |= new
        waiting += new
    return found


class _Shared:
    """Finds the logs of a family that share messages. A set of logs is an integer with one bit for each log."""

    def __init__(self, family: Sequence[FamilyLog]) -> None:
        self._family = sorted(family, key=lambda kin: (kin.begun, kin.session_id))
        self._has: dict[str, int] = defaultdict(int)
        for place, kin in enumerate(self._family):
            for message in kin.messages:
                self._has[message.id] |= 1 << place

    def parent(self, kin: FamilyLog, below: Collection[str]) -> str:
        """Return the id of the earlier session with the longest beginning in common with `kin`, but not one of `below`.

        `below` are forks of `kin`. Of several such sessions, prefer the parent that the log of `kin` records, or its
        fork.
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

    def _alive(self, kin: FamilyLog, alive: int) -> tuple[int, int]:
        """Return which logs of `alive` share most messages with `kin` from its start on, and how many they share.

        Sets of logs are numbers with a bit for each log.
        """
        shared = 0
        for message in kin.messages:
            left = alive & (self._has.get(message.id, 0) | self._has.get(message.message_id, 0))
            if not left:
                break
            alive, shared = left, shared + 1
        return alive, shared


#: Sessions with the sessions that they were made of, or the other way round.
Links = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class Descendant:
    """A log with content of another session: copied records, or text for another agent (`handed_over`)."""

    agent: AgentName
    session_id: str
    path: Path
    handed_over: bool = False

    @classmethod
    def of(cls, kin: FamilyLog, copied: Collection[str] = ()) -> Self:
        """Return the log `kin` as a descendant. Sessions with ids in `copied` have copied records; others got text."""
        return cls(kin.agent, kin.session_id, kin.path, kin.session_id not in copied)


@dataclass(frozen=True, slots=True)
class Descent:
    """The logs that contain text of a given session.

    `descendants` were made from the session. `unclear` share records with it, but which came first is unknown.
    `siblings` share records that both copied from an earlier session. `ancestors` are session ids; `without_log` are
    related sessions without a log, as (agent, id).
    """

    descendants: tuple[Descendant, ...] = ()
    unclear: tuple[Descendant, ...] = ()
    siblings: tuple[Descendant, ...] = ()
    ancestors: frozenset[str] = frozenset()
    without_log: tuple[tuple[AgentName, str], ...] = ()

    @property
    def logs(self) -> tuple[Descendant, ...]:
        """Return all logs that were made from the session, or may have been."""
        return (*self.descendants, *self.unclear)

    @property
    def copies(self) -> list[Path]:
        """Return the paths of logs with records copied from the session, also through other copies."""
        return [one.path for one in self.descendants if not one.handed_over]

    @classmethod
    def of(cls, agent: AgentName, session_id: str, path: Path, keys: Collection[str] = ()) -> Self:
        """Find every log that was made from a session, also through other copies. `path` is the session's log.

        Logs with one of the session's records, whose ids are `keys`, are found too.
        """
        if not AGENTS[agent].ancestry:
            return cls()
        asked, notes = Session(agent, session_id, path, ()), _notes()
        found, known = known_relations(asked, Registry.known_workers()), notes.get(session_id)
        for child in known.below if known else ():
            found.forks.setdefault(child, session_id)
        family = relatives(asked, "", found)
        related = {str(kin.path) for kin in family}
        apart = (file for file in OWN[agent].discover() if file.location not in related)
        holders = [*_holders(agent, keys, path, apart, is_kin=False)]
        for one in holders:
            if one.session_id not in {kin.session_id for kin in family}:
                family += relatives(Session(agent, one.session_id, one.path, ()), "", found)
        family += _noted_kin({session_id, *(kin.session_id for kin in family)}, notes, found)
        guessed = parents(family, found.forks)
        links = _links(family, guessed, found, session_id if known else "")
        for parent, noted in notes.items():
            links[parent] |= noted.above
            for child in noted.below:
                links[child].add(parent)
        made = _inverted(links)
        agents = defaultdict(lambda: agent, found.agents | {kin.session_id: kin.agent for kin in family})
        _add_copies_of_told(session_id, family, links, made, _same_agent(made, agents, agent))
        below, above = reached({session_id}, made), reached({session_id}, links) - {session_id}
        uncertain = _uncertain(guessed, links, notes)
        tied = (reached({session_id}, uncertain) - below - above) | (below & above)
        below -= tied
        beside = reached({session_id, *above}, made) - below - reached(tied, made)
        placed = {str(kin.path) for kin in family if kin.session_id in {*below, *tied}}
        near = map(OWN[agent].log_at, sorted(related - placed))
        holders += _holders(agent, keys, path, filter(None, near), is_kin=True)
        holders = [one for one in holders if str(one.path) not in placed]
        strangers = {one.session_id for one in holders} - below - beside - tied
        # A fork whose parent is gone has records of this one, if this one has no parent. After a cut that is not known.
        orphans = {kin.session_id for kin in family if kin.recorded and not (above or tied or known)} & strangers
        others = sorted((kin for kin in family if kin.path.resolve() != path.resolve()), key=lambda kin: str(kin.path))
        #: Within one agent, logs share records; across agents, they share text only.
        direct = _same_agent(made, agents, agent)

        def logs_of(sessions: set[str]) -> list[Descendant]:
            copied, all_ = reached(sessions, direct), reached(sessions, made)
            return [Descendant.of(kin, copied) for kin in others if kin.session_id in all_]

        certain = [one for one in logs_of({session_id, *orphans}) if one.session_id not in tied]
        unclear = [one for one in logs_of({*tied, *strangers} - orphans) if one not in certain]
        siblings = [one for one in holders if one.session_id in beside]
        siblings += [Descendant.of(kin) for kin in others if kin.session_id in beside and kin.agent != agent]
        lost = _without_log({session_id, *orphans}, others, links, made, agents)
        return cls(tuple(certain), tuple(unclear), tuple(siblings), frozenset(above), tuple(lost))


@dataclass(slots=True)
class _Noted:
    """Relations of one session that a cut (removal of turns from a log) recorded, since the logs no longer show them.

    `below` are sessions made from it, `above` are its ancestors. `unclear` are relatives in an unknown order.
    """

    agent: AgentName
    below: set[str] = field(default_factory=set)
    above: set[str] = field(default_factory=set)
    unclear: set[str] = field(default_factory=set)


def _notes() -> dict[str, _Noted]:
    """Return the relations that cuts (removals of turns from logs) have recorded, by session id."""
    found: dict[str, _Noted] = {}
    for one in snapshots.noted_changes():
        if one.tool in AGENTS:
            noted = found.setdefault(one.session_id, _Noted(one.tool))
            noted.below |= {*one.below}
            noted.above |= {*one.above}
            noted.unclear |= {*one.unclear}
    return found


def _without_log(
    sessions: set[str], family: Sequence[FamilyLog], links: Links, made: Links, agents: Mapping[str, AgentName]
) -> Iterator[tuple[AgentName, str]]:
    """Yield the relatives of `sessions` that have no log, as (agent, session id)."""
    ties = {one: {*links.get(one, ()), *made.get(one, ())} for one in {*links, *made}}
    for one in sorted(reached(sessions, ties) - sessions - {kin.session_id for kin in family}):
        agent = agents[one]
        if not READERS[agent].locate(one):
            yield agent, one


def _links(
    family: Sequence[FamilyLog], guessed: Mapping[str, str], found: KnownRelations, cut: str
) -> defaultdict[str, set[str]]:
    """Return the certain relations of a family: session id → ids of its parents.

    `guessed` has parents found by comparing logs. Such a parent is not certain if both sessions began at the same time,
    or if turns were removed from one of them (`cut`).
    """
    known = {kin.session_id: kin for kin in family}
    links: defaultdict[str, set[str]] = defaultdict(set)
    for child, parent in guessed.items():
        if parent not in known or (cut not in (child, parent) and known[child].begun > known[parent].begun):
            links[child].add(parent)
    for child, parent in (*((kin.session_id, kin.recorded) for kin in family), *found.forks.items()):
        if parent:
            links[child].add(parent)
    for child, more in found.others.items():
        links[child].update(more)
    return links


def _noted_kin(there: set[str], notes: Mapping[str, _Noted], found: KnownRelations) -> Iterator[FamilyLog]:
    """Yield the logs of sessions that only the records of cuts (removals of turns) relate to the sessions `there`."""
    ties: dict[str, set[str]] = defaultdict(set)
    agents: dict[str, AgentName] = {}
    for one, noted in notes.items():
        for other in (*noted.below, *noted.above, *noted.unclear):
            ties[one].add(other)
            ties[other].add(one)
            agents |= {other: noted.agent, one: noted.agent}
    for other in sorted(reached(there, ties) - there):
        for path in READERS[agents[other]].locate(other)[:1] if other not in there else ():
            more = relatives(Session(agents[other], other, path, ()), "", found)
            yield from (kin for kin in more if kin.session_id not in there)
            there |= {kin.session_id for kin in more}


def _uncertain(guessed: Mapping[str, str], links: Links, notes: Mapping[str, _Noted]) -> Links:
    """Return for each session the relatives that may be its parents or its forks."""
    tied: dict[str, set[str]] = defaultdict(set)
    noted = ((one, other) for one, known in notes.items() for other in known.unclear)
    for child, parent in (*guessed.items(), *noted):
        if parent not in links.get(child, ()) and child not in links.get(parent, ()):
            tied[child].add(parent)
            tied[parent].add(child)
    return tied


def _same_agent(made: Links, agents: Mapping[str, AgentName], agent: AgentName) -> Links:
    """Return the links in `made` (parent → sessions made from it) to sessions of `agent` only."""
    return {one: {child for child in more if agents.get(child, agent) == agent} for one, more in made.items()}


def _add_copies_of_told(
    session_id: str, family: Sequence[FamilyLog], links: Links, made: defaultdict[str, set[str]], direct: Links
) -> None:
    """Add to `made` (session → sessions made from it) the copies of handed-over sessions, which record no parent.

    Copies share records. Which of two is older does not matter: their logs are only searched, not changed.
    """
    told = reached({session_id}, made) - reached({session_id}, direct)
    holders = {message.id: kin.session_id for kin in family if kin.session_id in told for message in kin.messages}
    for kin in family:
        if kin.session_id not in told and not links.get(kin.session_id):
            for one in {holders[message.id] for message in kin.messages if message.id in holders}:
                made[one].add(kin.session_id)


def _inverted(links: Links) -> defaultdict[str, set[str]]:
    made: defaultdict[str, set[str]] = defaultdict(set)
    for child, above in links.items():
        for parent in above:
            made[parent].add(child)
    return made


def _holders(
    agent: AgentName, keys: Collection[str], own: Path, files: Iterable[LogFile], *, is_kin: bool
) -> Iterator[Descendant]:
    """Yield the logs among `files` that contain one of the records `keys`, except the log `own`.

    This finds copies with lost relations. With `is_kin`, the logs are of related sessions, and all of them are read.
    """
    cutter, wanted = AGENTS.find_cutter(agent), frozenset(keys)
    for file in files if cutter and keys else ():
        if file.location == str(own) or not _holds(cutter, file, wanted, is_kin=is_kin):
            continue
        if file.path.resolve() != own.resolve():
            yield Descendant(agent, READERS[agent].id_of(file.path), file.path)


@lru_cache(maxsize=1 << 17)
def _holds(cutter: Cutter, file: LogFile, keys: frozenset[str], *, is_kin: bool) -> bool:
    """Return True if the log `file` contains a record in `keys`. Results are cached: one command asks repeatedly.

    A log of an unrelated session (not `is_kin`) is read only if it may contain records of other sessions.
    """
    path = file.path
    return (is_kin or cutter.may_have_others(path)) and cutter.holds(path, keys)
