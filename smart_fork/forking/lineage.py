"""The family of a session as an answer to the user: ancestors, forks, and the message at which each fork begins."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from indexer.lazy_compilation import dataclass
from indexer.masking import shorten
from indexer.project import project_of
from indexer.repositories import recorded
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.ancestry import FamilyLog
from smart_fork.agents.log_readers import READERS
from smart_fork.finding import session_lookup
from smart_fork.finding.index_access import known_index
from smart_fork.finding.results import UNTRUSTED
from smart_fork.finding.results import title as shown_title
from smart_fork.finding.session_commits import commits_made
from smart_fork.finding.session_place import permits, placed_here
from smart_fork.forking.branch import command_to_resume
from smart_fork.forking.family import KnownRelations, known_relations, parents, relatives
from smart_fork.forking.results import Family, LeftAt, Relative, RunningWorker
from smart_fork.system import call_context
from smart_fork.system.processes import Machine
from smart_fork.workers.liveness import note_ends
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry

if TYPE_CHECKING:
    from indexer.store.base import SeenFile, SessionRow
    from indexer.store.sqlite import Store

_T = TypeVar("_T")
#: Characters quoted of the last message that a fork shares with its parent.
QUOTE_CHARACTERS = 80


@dataclass(frozen=True, slots=True)
class MemberFacts:
    """Facts about a session: title, directory, times and size. `may_be_told` is true if this caller may see them."""

    title: str = ""
    cwd: str = ""
    started: str = ""
    last_activity: str = ""
    turns: int = 0
    tokens: int = 0
    may_be_told: bool = False
    inferred_from: str = ""


@bounded(0.5)  # it is read for its turns and for its messages
def lineage(reference: str) -> Family:
    """Return the family of a session: its ancestors and all their forks, each before its forks.

    Forks of one session are in order of creation.
    """
    asked = session_lookup.read(session_lookup.locate(reference))
    told = _with_index(lambda store: _told(asked, _known(asked, store), store))
    family = replace(told, left_out=session_lookup.left_out(asked))
    made = commits_made([(one.agent_type, one.session_id) for one in family.sessions], asked.cwd)
    return replace(family, sessions=tuple(replace(one, commits=made.get(one.session_id)) for one in family.sessions))


def forks_of(session: Session) -> tuple[Relative, ...]:
    """Return the forks of `session`, in order of creation."""

    def forks(store: Store | None) -> tuple[Relative, ...]:
        known = _known(session, store)
        if known.is_alone(session):
            return ()
        return tuple(one for one in _told(session, known, store).sessions if one.parent == session.session_id)

    return _with_index(forks)


def _with_index(told: Callable[[Store | None], _T]) -> _T:
    with known_index() as store:
        return told(store)
    return told(None)


class _Known(NamedTuple):
    """The logs of a session's family, the relations between its sessions, and all workers."""

    family: list[FamilyLog]
    found: KnownRelations
    workers: list[WorkerRecord]

    def is_alone(self, session: Session) -> bool:
        """Return True if the session has neither ancestors nor forks."""
        others = {kin.session_id for kin in self.family} - {session.session_id}
        return not others and session.session_id not in self.found.forks.values()


def _known(asked: Session, store: Store | None) -> _Known:
    """Collect the family of the session `asked` from logs, worker registry, recorded handovers, and index."""
    workers = _workers()
    found = known_relations(asked, workers)
    row = store.session(asked.agent, asked.session_id) if store else None
    if store and row and row.root_id:
        found.shared.update((asked.session_id, one.session_id) for one in store.family(row.root_id))
    project = project_of(recorded(asked.cwd) or asked.source_path.parent)
    return _Known(relatives(asked, project.root, found), found, workers)


def _told(asked: Session, known: _Known, store: Store | None) -> Family:
    family, found, workers = known
    reader = _FactReader(store, found, asked)
    if call_context.limited():  # a fork may work elsewhere; there it is as if its log were gone
        family = [kin for kin in family if reader.facts(kin).may_be_told]
    forks = found.forks
    above = parents(family, forks)
    logs = _logs(family)
    running = {w.session_id: w for w in reversed(workers) if w.session_id and w.state in ("starting", "running")}
    for session_id in running:  # an agent without a prompt has written nothing yet
        if session_id not in logs and forks.get(session_id) in logs:
            above[session_id] = forks[session_id]

    def member(session_id: str, depth: int) -> Relative:
        own, parent, worker = logs.get(session_id, ()), above.get(session_id), running.get(session_id)
        agent = own[0].agent if own else found.agents.get(session_id, asked.agent)
        facts = reader.facts(own[0]) if own else MemberFacts()
        return Relative(
            depth=depth, session_id=session_id, agent_type=agent, parent=parent,
            merged_from=found.others.get(session_id, ()),
            left_parent_at=reader.left(own[0], logs[parent][0]) if own and parent and parent in logs else None,
            log_gone=not own, title=shown_title(facts.title), started=facts.started, last_activity=facts.last_activity,
            begun=own[0].begun or facts.started if own else "", turns=facts.turns, token_estimate=facts.tokens,
            working_directory=facts.cwd, project_inferred_from=facts.inferred_from,
            jsonl_path=str(own[0].path) if own else None, copies=tuple(str(kin.path) for kin in own[1:]),
            resume_command=command_to_resume(agent, session_id, facts.cwd) if own else None,
            started_by=next((one.caller_session_id for one in workers if one.session_id == session_id), None),
            running=worker.told(RunningWorker, status=worker.status or worker.state) if worker else None,
        )  # fmt: skip

    told = tuple(member(*one) for one in _in_order(above, logs, asked.session_id))
    parent = next((one.parent for one in told if one.session_id == asked.session_id), None)
    back = next((one.resume_command for one in told if one.session_id == parent), None)
    return Family(
        session_id=asked.session_id, agent_type=asked.agent, notice=UNTRUSTED, count=len(told), return_command=back,
        sessions=told,
    )  # fmt: skip


