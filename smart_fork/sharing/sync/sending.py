"""Selects and prepares the sessions to send to the remote, with the content that `team push` would send."""

from __future__ import annotations

import socket
from collections.abc import Callable, Container, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import orjson

from indexer import state_db
from indexer.errors import what_failed
from indexer.log_changes import VERSION
from indexer.project import project_of
from indexer.transcripts.model import Session
from smart_fork import config, provenance
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import printable
from smart_fork.errors import NotFound, SmartForkError
from smart_fork.finding.project_places import look
from smart_fork.finding.recent import recent_sessions
from smart_fork.sharing import round_trip
from smart_fork.sharing.canonical import TEXT, digest_of
from smart_fork.sharing.ignore_file import IGNORE_FILE
from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.sharing.outgoing import NothingToPush, NotSent, Outgoing, prepare
from smart_fork.sharing.sync.manifest import SharedEntry, SyncKey

_NAME, _COPY = "sync", "sync copy "


@dataclass(frozen=True, slots=True)
class SyncState:
    """The stored settings of synchronization on this machine, and the state after the last synchronization.

    `number` and `blob` identify the remote's list that was seen last. `withdrawn` has the times of withdrawn sessions
    (their owner took them back). `stamps` has the state of each log when it was sent last.
    """

    remote: str
    directories: tuple[str, ...] = ()
    number: int = 0
    blob: str = ""
    withdrawn: Mapping[str, str] = field(default_factory=dict)
    stamps: Mapping[str, str] = field(default_factory=dict)

    def keep(self) -> None:
        """Store these settings and this state, in place of the earlier ones."""
        state_db.keep(_NAME, asdict(self))


@dataclass(frozen=True, slots=True)
class SyncedCopy:
    """A copy on this machine of a session on the remote, which has the id `source` and the digest `shared` there.

    `count` and `digest` are of the records with which the copy's log began, so that later changes can be seen.
    """

    source: str
    agent: str
    shared: str
    count: int
    digest: str


def sync_state() -> SyncState:
    """Return the stored settings and state of synchronization. Raise `NotFound` if it is not set up here."""
    said: dict[str, Any] | None = state_db.fact(_NAME)
    if said is None:
        raise NotFound("This machine is not set up.", "Run: smart-fork sync setup REMOTE")
    return SyncState(**(said | {"directories": tuple(said["directories"])}))


def is_set_up() -> bool:
    """Return True if synchronization is set up on this machine."""
    return state_db.fact(_NAME) is not None


def forget() -> None:
    """Delete the synchronization settings.

    The notes about copies of remote sessions stay, so that another remote never gets these copies.
    """
    state_db.keep(_NAME, None)


def copies() -> dict[str, SyncedCopy]:
    """Return the sessions on this machine that are copies of remote ones, as a map from session id to details."""
    found = state_db.rows("SELECT name, value FROM facts WHERE substr(name, 1, ?) = ?", len(_COPY), _COPY)
    return {name[len(_COPY) :]: SyncedCopy(**orjson.loads(value)) for name, value in found}


def keep_copy(session_id: str, copy: SyncedCopy | None) -> None:
    """Store that a session of this machine is the copy `copy` of a remote session; with `None`, delete this."""
    state_db.keep(_COPY + session_id, copy and asdict(copy))


#: A number of sessions that no project reaches.
_ALL = 100_000
#: Receives a stage, the steps done, and all steps.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True, slots=True)
class PreparedSession:
    """A session that is ready to be sent. Without an `entry`, it is an unchanged copy, and is not sent.

    The field `sealed` of the entry is a placeholder until the records are encrypted.
    """

    id: str
    stamp: str
    entry: SharedEntry | None = None
    records: tuple[bytes, ...] = ()


@dataclass(frozen=True, slots=True)
class UnsentSession:
    """A session that is not sent, and the reason. An `excluded` one is also deleted from the remote."""

    id: str
    session_id: str
    error: str
    hint: str = ""
    excluded: bool = False


def source_id(key: SyncKey, agent: str, session_id: str) -> str:
    """Return the id on the remote for a session of this machine, computed from its agent and id with the key."""
    return key.id(f"{agent}:{session_id}")


def prepared_sessions(
    known: SyncState, key: SyncKey, withdrawn: Container[str], copies: Mapping[str, SyncedCopy], progress: Progress
) -> Iterator[PreparedSession | UnsentSession]:
    """Yield each session that has changed since it was last sent, prepared, or the reason why it is not sent.

    Withdrawn sessions are skipped. `copies` are the sessions that are copies of remote ones.
    """
    readers = [READERS[agent.name] for agent in AGENTS if agent.has("converter")]
    logs = {file.location: file.stamp for reader in readers for file in reader.discover()}
    projects = [project_of(one) for one in known.directories]
    here = ((one, place) for place in projects for one in recent_sessions(readers, place, _ALL).sessions)
    found = [(one, Path(place.root)) for one, place in here if not repository_sessions.is_within(str(one.source_path))]
    chosen, hidden = config.sharing_rules(), {root: _hidden(root) for _, root in found}
    for number, (session, root) in enumerate(found):
        progress("sending", number, len(found))
        name = source_id(key, session.agent, session.session_id)
        stamp = _stamp(session, logs, chosen, hidden[root])
        if name in withdrawn or known.stamps.get(name) == stamp:
            continue
        try:
            yield _prepared(session, root, name, stamp, copies.get(session.session_id))
        except NothingToPush:
            continue
        except SmartForkError as error:
            yield UnsentSession(name, session.session_id, error.message, error.hint, isinstance(error, NotSent))
        except OSError as error:
            yield UnsentSession(name, session.session_id, f"Its log cannot be read: {what_failed(error)}")
    progress("sending", len(found), len(found))


def _prepared(session: Session, root: Path, name: str, stamp: str, copy: SyncedCopy | None) -> PreparedSession:
    provenance.refuse_pending_withdrawal(session.session_id)
    if copy is not None:
        logs = ProjectLogs(root)
        now = logs.records(logs.read(session.source_path, session.agent))
        if (len(now.records), now.digest(copy.count)) == (copy.count, copy.digest):
            return PreparedSession(name, stamp)
    out = prepare(session.source_path, session.agent, root)
    if provenance.foreign_among((session.session_id, *(turn.id for turn in out.session.turns))):
        raise NotSent("It has a teammate's messages.", "Take it from the team's server on the other machine.")
    round_trip.check_outgoing(out)
    return PreparedSession(name, stamp, _entry(out, root), out.records)


def _entry(out: Outgoing, root: Path) -> SharedEntry:
    session, repository = out.session, look(root)
    return SharedEntry(
        agent=session.agent,
        session_id=session.session_id,
        title=printable(out.title)[:TEXT],
        machine=printable(socket.gethostname())[:TEXT],
        last_activity=session.last_activity or "",
        directory=str(root),
        remote=repository.remote if repository else "",
        roots=tuple(sorted(repository.roots)) if repository else (),
        head=repository.head if repository else "",
        records=len(out.records),
        digest=digest_of(out.records),
        sealed="0" * 64,
    )


def _stamp(
    session: Session, logs: Mapping[str, tuple[int, int, int]], chosen: config.TeamSection, hidden: bytes
) -> str:
    """Return a digest of a log's state, and of the settings that decide which of its content is sent.

    A session with another digest is sent again.
    """
    about = (logs.get(str(session.source_path)), session.last_activity, VERSION, chosen, hidden)
    return sha256(repr(about).encode()).hexdigest()


def _hidden(root: Path) -> bytes:
    ignored = root / IGNORE_FILE
    return ignored.read_bytes() if ignored.is_file() else b""
