"""Families of sessions (a session and its forks), found from the first records of logs; and workers' new sessions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from indexer.json_values import dict_in, text_in
from indexer.lazy_compilation import dataclass
from indexer.transcripts.base import LogFile
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import AgentName, Origin, Session, Turn
from indexer.transcripts.reader_state import utc
from indexer.transcripts.texts import LEFT_OUT_TAG
from smart_fork.agents.description import AgentFacet
from smart_fork.agents.tree import Chain, parent_of
from smart_fork.errors import RegistryUnavailable
from smart_fork.workers.registry_path import has_registry, registry_file

#: The first message of a log is among this many records.
HEAD_RECORDS = 500


class CopiedMessage(NamedTuple):
    """The id of a message; for a copy also the ids of the original message and of its session."""

    id: str
    session_id: str = ""
    message_id: str = ""


@dataclass(slots=True, eq=False)
class FamilyLog:
    """A session's log, with the facts that show its place in a family (a session and its forks).

    * `recorded`: the id of the parent that the log names.
    * `begun`: the time when the log was made, if known.
    * `first`: its first message.
    * `asked`: the ids of the prompts before the first answer. A fork may combine several of them into one prompt.
    * `messages`: all messages, each after its parent. Only Claude Code needs them.
    * `base`: for a fork of Codex, the number of the parent's first record that the fork does not have.
    * `native`: True if Claude Code itself wrote the file. Then it copied `recorded`, too, from the parent's records.
    """

    agent: AgentName
    session_id: str
    path: Path
    mtime_ns: int = 0
    first: CopiedMessage | None = None
    asked: tuple[str, ...] = ()
    recorded: str = ""
    begun: str = ""
    base: int | None = None
    native: bool = False
    messages: list[CopiedMessage] = field(default_factory=list)

    @staticmethod
    def tie(message_id: str) -> str:
        """Return the key that connects all sessions beginning with this message, for the place of an id in a `Tie`."""
        return f"message {message_id}"


#: A session's id, and the id of another session, or the `tie` of a message.
Tie = tuple[str, str]


@dataclass(frozen=True, slots=True)
class SessionBeginning:
    """The beginning of a session: its id, its parent's id, its directory, and its time in seconds since the epoch."""

    session_id: str
    parent_id: str | None
    cwd: str
    born: float


class WorkerSessions(ABC):
    """Recognizes the session of a worker (an agent that smart-fork started) from a new log's first records."""

    @abstractmethod
    def beginning(self, log: Path) -> SessionBeginning | None:
        """Return the beginning of the session in `log`; `None` if the log has no header yet, or cannot be read."""

    @abstractmethod
    def was_asked(self, log: Path, prompt: str) -> bool:
        """Return True if `log` has exactly this prompt, apart from surrounding whitespace."""


class Ancestry(AgentFacet, ABC):
    """Finds an agent's families (a session and its forks) from the first records of logs."""

    #: `True` if a fork's log can continue another log, with only its own records.
    goes_on = False

    def base(self, path: Path) -> str:
        """Return the id of the session that the log continues without having its records; empty for a complete log."""
        return ""

    def family(
        self, session_id: str, root: str, forks: Mapping[str, str], shared: Collection[Tie] = ()
    ) -> list[FamilyLog]:  # fmt: skip
        """Return the logs of a session's family, in the project at `root`, or in all projects if `root` is empty.

        `forks` maps the ids of known forks to their parents' ids; `shared` has other pairs of connected sessions.
        """
        return self.read_all(connected(session_id, self.kin(self.of.reader.discover()), forks, shared))

    def kin(self, files: Iterable[LogFile]) -> Iterator[FamilyLog]:
        """Yield for each log the facts in its first records. Skip logs that cannot be read, or are in no family."""
        for file in files:
            with suppress(OSError):
                if (kin := _kin_of(self, file)) is not None:
                    yield kin

    def read_all(self, family: Iterable[FamilyLog]) -> list[FamilyLog]:
        """Return copies of the logs in `family` with their messages read.

        They are not read, because nothing needs them, for a single log that names no parent and has a creation time.
        """
        known = [replace(kin) for kin in family]
        for kin in known:
            if len(known) > 1 or kin.recorded or not kin.begun:
                self.read(kin)
        return known

    def read(self, kin: FamilyLog) -> None:
        """Store a log's messages in `kin.messages`. If the log cannot be read, change nothing."""
        with suppress(OSError):
            kin.messages = [*self.messages(kin)]

    @abstractmethod
    def begins(self, kin: FamilyLog) -> bool:
        """Store the facts in a log's first records in `kin`. Return False if the log cannot be in a family."""

    def messages(self, kin: FamilyLog) -> Iterable[CopiedMessage]:
        """Return all messages of a log, each with the ids of the message that it was copied from."""
        return ()

    def shared(self, kin: FamilyLog, parent: FamilyLog, above: Session, fork: Callable[[], Session | None]) -> int:
        """Return how many turns the fork `kin` took over from `parent`: up to the last turn that is also in its log.

        `above` is the parent's session, and `fork` reads the fork's session.
        """
        there = {message.id for message in kin.messages}
        return max((number + 1 for number, turn in enumerate(above.turns) if turn.id in there), default=0)