def _workers() -> list[WorkerRecord]:
    """Return the workers in the registry that the current call may show, with their current state, newest first."""
    if not has_registry():
        return []
    with Registry() as registry:
        note_ends(registry, Machine())
        return registry.permitted()


def _logs(family: Sequence[FamilyLog]) -> dict[str, list[FamilyLog]]:
    """Return the logs of each session by its id: the original first, then copies made for workers and archived logs."""
    logs: dict[str, dict[Path, FamilyLog]] = defaultdict(dict)
    for kin in sorted(family, key=lambda kin: (-kin.mtime_ns, str(kin.path))):
        logs[kin.session_id][kin.path] = kin
    return {
        session_id: [own[path] for path in READERS.latest_first(READERS[agent], session_id, list(own))]
        for session_id, own in logs.items()
        for agent in {kin.agent for kin in own.values()}
    }


def _in_order(
    above: Mapping[str, str], logs: Mapping[str, Sequence[FamilyLog]], asked: str
) -> Iterator[tuple[str, int]]:
    """Yield each session of a family with its depth in the tree: a parent first, then its forks.

    Parents without a log are included. `above` maps a session to its parent.
    """
    children: dict[str, list[str]] = defaultdict(list)
    for session_id, parent in above.items():
        children[parent].append(session_id)

    def begun(session_id: str) -> tuple[str, str]:
        return min((kin.begun for kin in logs.get(session_id, ())), default="~"), session_id

    first = {session_id for session_id in (*logs, *children, asked) if session_id not in above}
    waiting = [(session_id, 0) for session_id in sorted(first, key=begun, reverse=True)]
    while waiting:
        session_id, depth = waiting.pop()
        yield session_id, depth
        waiting += [(one, depth + 1) for one in sorted(children[session_id], key=begun, reverse=True)]


def _facts(one: SessionRow | Session, may_be_told: bool, turns: int, tokens: int) -> MemberFacts:  # noqa: FBT001 - as it is
    return MemberFacts(
        one.title, one.cwd, one.started, one.last_activity, turns, tokens, may_be_told, one.inferred_from
    )


class _FactReader:
    """Reads facts about sessions: from the index if the log is unchanged since indexing, otherwise from the log."""

    def __init__(self, store: Store | None, found: KnownRelations, asked: Session) -> None:
        self._store, self._found = store, found
        self._seen: Mapping[str, SeenFile] = store.seen() if store else {}
        self._read: dict[Path, Session | None] = {asked.source_path: asked}

    def facts(self, kin: FamilyLog) -> MemberFacts:
        row = self._store.session(kin.agent, kin.session_id) if self._store and self._unchanged(kin) else None
        if row is not None and row.path == str(kin.path):
            return _facts(placed_here(row), permits(row), row.turns, row.tokens)
        session = self._session(kin)
        if session is None:
            return MemberFacts()
        return _facts(placed_here(session), permits(session), len(session.turns), session.token_estimate)

    def left(self, kin: FamilyLog, parent: FamilyLog) -> LeftAt | None:
        """Return the last message of `parent` that its fork `kin` also has; `None` if they share none."""
        above = self._session(parent)
        if above is None:
            return None
        if kin.agent == parent.agent:
            end = AGENTS.ancestry_of(kin.agent).shared(kin, parent, above, lambda: self._session(kin))
        else:
            through = self._found.through.get(kin.session_id)
            end = next((i + 1 for i, turn in enumerate(above.turns) if turn.id == through), 0)
        message = next(((i, turn) for i, turn in reversed(above.messages) if i < end), None)
        if message is None:
            return None
        number, turn = message
        return LeftAt(number, turn.role, shorten(shown_title(turn.text), QUOTE_CHARACTERS))

    def _unchanged(self, kin: FamilyLog) -> bool:
        seen = self._seen.get(str(kin.path))
        now = READERS[kin.agent].log_at(str(kin.path))
        return bool(seen and now and (seen.mtime_ns, seen.size) == (kin.mtime_ns, now.size))

    def _session(self, kin: FamilyLog) -> Session | None:
        if kin.path not in self._read:
            self._read[kin.path] = None
            with suppress(OSError):
                self._read[kin.path] = READERS[kin.agent].read(kin.path).session
        return self._read[kin.path]
