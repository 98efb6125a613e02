"""Finds every log that was made of a session: copies, branches, forks, forks of these, and sessions told of it.

The logs themselves say it, and beside them the register of workers and the notes on hand-overs. No index is needed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS, READERS
from smart_fork.agents.ancestry import Kin
from smart_fork.agents.facets import find_cutter
from smart_fork.families.crossing import Crossings, crossings, relatives
from smart_fork.families.tree import parents
from smart_fork.registry import Registry, WorkerRecord
from smart_fork.registry_file import has_registry

#: Each session with those that it was made of.
Links = Mapping[str, set[str]]


@dataclass(frozen=True, slots=True)
class Descendant:
    """A log with something of a session. `told` says that it has its words, in records of its own."""

    agent: AgentName
    session_id: str
    path: Path
    told: bool = False


@dataclass(frozen=True, slots=True)
class Descent:
    """The logs that have something of a session.

    `below` were made of it. `unclear` have records of it, and nothing says which of them was first. `beside` have the
    same records from a session before: those that it was made of, and what else was made of these.
    """

    below: tuple[Descendant, ...] = ()
    unclear: tuple[Descendant, ...] = ()
    beside: tuple[Descendant, ...] = ()


def descent(agent: AgentName, session_id: str, path: Path, keys: Collection[str] = ()) -> Descent:
    """Everything that was made of a session, to any depth. `keys` are those of records that are looked for."""
    if not AGENTS[agent].heads:
        return Descent()
    asked = Session(agent, session_id, path, ())
    found = crossings(asked, _workers())
    family = relatives(asked, "", found)
    guessed = parents(family, found.forks)
    links = _links(family, guessed, found)
    made = _inverted(links)
    below = _reached({session_id}, made)
    above = _reached({session_id}, links)
    beside = _reached(above, made) - below
    direct = _reached({session_id}, _of_one_agent(made, agent, family, found))
    own = path.resolve()
    logs = [kin for kin in family if kin.session_id in below and kin.path.resolve() != own]
    told = [Descendant(kin.agent, kin.session_id, kin.path, kin.session_id not in direct) for kin in logs]
    is_first = above == {session_id} and not _is_tied(session_id, guessed, links)
    unclear, others = list[Descendant](), list[Descendant]()
    seen = {own, *(kin.path.resolve() for kin in logs)}
    for one in _holders(agent, keys, seen, {kin.path for kin in family}):
        where = others if one.session_id in beside else told if is_first else unclear
        where.append(one)
    return Descent(tuple(told), tuple(unclear), tuple(others))


def _workers() -> list[WorkerRecord]:
    if not has_registry():
        return []
    with Registry() as registry:
        return registry.workers()


def _links(family: Sequence[Kin], guessed: Mapping[str, str], found: Crossings) -> Links:
    """All that is certain. Of two logs that share records and began at the same time, either may be the other's."""
    known = {kin.session_id: kin for kin in family}
    links: dict[str, set[str]] = defaultdict(set)
    for child, parent in guessed.items():
        if parent not in known or known[child].begun > known[parent].begun:
            links[child].add(parent)
    for child, parent in (*((kin.session_id, kin.recorded) for kin in family), *found.forks.items()):
        if parent:
            links[child].add(parent)
    for child, more in found.others.items():
        links[child].update(more)
    return links


def _is_tied(session_id: str, guessed: Mapping[str, str], links: Links) -> bool:
    """Whether a session is another's, or another its own, without anything that says so."""
    return any(session_id in pair and pair[1] not in links.get(pair[0], ()) for pair in guessed.items())


def _inverted(links: Links) -> Links:
    made: dict[str, set[str]] = defaultdict(set)
    for child, above in links.items():
        for parent in above:
            made[parent].add(child)
    return made


def _of_one_agent(made: Links, agent: AgentName, family: Iterable[Kin], found: Crossings) -> Links:
    """Only those that have records: sessions of the same agent."""
    agents = {**found.agents, **{kin.session_id: kin.agent for kin in family}}
    return {one: {child for child in more if agents.get(child, agent) == agent} for one, more in made.items()}


def _reached(first: set[str], links: Links) -> set[str]:
    reached, waiting = set(first), list(first)
    while waiting:
        new = links.get(waiting.pop(), set()) - reached
        reached |= new
        waiting += new
    return reached


def _holders(
    agent: AgentName, keys: Collection[str], seen: Collection[Path], family: Collection[Path]
) -> Iterator[Descendant]:
    """Further logs with one of these records: what stands between may be gone, or no log may say whose it is."""
    cutter = find_cutter(agent)
    if cutter is None or not keys:
        return
    for file in READERS[agent].discover():
        path = file.path
        if path.resolve() not in seen and (path in family or cutter.may_have_others(path)) and cutter.holds(path, keys):
            yield Descendant(agent, READERS[agent].id_of(path), path)