@lru_cache(maxsize=1 << 17)
def _kin_of(ancestry: Ancestry, file: LogFile) -> FamilyLog | None:
    """Return the facts in a log's first records, from a cache if known; `None` if the log cannot be in a family."""
    path = file.path
    kin = FamilyLog(file.agent, ancestry.of.reader.id_of(path), path, file.mtime_ns)
    return kin if ancestry.begins(kin) else None


def connected(
    session_id: str, heads: Iterable[FamilyLog], forks: Mapping[str, str], shared: Collection[Tie]
) -> list[FamilyLog]:
    """Return the logs in `heads` that are connected with a session, directly or through other sessions.

    Two sessions are connected if one is a fork of the other, if they begin with the same message, or if they are a pair
    in `shared`.
    """
    sessions: dict[str, list[FamilyLog]] = defaultdict(list)
    ties: dict[str, set[str]] = defaultdict(set)
    for kin in heads:
        sessions[kin.session_id].append(kin)
        begins = (kin.first.id, kin.first.message_id, *kin.asked) if kin.first else ()
        firsts = (FamilyLog.tie(one) for one in begins if one)
        for other in filter(None, (*firsts, kin.recorded)):
            ties[kin.session_id].add(other)
            ties[other].add(kin.session_id)
    for one, other in (*forks.items(), *shared):  # also of sessions without a log
        ties[one].add(other)
        ties[other].add(one)
    reached, waiting = {session_id}, [session_id]
    while waiting:
        new = ties[waiting.pop()] - reached
        reached |= new
        waiting += new
    return [kin for one in reached for kin in sessions.get(one, ())]


class TreeAncestry(Ancestry):
    """Finds families of sessions for agents whose records each name the record before."""

    #: The types of records that are messages.
    said: tuple[str, ...] = ("user", "assistant")
    #: The types of records before the first message that show that the agent itself began the file.
    native: tuple[str, ...] = ()

    @abstractmethod
    def names_a_copy(self, record: dict[str, Any]) -> bool:
        """Return True if a record is of the kind that the agent writes when it copies a session, such as a title."""

    def project(self, log: Path) -> Path:
        """Return the project folder that contains a log."""
        return log.parent

    def family(
        self, session_id: str, root: str, forks: Mapping[str, str], shared: Collection[Tie] = ()
    ) -> list[FamilyLog]:  # fmt: skip
        """Return the logs of a session's family, in the project at `root` and in all other folders that have some."""
        in_folder: dict[Path, list[LogFile]] = defaultdict(list)
        folders_of: dict[str, set[Path]] = defaultdict(set)
        projects: dict[str, Path] = {}
        for file in self.of.reader.discover():  # very many, in few folders
            parent, _, name = file.location.rpartition("/")
            if (folder := projects.get(parent)) is None:
                folder = projects[parent] = self.project(file.path)
            in_folder[folder].append(file)
            folders_of[name.rpartition(".")[0]].add(folder)
        here = self.of.reader.place_of(root).rpartition("/")[2] if root else ""
        looked_at: set[Path] = set()
        heads: list[FamilyLog] = []
        family: list[FamilyLog] = []  # where all logs of the project are gone
        folders = {folder for folder in in_folder if not here or f"{folder.name}-".startswith(f"{here}-")}
        folders |= folders_of[session_id]
        while folders:
            heads += self.kin(file for folder in folders for file in in_folder[folder])
            looked_at |= folders
            family = connected(session_id, heads, forks, shared)
            known = {kin.session_id for kin in family} | {kin.recorded for kin in family}
            known |= {one for pair in (*forks.items(), *shared) if known & set(pair) for one in pair}
            folders = {folder for one in known for folder in folders_of.get(one, ())} - looked_at
        return self.read_all(family)

    def shared(self, kin: FamilyLog, parent: FamilyLog, above: Session, fork: Callable[[], Session | None]) -> int:
        shared = set(_left_after(kin, parent))
        known = [i for i, turn in enumerate(above.turns) if turn.id in shared]
        return known[-1] + 1 if known else 0

    def begins(self, kin: FamilyLog) -> bool:
        messages = _Messages(self.said)
        for line in islice(LineReader(kin.path), HEAD_RECORDS):
            if not messages:
                kin.begun = max(kin.begun, _time(line.record))
                kin.native = kin.native or line.record.get("type") in self.native
            message = messages.add(line.record)
            if line.record.get("type") != "assistant":
                kin.asked += (message.id,) if message else ()
            elif messages.begin:
                break
        kin.first = next(iter(messages), None)
        kin.recorded = kin.first.session_id if kin.first else ""
        return kin.first is not None

    def messages(self, kin: FamilyLog) -> Iterable[CopiedMessage]:
        """Return all messages of a log. For a copy, set `kin.begun` to the time of copying."""
        made = ""
        messages = _Messages(self.said)
        for line in LineReader(kin.path):
            message = messages.add(line.record)
            own = self.names_a_copy(line.record) if message is None else not message.session_id
            if own and not made:
                made = utc(line.record.get("timestamp"))
        if kin.recorded:
            kin.begun = made or utc(kin.mtime_ns / 1e9)
        return messages


