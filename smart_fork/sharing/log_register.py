"""The register of logs on this machine that contain records of shared sessions, received or pushed.

It has each record's digest and its key in the log. Records that were pushed from here have no key: a withdrawal (the
owner takes text back) never cuts content that this machine's own agent wrote.

A copy is noted as unfinished until its project's tracking file lists it. All writers of copies hold a shared lock.
Cleaning up needs the lock exclusively, and so finds only copies that killed processes left.
"""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson
from pydantic import TypeAdapter

from indexer import state_db
from indexer.json_values import dict_in
from indexer.locks import held
from indexer.transcripts.model import AgentName
from indexer.transcripts.reader_state import utc
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.decoders import Record
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.sharing import tracking
from smart_fork.sharing.canonical import START, decode, digest_of_state, encode
from smart_fork.sharing.tracking import Alias, ProjectFolder, Tracking

#: The agent name for a file of shared records, and the key of a record that was converted for another agent.
RECORD_FILE, CONVERTED = "file", "crossed"
#: The new bytes of each edited record, by the record's digest; `None` removes the record.
Edits = Mapping[str, bytes | None]


@dataclass(frozen=True, slots=True)
class ReceivedLog:
    """A register entry: a log of this machine that contains records of a shared session.

    `records` pairs each record's digest with its key in the log. Only withdrawals from the server's `sessions` apply to
    the log; if `sessions` is empty, all apply. For a log that was converted for another agent, `crossed_from` are the
    digests of the shared records. `times` are the records' times, by the first characters of their digests.
    """

    path: Path
    agent: AgentName
    root: Path
    server: str
    project: str
    records: tuple[tuple[str, str], ...]
    sessions: tuple[str, ...] = ()
    crossed_from: tuple[str, ...] = ()
    times: Mapping[str, str] = field(default_factory=dict)

    @property
    def digests(self) -> Iterator[str]:
        """The digests of all shared records that the log contains or was converted from."""
        yield from (digest for digest, _ in self.records)
        yield from self.crossed_from

    @property
    def digests_with_pending(self) -> set[str]:
        """The digests of the log's shared records, and of those that pending edits will write."""
        return {*self.digests, *(sha256(new).hexdigest() for new in self.pending_edits().values() if new is not None)}

    @property
    def id(self) -> str:
        """The key of the log's database row: the session's id, or a digest of a file's path."""
        return _id(self.path, self.agent)

    def digest(self, count: int) -> str:
        """Return the digest of the first `count` records of the shared session; empty if there are fewer."""
        if count > len(self.records):
            return ""
        state = START
        for known, _ in self.records[:count]:
            state = sha256(state + bytes.fromhex(known)).digest()
        return digest_of_state(state)

    def edited(self, edits: Edits) -> ReceivedLog:
        """Return this entry as it is after `edits`, which replace or remove records of the log."""
        left = []
        for digest, key in self.records:
            new = edits.get(digest)
            if new is not None:
                left.append((sha256(new).hexdigest(), key))
            elif digest not in edits:
                left.append((digest, key))
        digests = ((digest, edits.get(digest, b"")) for digest in self.crossed_from)
        crossed = tuple(sha256(new).hexdigest() if new else digest for digest, new in digests if new is not None)
        anew = {_short(sha256(new).hexdigest()): self.time(old) for old, new in edits.items() if new}
        return replace(self, records=tuple(left), crossed_from=crossed, times={**self.times, **anew})

    def time(self, digest: str) -> str:
        """Return the time of the shared record with this digest; empty if it is unknown."""
        return self.times.get(_short(digest), "")

    def save(self, *, settled: bool = False) -> None:
        """Store this entry in the register. With `settled`, delete its pending edits, since the log has been edited."""
        state_db.change(
            "INSERT INTO pulled (id, written) VALUES (?1, ?2)"
            " ON CONFLICT (id) DO UPDATE SET written = excluded.written,"
            " edits = iif(?3, NULL, edits), count_before = iif(?3, NULL, count_before)",
            self.id, _WRITTEN.dump_json(self).decode(), settled,
        )  # fmt: skip

    def forget(self) -> None:
        """Delete this entry from the register. The log stays."""
        state_db.change("DELETE FROM pulled WHERE id = ?", self.id)

    def pending_edits(self) -> dict[str, bytes | None]:
        """Return the edits of records still to make in the log, for example because an agent had it open."""
        edits: dict[str, str | None] = self._owed("edits") or {}
        return {old: None if new is None else new.encode() for old, new in edits.items()}

    def store_pending(self, edits: Edits) -> None:
        """Store `edits` of records, besides earlier pending ones, to make them in the log later."""
        known, merged = set(self.digests), {**merged_edits(self.pending_edits(), edits), **edits}
        said = {old: new and new.decode() for old, new in merged.items() if old in known}
        state_db.change(
            "UPDATE pulled SET edits = ?, count_before = NULL WHERE id = ?", orjson.dumps(said).decode(), self.id
        )

    def counted(self, count: Callable[[], int]) -> int:
        """Return the number of records that the log had before its pending edits.

        The first call stores the number that `count` returns, so that it is still known after the process was killed.
        """
        before = self._owed("count_before")
        if before is None:
            before = count()
            state_db.change("UPDATE pulled SET count_before = ? WHERE id = ?", before, self.id)
        return int(before)

    def _owed(self, column: str) -> Any:
        found = state_db.rows(f"SELECT {column} FROM pulled WHERE id = ?", self.id)  # noqa: S608 - our own word
        return None if not found or found[0][0] is None else orjson.loads(str(found[0][0]))


