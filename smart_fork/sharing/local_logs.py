"""Logs of shared sessions on this machine: reads logs for sharing, and writes received records as an agent's log.

Received ids, paths and names are replaced by ones of this machine, and unknown fields are dropped. A session that its
agent could not load is not written.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from indexer.errors import what_failed
from indexer.project import project_of
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.decoders import Record
from smart_fork.agents.excision import titles
from smart_fork.agents.log_readers import OWN, READERS
from smart_fork.agents.portable_records import HomePlace, TargetSession
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Unshareable, Usage
from smart_fork.finding import session_lookup
from smart_fork.finding.recent import recent_sessions
from smart_fork.finding.session_place import WorkDirectory, belongs
from smart_fork.forking import handover_text
from smart_fork.forking.copies import SessionCopy, write_copy
from smart_fork.forking.fork_points import branch_point
from smart_fork.forking.source_sessions import refuse_borrowed
from smart_fork.sharing import log_register
from smart_fork.sharing.canonical import decode, digest_of, encode
from smart_fork.sharing.outgoing import last_pair
from smart_fork.sharing.tracking import Alias


@dataclass(frozen=True, slots=True)
class LocalRecords:
    """A session of this machine, and its records in the form in which they would be shared.

    They end with the last complete pair (a prompt with its answer, or a call with its result).
    """

    session: Session
    records: tuple[bytes, ...]

    def digest(self, count: int) -> str:
        """Return the digest of the session's first `count` records; empty if there are fewer."""
        if count > len(self.records):
            return ""
        return digest_of(self.records[:count])

    def begins_with(self, count: int, digest: str) -> bool:
        return bool(digest) and self.digest(count) == digest


@dataclass(frozen=True, slots=True)
class ProjectLogs:
    """The logs of the sessions that worked in the project at `root`, to be shared."""

    root: Path

    def records(self, session: Session) -> LocalRecords:
        """Convert a session's log to the records to share, up to the last complete pair."""
        converter, place = AGENTS.converter_of(session.agent), HomePlace.of(self.root)
        records = converter.records_of(session, last_pair(session))
        return LocalRecords(session, tuple(encode(converter.outgoing(record, place)) for record in records))

    def ahead(self, one: Alias) -> int | None:
        """Count the records of a shared session's local log that are not pushed to the server yet.

        Return -1 if pushed records have changed in the log, and `None` if the log cannot be read.
        """
        here = self.tracked(one.file, one.platform)
        if here is None:
            return None
        return len(here.records) - one.local_count if here.begins_with(one.local_count, one.local_digest) else -1

    def tracked(self, path: Path | None, agent: AgentName) -> LocalRecords | None:
        """Return the log at `path`, of a session of this project, as records to share; `None` if it cannot be read."""
        with suppress(SmartForkError):
            return self.records(self.read(path, agent)) if path is not None else None
        return None

    def read(self, path: Path, agent: AgentName) -> Session:
        """Read the session in the log at `path`, which a tracking file (a project's list of shared sessions) names.

        Tracking files may be forged. So the log must be this agent's, and its session must belong to the project.

        Raises:
            NotFound: the log is gone, or it is no log of this agent.
            ForkRefused: the session belongs to another project.
        """
        reader = READERS[agent]
        if reader.log_at(str(path)) is None:
            raise NotFound(f"No session of {AGENTS.title_of(agent)} there: {path}")
        try:
            session = reader.read(path).session
        except OSError as error:
            raise NotFound(f"The log cannot be read: {what_failed(error)}") from error
        if session is None:
            raise NotFound(f"No conversation in {path}")
        self._check_within(session)
        return session

    def found(self, reference: str) -> Session:
        """Find a session by `reference`, such as an id, and read it. It must belong to the project at `root`."""
        located = session_lookup.locate(reference)
        refuse_borrowed(located)
        session = session_lookup.read(located)
        self._check_within(session)
        return session

    def newest(self, agent: AgentName) -> Session:
        """Return the newest session of an agent in the project at `root`, or raise an error."""
        there = recent_sessions([OWN[agent]], project_of(self.root), 1, automated=True).sessions
        for one in there:
            return session_lookup.read(session_lookup.Located(one.agent, one.session_id, one.source_path))
        raise SmartForkError(
            f"No {AGENTS.title_of(agent)} session found for current directory",
            "`smart-fork list --all-projects` lists all sessions.",
        )

    def _check_within(self, session: Session) -> None:
        if belongs(session, project_of(self.root)):
            return
        if why := WorkDirectory(session.cwd).problem:
            here = shlex.quote(str(self.root))
            raise ForkRefused(
                f"That session belongs to no project: {why}",
                f"Push a copy that works here: smart-fork branch {session.session_id} --cwd {here}",
            )
        raise ForkRefused(
            f"That session belongs to another project. It worked in {WorkDirectory(session.cwd).shown}",
            "Push it from there, or name --project.",
        )


#: The kinds of lost content, as people read them.
THINKING, UNKNOWN, FORGOTTEN = "thinking", "unknown records", "text before a compaction"


@dataclass(frozen=True, slots=True)
class WrittenLog:
    """A received session that was written as a log here. `lost` counts, by kind, the content that the log lacks."""

    path: Path
    session_id: str
    agent: AgentName
    lost: Mapping[str, int]
    branch: SessionCopy
    local: LocalRecords

    def undo(self) -> None:
        self.branch.undo()
        provenance.forget_foreign(self.session_id)


