"""Sessions that repositories keep (see `repository_sessions`), read as if they were logs of their agent.

They are read like a teammate's shared session: only the fields that may be shared, without thoughts bound to an
account, and with the paths of the clone on this machine. No file that such a session names is opened.
"""

from __future__ import annotations

import re
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import orjson

from indexer.masking import mask
from indexer.transcripts.base import UNREAD, AgentAdapter, Checkpoint, LogFile, ReadResult
from indexer.transcripts.model import Session
from indexer.transcripts.reader_state import utc
from smart_fork.agents import AGENTS, repository_sessions
from smart_fork.agents.copier import NewSession
from smart_fork.agents.decoders import Record
from smart_fork.agents.portable_records import HomePlace, TargetSession
from smart_fork.agents.repository_session_sources import StoredSession, said_in, transcript
from smart_fork.agents.repository_sessions import HISTORIES, RepositorySessions, find, in_clone, is_within
from smart_fork.errors import SmartForkError

#: Agents that are only read. Their histories are written in a plain format that both decoders read.
_PLAIN = ("cursor", "droid")
_HOME = re.compile(r"/(?:(?:Users|home)/[^/]+|root(?=/|$))")
#: The errors that an odd transcript may raise in the conversion of records.
_ODD = (SmartForkError, ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError)


def with_repository_sessions(own: AgentAdapter) -> AgentAdapter:
    """Return an adapter that also reads sessions in repositories; `own` itself if those of its agent cannot be read."""
    converts = AGENTS[own.name].has("converter") or own.name in _PLAIN
    return RepositorySessionAdapter(own) if converts else own  # type: ignore[abstract]


class _Odd(OSError):
    """The error for a transcript in a repository that is no readable conversation."""


class RepositorySessionAdapter(AgentAdapter):
    """An agent's adapter that also reads the agent's sessions in repositories. All other logs are left to `own`."""

    def __init__(self, own: AgentAdapter) -> None:
        self.own = own
        for name in {*AgentAdapter.__annotations__, *vars(AgentAdapter)} - vars(RepositorySessionAdapter).keys():
            if not name.startswith("_"):
                setattr(self, name, getattr(own, name))

    def discover(self) -> Iterator[LogFile]:
        """Yield the agent's own logs, then its sessions in repositories without a log on this machine."""
        theirs, ids = repository_sessions.logs(self.own.name), set[str]()
        for file in self.own.discover():
            if theirs:
                ids.add(self.own.id_of(file.path))
            yield file
        yield from (one for one in theirs if one.path.name not in ids)

    def log_at(self, location: str) -> LogFile | None:
        return repository_sessions.log_at(location) if is_within(location) else self.own.log_at(location)

    def logs_of(self, changed: str) -> Iterable[LogFile]:
        if not is_within(changed):
            return self.own.logs_of(changed)
        found = self.log_at(changed)
        return () if found is None or found.agent != self.own.name else (found,)

    def has_lost(self, location: str) -> bool:
        """Return True if the repository no longer has the session, or if the agent has its own log of it."""
        if not is_within(location):
            return self.own.has_lost(location)
        found = find(location)
        return found is None or (found[1].agent == self.own.name and bool(self.own.locate(found[1].session_id)))

    def locate(self, session_id: str) -> tuple[Path, ...]:
        if found := self.own.locate(session_id):
            return found
        theirs = [one for one in repository_sessions.logs(self.own.name) if one.path.name == session_id]
        return tuple(one.path for one in sorted(theirs, key=lambda one: -one.mtime_ns))

    def id_of(self, path: Path) -> str:
        return path.name if is_within(str(path)) else self.own.id_of(path)

    def is_copy(self, path: Path) -> bool:
        return is_within(str(path)) or self.own.is_copy(path)

    def is_composed(self, file: LogFile) -> bool:
        return bool(file.within) or self.own.is_composed(file)

    def as_file(self, path: Path) -> AbstractContextManager[Path]:
        return self._file(path) if is_within(str(path)) else self.own.as_file(path)

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        if not is_within(str(path)):
            return self.own.read(path, checkpoint, keep_raw=keep_raw)
        try:
            with self._file(path) as file:
                result = self.own.read(file, keep_raw=keep_raw)
        except _Odd as error:
            return ReadResult(None, str(error), UNREAD, (), 0)
        session = result.session and in_clone(replace(result.session, source_path=path, received=True), str(path))
        # Not each Markdown history has its times.
        if session and repository_sessions.is_history(str(path)) and (known := self.glance(path)):
            started = session.started or known.started
            session = replace(session, started=started, last_activity=known.last_activity, inferred_from="")
        return replace(result, session=session, checkpoint=UNREAD)

    def glance(self, path: Path) -> Session | None:
        """Return a session without turns from the list of a repository's sessions; `None` for a sub-agent's session.

        Only for agents that keep sub-agents' logs among sessions, the transcript is read, to tell them apart.
        """
        if not is_within(str(path)):
            return self.own.glance(path)
        found = find(str(path))
        if found is None:
            return None
        known, one = found
        if self.own.mixed and self._is_subagent(known, one):
            return None
        at = utc(one.at / 1e9)
        return Session(
            one.agent, one.session_id, path, (), known.top, mask(one.branch),
            mask(one.title), started=at, last_activity=at,
        )  # fmt: skip

    def _is_subagent(self, known: RepositorySessions, one: StoredSession) -> bool:
        with suppress(*_ODD, OSError), tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
            there = self._placed(Path(folder) / "there", one)
            there.write_bytes(transcript(known.common, one)[0])
            return self.own.glance(there) is None
        return False

    @contextmanager
    def _file(self, path: Path) -> Iterator[Path]:
        """Within this context, provide the session of a repository at `path` as a log in a temporary private file.

        Raises:
            OSError: The repository no longer has the session, or it is no conversation of its agent.
        """
        found = find(str(path))
        if found is None:
            raise FileNotFoundError(f"No repository has {path.name} now")
        with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
            try:
                here = self._written(Path(folder), *found)
            except _ODD as error:
                raise _Odd("not a conversation of its agent") from error
            yield here

    def _written(self, folder: Path, known: RepositorySessions, one: StoredSession) -> Path:
        if one.is_history:
            path = self._placed(folder / "here", one)
            with path.open("wb") as file:
                file.writelines(orjson.dumps(record) + b"\n" for record in _records(known, one))
            return path
        there, here = self._placed(folder / "there", one), self._placed(folder / "here", one)
        data, touched = transcript(known.common, one)
        if AGENTS.converter_of(one.agent).names_another(data):
            raise ValueError("it continues another session")
        there.write_bytes(data)
        session = self.own.read(there, keep_raw=True).session
        if session is None or not AGENTS.starter_of(one.agent).ids.fullmatch(one.session_id):
            raise ValueError("no conversation")
        with here.open("wb") as file:
            file.writelines(orjson.dumps(record) + b"\n" for record in _converted(session, known, one, touched))
        return here

    def _placed(self, folder: Path, one: StoredSession) -> Path:
        """Make the folder, and return a path in it with the file name that the agent's log of the session must have."""
        folder.mkdir()
        if one.agent in _PLAIN:
            return folder / f"{one.session_id}.jsonl"
        new = NewSession(one.session_id, None, datetime.now(UTC))
        return folder / AGENTS.copier_of(one.agent).place(folder / "log", new).name