def merged_edits(before: Edits, after: Edits) -> dict[str, bytes | None]:
    """Return the edits `before`. An edit that writes a record which `after` edits again gets the content of `after`."""
    return {old: None if new is None else after.get(sha256(new).hexdigest(), new) for old, new in before.items()}


def _short(digest: str) -> str:
    return digest[:16]


def _times(records: Iterable[bytes]) -> dict[str, str]:
    return {_short(sha256(one).hexdigest()): time for one in records if (time := record_time(decode(one)))}


def record_time(record: Record) -> str:
    """Return a record's time, normalized to UTC; empty if it has none."""
    return utc(record.get("timestamp") or dict_in(dict_in(record.get("info")).get("time")).get("created"))


def record_key(record: Record) -> str:
    """Return the key that a shared record has in every copy: its own id, or a digest of its content."""
    if identity := record_id(record):
        return f"id:{identity}"
    return f"is:{sha256(encode(record)).hexdigest()}"


def record_id(record: Record) -> str:
    """Return a record's own id, which its copies share; empty if it has none."""
    identity = record.get("uuid")
    plain = isinstance(identity, str) and identity.isascii() and identity.isprintable() and " " not in identity
    return str(identity) if plain else ""


def store_received(of: ReceivedLog, records: Sequence[bytes], *, others: bool) -> None:
    """Register a log (its entry `of` is without records) that was written from received `records`.

    `others` is True if the records are another person's.
    """
    converter = AGENTS.converter_of(of.agent)
    here = [converter.arrived(decode(one), others=others) for one in records]
    there = tuple(
        (sha256(one).hexdigest(), record_key(arrived) if arrived is not None else "")
        for one, arrived in zip(records, here, strict=True)
    )
    replace(of, records=there, times=_times(records)).save()


def store_converted(of: ReceivedLog, records: Sequence[bytes]) -> None:
    """Register a log (its entry `of` is without records) that was converted from `records` of another agent."""
    there = tuple(sha256(one).hexdigest() for one in records)
    replace(of, crossed_from=there, times=_times(records)).save()


def store_pushed(
    of: ReceivedLog, base_count: int, base_digest: str, records: Iterable[bytes], *, before: Path | None = None
) -> None:
    """Update the register entry `of` of a log after its `records` were pushed.

    The server already had `base_count` records in front of them, with the digest `base_digest`. `before` is the earlier
    log if the agent has moved the session to a new file.
    """
    for path in (of.path, before):
        known = find(path, of.agent) if path is not None else None
        there = known.records[:base_count] if known is not None and known.digest(base_count) == base_digest else ()
        if len(there) == base_count:
            keys = dict(known.records) if known is not None else {}  # pushed as another session they are others' still
            digests = (sha256(one).hexdigest() for one in records)
            own = tuple((digest, keys.get(digest, "")) for digest in digests)
            it = known or of
            sessions = tuple(dict.fromkeys((*it.sessions, *of.sessions)))
            came = replace(of, sessions=sessions, crossed_from=it.crossed_from, times=it.times)
            replace(came, records=(*there, *own)).save()
            return