def _left_after(kin: FamilyLog, parent: FamilyLog) -> list[str]:
    """Return the ids that the first messages of `kin` have in `parent`, up to the first message that `parent` lacks."""
    there = {message.id for message in parent.messages}
    found = []
    for message in kin.messages:
        if message.id in there:
            found.append(message.id)
        elif message.message_id in there:
            found.append(message.message_id)
        else:
            break
    return found


class _Messages:
    """The messages of a log, each after its parent, whatever the order in the file."""

    def __init__(self, said: Collection[str]) -> None:
        self._said = said
        self._chain = Chain()
        self._copied: dict[str, CopiedMessage] = {}

    def add(self, record: dict[str, Any]) -> CopiedMessage | None:
        """Add the next record of the file. Return it if it is a message, else `None`."""
        identity = record.get("uuid")
        if not isinstance(identity, str) or not identity or record.get("isSidechain") is True:
            return None
        if record.get("type") not in self._said or _is_aside(record):
            self._chain.link(identity, parent_of(record))
            return None
        origin = dict_in(record.get("forkedFrom"))
        copied = CopiedMessage(identity, text_in(origin.get("sessionId")), text_in(origin.get("messageUuid")))
        message = self._copied.setdefault(identity, copied)
        self._chain.add(Turn(identity, parent_of(record), "user", ""))
        return message

    @property
    def begin(self) -> bool:
        """True if the log's first message was added, so that no earlier message can follow."""
        return self._chain.beginning() is not None

    def __len__(self) -> int:
        return len(self._copied)

    def __iter__(self) -> Iterator[CopiedMessage]:
        return (self._copied[turn.id] for turn in self._chain.in_order())


def _is_aside(record: dict[str, Any]) -> bool:
    """Return True if a record is a note that smart-fork put into a copy (see `decoders.aside`), and so no message."""
    message = dict_in(record.get("message"))
    said = message.get("content") or message.get("parts")
    if isinstance(said, list):
        said = dict_in(said[0]).get("text") if said else None
    return text_in(said).startswith(f"<{LEFT_OUT_TAG}>\n")


def _time(record: dict[str, Any]) -> str:
    """Return a record's time; for a record without one, the time of the snapshot of files that it states."""
    return utc(record.get("timestamp")) or utc(dict_in(record.get("snapshot")).get("timestamp"))


#: The registry's name of the place without a terminal.
_NO_TERMINAL = "process"


def origin_by_workers(session_id: str, *, named: bool = False) -> Origin:
    """Return "automated" if a worker without a terminal began the session, or forked such a session; else "person".

    A session that a person `named` counts as a person's.
    """
    if named or not has_registry():
        return "person"
    path = registry_file()
    begun = _begun_without_terminal(path, (_file_stamp(path), _file_stamp(path.with_name(f"{path.name}-wal"))))
    return "automated" if session_id in begun else "person"


@lru_cache(maxsize=1)
def _begun_without_terminal(path: Path, stamp: tuple[tuple[int, int], ...]) -> frozenset[str]:
    """Return the ids of the sessions that workers without a terminal began, from smart-fork's registry.

    `stamp`, the version of the registry's files, makes the cache read a changed registry again.
    """
    from smart_fork.workers.registry import Registry

    del stamp
    try:
        with Registry(path) as registry:
            workers = registry.workers()
    except RegistryUnavailable:
        return frozenset()
    begun: set[str] = set()
    for worker in reversed(workers):  # parents before their forks
        source = worker.source_session_id
        began = worker.kind == "new" or (worker.kind == "fork" and source in begun)
        if began and worker.place == _NO_TERMINAL and worker.session_id:
            begun.add(worker.session_id)
    return frozenset(begun)


def _file_stamp(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size