def _records(known: RepositorySessions, one: StoredSession) -> Iterator[Record]:
    """Yield the records of a Markdown history in the format of its agent."""
    said = said_in(f"{known.top}/{HISTORIES}", one)
    if one.agent not in _PLAIN:
        place = HomePlace.of(Path(known.top))
        yield from AGENTS.converter_of(one.agent).log_of(said, TargetSession(one.session_id, place))
        return
    for number, each in enumerate(said):
        role = "user" if each.user else "assistant"
        message = {"role": role, "content": [{"type": "text", "text": each.text}]}
        yield {"type": "message", "id": f"{number}", "role": role, "timestamp": each.moment, "message": message}


def _converted(
    session: Session, known: RepositorySessions, one: StoredSession, touched: frozenset[str]
) -> Iterator[Record]:
    """Yield the records of another person's session: only fields that may be shared, with this machine's paths."""
    converter = AGENTS.converter_of(one.agent)
    theirs, ours = _place_there(session, touched), HomePlace.of(Path(known.top))
    sent = (
        converter.arrived(converter.outgoing(record, theirs), others=True) for record in converter.records_of(session)
    )
    return converter.anew((record for record in sent if record is not None), TargetSession(one.session_id, ours))


def _place_there(session: Session, touched: frozenset[str]) -> HomePlace:
    """Return the project's root and the home on the author's machine, to replace these paths by this machine's.

    The root is guessed from edits of absolute paths that end with a path in `touched`, the home from the directory.
    """
    cwd = session.cwd.rstrip("/")
    if not cwd.startswith("/"):
        raise ValueError("it does not say where it worked")
    roots = Counter[str]()
    for path in {path for turn in session.turns for call in turn.tool_calls for path in call.edits}:
        at = len(path)
        while touched and (at := path.rfind("/", 0, at)) > 0:
            if path[at + 1 :] in touched:
                roots[path[:at]] += 1
    root = next((root for root, _ in roots.most_common() if f"{cwd}/".startswith(f"{root}/")), cwd)
    home = _HOME.match(cwd)
    return HomePlace(root, home[0] if home and home[0] != root else "")