@dataclass(frozen=True, slots=True)
class ReceivedSession:
    """A session read from received records, without a log here. `lost` counts missing content by kind."""

    session: Session
    lost: Mapping[str, int]
    _sources: Sequence[int]

    def end(self, number: int) -> tuple[int, bool]:
        """Return (number of received records, flag) for the session's first `number` messages, counted from 1.

        An exchange (a prompt with its answer) is taken whole: the flag is True if it ends after message `number`.
        """
        end, message = exchange_end(self.session, number)
        counted = AGENTS.converter_of(self.session.agent).records_of(self.session, end)
        return self._sources[sum(1 for _ in counted) - 1] + 1, self.session.turns[end].id != message.id


def exchange_end(session: Session, number: int | None) -> tuple[int, Turn]:
    """Return the index of the last turn in the exchange of message `number` (`None`: the last), and the message.

    An unfinished exchange ends with the session's last complete pair (a call with its result).

    Raises:
        Usage: there is no message `number`, counted from 1.
    """
    if number is None:
        return (end := last_pair(session)), session.turns[end]
    said = session.messages
    if not 1 <= number <= len(said):
        raise Usage(f"--at takes 1 to {len(said)}: the session has that many messages.")
    start, message = said[number - 1]
    try:
        return branch_point(session, session.turns[start].id), message
    except ForkRefused:
        if (end := last_pair(session)) < start:
            raise
        return end, message


@contextmanager
def read_received(
    records: Sequence[bytes], agent: AgentName, source_id: str, root: Path, *, others: bool, keep_raw: bool = False
) -> Iterator[ReceivedSession]:
    """Write received records to a temporary log, and yield the session that the agent's reader finds in it.

    `others` is True if the records are another person's. With `keep_raw` the turns have their raw records. Raise
    `Unshareable` if the records are not a conversation.
    """
    converter, lost = AGENTS.converter_of(agent), Counter[str]()
    sources: list[int] = []  # of each record that is written, which of those that came it is

    def kept() -> Iterator[Record]:
        for number, one in enumerate(map(decode, records)):
            record = converter.arrived(one, others=others)
            if others:
                lost[THINKING] += len(converter.decode(one).thoughts)
            if record is not None:
                sources.append(number)
                yield record
            elif not (others and converter.decode(one).thoughts):
                lost[UNKNOWN] += 1

    becomes = TargetSession(source_id, HomePlace.of(root))
    with (
        log_register.temporary_folder() as folder,
        handover_text.temporary_log(agent, source_id, converter.anew(kept(), becomes), folder) as log,
    ):
        session = READERS[agent].read(log, keep_raw=keep_raw).session
        if session is None or not session.messages:
            raise Unshareable(f"These records are not a conversation of {AGENTS.title_of(agent)}.")
        yield ReceivedSession(session, {what: number for what, number in lost.items() if number}, sources)


def write_local(
    records: Sequence[bytes],
    agent: AgentName,
    directory: Path,
    *,
    source_id: str,
    others: bool,
    root: Path | None = None,
    count: int | None = None,
    title: str = "",
    platform: AgentName | None = None,
    new_session_id: str = "",
) -> WrittenLog:
    """Write received records as a new session on this machine, which works in `directory`.

    Of the first `count` records, those up to the last complete pair (a call with its result, or a prompt with its
    answer) are written. Paths in them are below `root`, by default `directory`. `others` is True if the records are
    another person's: thoughts in them are tied to that person's account and dropped. With `platform`, the session is
    converted for that agent.

    Raises:
        Unshareable: the records are not a conversation.
        ForkRefused: no pair of the records is complete.
        OSError: the session cannot be written.
    """
    with read_received(records[:count], agent, source_id, root or directory, others=others) as one:
        lost = Counter(one.lost)
        with converted_session(platform or agent, one.session, source_id, directory) as (session, missing):
            end = last_pair(session)
            moment = datetime.now()  # noqa: DTZ005 - files may be named by local time
            new = new_session_id or AGENTS.starter_of(session.agent).new_id()
            branch = write_copy(session, end, NewSession(new, directory, moment, _name(title, session)))
            lost.update(missing)
            if session.compactions and (left := end + 1 - branch.copied) > 0:
                lost[FORGOTTEN] = left
    try:
        here = ProjectLogs(root or directory).records(_read(branch.path, branch.agent))
    except BaseException:
        branch.undo()
        raise
    return WrittenLog(branch.path, branch.session_id, branch.agent, lost, branch, here)


def _name(title: str, session: Session) -> str:
    """Return the title to write into the log of a received session.

    It is "" if the title quotes a prompt and a later withdrawal could not remove it from this agent's log.
    """
    prompts = {mark for turn in session.turns if turn.prompt for mark in titles.mark_of_prompt(turn.text)}
    cutter = AGENTS.find_cutter(session.agent)
    return title if (cutter and cutter.withdraws) or prompts.isdisjoint(titles.mark_of_title(title)) else ""


@contextmanager
def converted_session(
    agent: AgentName, session: Session, source_id: str, directory: Path
) -> Iterator[tuple[Session, Mapping[str, int]]]:
    """Yield a session converted for `agent`, and counts of the content that the conversion loses, by kind.

    A session that is already this agent's is yielded unchanged.
    """
    if agent == session.agent:
        yield session, {}
        return
    AGENTS.converter_of(agent)  # what is not shared does not arrive
    told = handover_text.read_neutral(session, last_pair(session))
    said = handover_text.utterances(session, told.messages, {0: handover_text.QUOTED_DATA_NOTICE})
    with (
        log_register.temporary_folder() as folder,
        handover_text.as_session(agent, said, HomePlace.of(directory), source_id=source_id, folder=folder) as made,
    ):
        yield made, handover_text.lost_of(told)


def _read(path: Path, agent: AgentName) -> Session:
    session = READERS[agent].read(path).session
    if session is None:
        raise Unshareable(f"{AGENTS.title_of(agent)} cannot load the written session.")
    return session