def find(path: Path, agent: AgentName) -> ReceivedLog | None:
    """Return the register entry of the log at `path`; `None` if the log has no records of a shared session."""
    return next(_found("WHERE id = ?", _id(path, agent)), None)


def all_received() -> list[ReceivedLog]:
    """Return all entries of the register."""
    return list(_found("ORDER BY id"))


def with_pending_edits() -> list[ReceivedLog]:
    """Return the register entries of the logs with edits (removed or replaced records) still to make."""
    return list(_found("WHERE edits IS NOT NULL ORDER BY id"))


def of_session(session_id: str) -> ReceivedLog | None:
    """Return the register entry of the log of the session with this id; `None` if there is none."""
    return next(_found("WHERE id = ?", session_id), None)


def tracked_in(path: Path, agent: AgentName) -> tuple[ReceivedLog, str, Alias] | None:
    """Return a log's register entry, and its name and alias in the project's tracking file; `None` without them."""
    known = find(path, agent)
    if known is None:
        return None
    found = Tracking(ProjectFolder(known.root, known.project)).ours().of_log(path)
    return (known, *found) if found is not None else None


def _id(path: Path, agent: AgentName) -> str:
    return sha256(str(path).encode()).hexdigest()[:32] if agent == RECORD_FILE else READERS[agent].id_of(path)


_WRITTEN = TypeAdapter(ReceivedLog)


def _found(where: str, *values: str) -> Iterator[ReceivedLog]:
    for (data,) in state_db.rows(f"SELECT written FROM pulled {where}", *values):  # noqa: S608 - our own words
        yield _WRITTEN.validate_json(data)


_READ = "arrived-"
#: The characters of a session id in the name of a temporary file for its copy.
_OF_AN_ID = 20


@contextmanager
def writing_copy(agent: AgentName, session_id: str, place: ProjectFolder) -> Iterator[None]:
    """Note, while the block runs, that a copy of a shared session is being written with this session id.

    If the block fails, its writer deletes the copy. After a kill, `clear_unfinished` deletes it.
    """
    with held(tracking.folder(), fcntl.LOCK_SH):
        intent = (session_id, agent, str(place.root), place.key)
        state_db.change("INSERT OR REPLACE INTO unfinished_copies VALUES (?, ?, ?, ?)", *intent)
        try:
            yield
        finally:
            _strike(session_id)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Yield a private folder for logs of received records that are only read. It is deleted after the block."""
    with (
        held(tracking.folder(), fcntl.LOCK_SH),
        tempfile.TemporaryDirectory(prefix=_READ, dir=tracking.folder()) as made,
    ):
        yield Path(made)


def clear_unfinished() -> None:
    """Delete copies of shared sessions that killed processes left unfinished, unless a copy is being written."""
    read = sorted(tracking.folder().glob(f"{_READ}*"))
    if not (read or state_db.rows("SELECT 1 FROM unfinished_copies LIMIT 1")):
        return
    with suppress(BlockingIOError), held(tracking.folder(), fcntl.LOCK_EX | fcntl.LOCK_NB):
        for intent in state_db.rows("SELECT * FROM unfinished_copies"):  # some may be finished by now
            _take_away(*intent)
        for left in read:
            shutil.rmtree(left, ignore_errors=True)


def _take_away(session_id: str, agent: AgentName, root: str, project: str) -> None:
    """Delete an unfinished copy of a shared session, unless its project's tracking file lists the copy as complete."""
    reader = READERS[agent]
    try:
        tracked = {one.file for one in Tracking(ProjectFolder(Path(root), project)).ours().aliases.values()}
    except SmartForkError:
        return  # where it is not known what is tracked nothing is taken away
    for where in (tracking.folder(), AGENTS[reader.name].home.folder()):
        for staged in where.rglob(f".*{session_id[:_OF_AN_ID]}*.tmp"):
            staged.unlink(missing_ok=True)
    for path in reader.locate(session_id):
        if path in tracked:
            break
        if (known := find(path, reader.name)) is not None:
            known.forget()
        try:
            AGENTS.files_of(reader.name).remove(path)
        except SmartForkError:
            return  # its agent has it open
    else:
        provenance.forget_foreign(session_id)
    _strike(session_id)


def _strike(session_id: str) -> None:
    state_db.change("DELETE FROM unfinished_copies WHERE session_id = ?", session_id)
