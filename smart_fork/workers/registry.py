"""The registry of workers and of log copies made for them: ``<SMART_FORK_HOME>/workers.db``. It cannot be rebuilt."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

import apsw
import orjson

from indexer.errors import next_step, what_failed
from indexer.json_values import Value, json_in, list_in
from indexer.lazy_compilation import dataclass
from indexer.masking import mask
from indexer.safe_files import private_dir
from indexer.sqlite_tools import add_missing_tables, empty_write_ahead_log, vacuum, write_ahead, write_transaction
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork.display_text import quoted, storable
from smart_fork.errors import NotFound, RegistryUnavailable, Usage, advice
from smart_fork.system import call_context
from smart_fork.workers.registry_path import has_registry, registry_file

BUSY_MILLISECONDS = 15_000
MIN_PREFIX = 8

#: The state of a worker's process or window.
State = Literal["starting", "running", "ended", "failed"]
#: The last report of the agent's hooks about a running worker; empty before the first.
Status = Literal["", "working", "idle", "waiting"]
#: The states of workers that have ended, and of the others.
ENDED_STATES: tuple[State, ...] = ("ended", "failed")
LIVE_STATES: tuple[State, ...] = ("starting", "running")
#: The origin of a worker. A branch is a fork that was written before its start.
WorkerKind = Literal["fork", "branch", "new", "resume", "continue"]
#: A worktree: its path, its branch, and the commit that it started from.
WorktreeRecord = tuple[str, str, str]
_TREE = "worktree = ?, branch = ?, base_commit = ?"
_SESSION = "coalesce(session_id, last_session_id)"
_Told = TypeVar("_Told", bound=Value)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """A worker's row in the registry. A worker is an agent that smart-fork started.

    `id` is ``{agent}-{milliseconds}``. `session_id` is `None` until known; a later worker may continue that session.
    `source_session_id` is the forked or resumed session, or empty. `worktree` and `branch`, on top of `base_commit`,
    and the log copy `copied_to` were made for the worker. `status_note` is the question that it waits on.
    """

    #: The permission mode of a worker that never asks, in Claude Code's word.
    UNASKED: ClassVar = "bypassPermissions"
    #: The permission mode of a worker that asks, whatever its settings and records say.
    ASKED: ClassVar = "default"

    id: str
    agent: AgentName
    name: str
    source_session_id: str
    session_id: str | None
    caller_session_id: str | None
    place: str
    terminal_id: str | None
    pid: int | None
    cwd: str
    command: tuple[str, ...]
    prompt: str
    state: State
    started_at: str
    log_path: str | None
    kind: WorkerKind = "fork"
    attach: str = ""
    worktree: str | None = None
    branch: str | None = None
    base_commit: str | None = None
    depth: int = 1
    permission_mode: str = ""
    status: Status = ""
    status_note: str = ""
    status_at: str | None = None
    ended_at: str | None = None
    maker: int | None = None
    copied_to: str | None = None

    @property
    def is_over(self) -> bool:
        """Return True if the worker has ended."""
        return self.state in ENDED_STATES

    @property
    def is_fork(self) -> bool:
        """Return True if the worker's session is a copy of another session."""
        return self.kind in ("fork", "branch")

    def own_part(self, session: Session) -> tuple[Turn, ...]:
        """Return the worker's turns in `session`: those since its start. Earlier turns were copied from its parent."""
        start = next((i for i, turn in enumerate(session.turns) if turn.timestamp >= self.started_at), None)
        return session.turns[start:] if start is not None else ()

    def told(self, kind: type[_Told], **also: Any) -> _Told:
        """Return a value of class `kind` with this worker's values in its fields. `also` adds or overrides values."""
        known = {"worker_id": self.id, "agent_type": self.agent}
        known |= {one.name: getattr(self, one.name) for one in fields(self)}
        return kind(**{one.name: known[one.name] for one in fields(kind) if one.name in known} | also)


class Registry:
    """The open worker registry, a context manager. Several processes may have it open."""

    def __init__(self, path: Path | None = None, *, patience: int = BUSY_MILLISECONDS) -> None:
        """Open the registry, waiting up to `patience` milliseconds for a writing process.

        Raises:
            RegistryUnavailable: the file is damaged or unusable; raised also on leaving the context.
        """
        self.path = path or registry_file()
        self._db = open_database(self.path, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, apsw.Error):
            raise registry_error(self.path, error) from error

    def close(self) -> None:
        """Close the database of the registry. Closing twice does nothing."""
        self._db.close()

    def add(
        self, agent: AgentName, *, name: str = "", numbered: bool = False, source_session_id: str,
        session_id: str | None = None, caller_session_id: str | None = None, place: str, cwd: Path, prompt: str = "",
        kind: WorkerKind = "fork", worktree: Path | None = None, branch: str | None = None,
        base_commit: str | None = None, depth: int = 1, permission_mode: str = "", maker: int | None = None,
        now: float | None = None, admit: Callable[[Sequence[WorkerRecord]], None] | None = None,
    ) -> WorkerRecord:  # fmt: skip
        """Register a worker before its start, under a unique id. Secrets are masked here and in all later updates.

        Its default name is its id. With `numbered`, a name that a running worker has gets a number. `admit` is called
        with the running workers and may raise to refuse the new one; meanwhile, no other process can register a worker.
        """
        seconds = time.time() if now is None else now
        number = int(seconds * 1000)
        with write_transaction(self._db):
            running = self.workers(states=LIVE_STATES)
            if admit is not None:
                admit(running)
            while self._db.execute("SELECT 1 FROM workers WHERE id = ?", (f"{agent}-{number}",)).fetchone():
                number += 1
            identity = f"{agent}-{number}"
            taken = {worker.name for worker in running} if name and numbered else ()
            numbered_names = itertools.chain([name], (f"{name}-{n}" for n in itertools.count(2)))
            name = next(one for one in numbered_names if one not in taken)
            row: dict[str, str | int | None] = {
                "id": identity, "agent": agent, "name": name or identity, "source_session_id": source_session_id,
                "caller_session_id": caller_session_id, "place": place, "cwd": str(cwd), "prompt": mask(prompt),
                "kind": kind, "worktree": str(worktree) if worktree else None, "branch": branch,
                "base_commit": base_commit, "depth": depth, "permission_mode": permission_mode, "maker": maker,
                "state": "starting", "started_at": _iso(seconds),
            }  # fmt: skip
            # Our own words; the values go beside them.
            names, marks = ", ".join(row), ", ".join("?" * len(row))
            self._db.execute(f"INSERT INTO workers ({names}) VALUES ({marks})", tuple(row.values()))  # noqa: S608
            if session_id is not None:
                self._own(identity, session_id)
        return self._by_id(identity)

    def set_planned(self, identity: str, tree: WorktreeRecord) -> WorkerRecord:
        """Record the worktree that is about to be made for a worker, for its removal if the start is cut off."""
        return self._set(identity, _TREE, *tree)

    def set_copying(self, identity: str, path: Path) -> WorkerRecord:
        """Record the log copy that is about to be made for a worker, for its removal if the start is cut off."""
        return self._set(identity, "copied_to = ?", str(path))

    def set_ready(
        self, identity: str, *, cwd: Path, tree: WorktreeRecord | None, session_id: str | None, now: float | None = None
    ) -> WorkerRecord:
        """Record a worker's directory, worktree, start time, and the id of its new session, if any."""
        values = (str(cwd), _iso(now), *(tree or (None, None, None)))
        return self._set(identity, f"cwd = ?, started_at = ?, {_TREE}", *values, session_id=session_id)

    def set_started(
        self, identity: str, *, command: Sequence[str], terminal_id: str | None = None, pid: int | None = None,
        log: Path | None = None, attach: str = "",
    ) -> WorkerRecord:  # fmt: skip
        """Record that a worker runs, and its command, process, terminal and output file."""
        return self._set(
            identity,
            "command = ?, terminal_id = ?, pid = ?, log_path = ?, attach = ?, state = 'running', ended_at = NULL",
            orjson.dumps([mask(word) for word in command]).decode(), terminal_id, pid, str(log) if log else None,
            attach,
        )  # fmt: skip

    def set_found(self, identity: str, *, pid: int, terminal_id: str | None) -> WorkerRecord:
        """Record process and terminal of a worker, found after `set_started` was not reached. Known values stay."""
        what = "state = 'running', pid = coalesce(pid, ?), terminal_id = coalesce(terminal_id, ?)"
        return self._set(identity, what, pid, terminal_id)

    def set_session_id(self, identity: str, session_id: str) -> WorkerRecord:
        """Record the worker's session in place of its earlier one. The session then belongs to no other worker."""
        with write_transaction(self._db):
            self._own(identity, session_id)
        return self._by_id(identity)

    def set_state(self, identity: str, state: State, *, now: float | None = None) -> WorkerRecord:
        """Record the state of a worker. If it has ended, also record the time, and clear its status and question."""
        if state not in ENDED_STATES:
            return self._set(identity, "state = ?, ended_at = NULL", state)
        return self._set(
            identity, "state = ?, status = '', status_note = '', ended_at = coalesce(ended_at, ?)", state, _iso(now)
        )

    def set_closed(self, identity: str) -> WorkerRecord:
        """Record that a person or agent ended the worker, so that lists of running workers leave it out."""
        self.set_state(identity, "ended")
        return self._set(identity, "pid = NULL")

    def note_end(self, seen: WorkerRecord, *, now: float | None = None) -> WorkerRecord | None:
        """Record that the worker has ended; return `None` if it was resumed after its row `seen` was read."""
        with write_transaction(self._db):
            known = self.find(seen.id)
            if known is None or (known.pid, known.state) != (seen.pid, seen.state):
                return None
        return self.set_state(seen.id, "ended" if seen.pid or seen.terminal_id else "failed", now=now)

    def set_status(self, identity: str, status: Status, note: str = "", *, now: float | None = None) -> WorkerRecord:
        """Record the status that the worker's hooks report. `note` is the question that the worker waits on."""
        return self._set(identity, "status = ?, status_note = ?, status_at = ?", status, mask(note), _iso(now))

    def take_back(self, identity: str, *, name: str, prompt: str, command: Sequence[str]) -> WorkerRecord:
        """Replace the texts in a worker's row, to remove text that the user withdrew (deleted everywhere)."""
        words = orjson.dumps(list(command)).decode()
        return self._set(identity, "name = ?, prompt = ?, command = ?, status_note = ''", name, prompt, words)

    def erase(self) -> bool:
        """Erase the text of changed and deleted rows from the file. Return False if another reader prevents that."""
        return vacuum(self._db) and empty_write_ahead_log(self._db)

    def find(self, identity: str) -> WorkerRecord | None:
        """Return the worker with exactly this id, if there is one."""
        return self._first("WHERE id = ?", identity)

    def of_session(self, session_id: str) -> WorkerRecord | None:
        """Return the worker that has this session, otherwise the worker that had it last, if any."""
        return self._first(
            "WHERE session_id = ?1 OR id = (SELECT worker_id FROM worker_sessions WHERE session_id = ?1)"
            " ORDER BY session_id = ?1 DESC LIMIT 1",
            session_id,
        )

    def successor(self, worker: WorkerRecord) -> WorkerRecord:
        """Return the worker that has the session of `worker` now: `worker` itself, or a later one that resumed it."""
        later = self.of_session(worker.session_id) if worker.session_id else None
        return later if later and later.session_id == worker.session_id else worker

    def get(self, reference: str) -> WorkerRecord:
        """Return the worker with this id, session id, terminal or name, or with a unique beginning of an id.

        Running workers come before ended ones, newer before older.

        Raises:
            NotFound: the caller may see no such worker.
            Usage: the beginning matches several workers, or several running workers have the name.
        """
        shown, reference = quoted(reference), storable(reference)
        known = self.find(reference) or self.of_session(reference)
        if known and call_context.permits(known.cwd):
            return known
        for column in ("terminal_id", "name"):
            found = self._permitted(f"WHERE {column} = ? ORDER BY rowid DESC", reference)
            running = [worker for worker in found if worker.state in LIVE_STATES]
            if column == "name" and len(running) > 1:
                ids = ", ".join(worker.id for worker in running)
                raise Usage(f"{shown} is the name of {len(running)} workers that run: {ids}", "Give an id.")
            if found:
                return (running or found)[0]
        if len(reference) >= MIN_PREFIX:
            found = self._permitted(
                "WHERE substr(id, 1, length(?1)) = ?1 OR id IN"
                " (SELECT worker_id FROM worker_sessions WHERE substr(session_id, 1, length(?1)) = ?1)",
                reference,
            )
            if len(found) > 1:
                raise Usage(f"{shown} matches {len(found)} workers", "Give more characters.")
            if found:
                return found[0]
        raise NotFound(
            f"No such worker: {shown}",
            call_context.hint(advice("smart-fork active lists them.", tool="list_workers lists them.")),
        )

    def permitted(self) -> list[WorkerRecord]:
        """Return the workers that the caller may see, newest first."""
        return self._permitted("ORDER BY rowid DESC")

    def _permitted(self, where: str, *values: str) -> list[WorkerRecord]:
        return [worker for worker in self._select(where, *values) if call_context.permits(worker.cwd)]

    def workers(self, *, states: Sequence[State] | None = None) -> list[WorkerRecord]:
        """Return all workers, newest first, or only the workers in `states`."""
        found = self._select("ORDER BY rowid DESC")
        return [worker for worker in found if states is None or worker.state in states]

    def spawned_by(self, session_id: str) -> list[WorkerRecord]:
        """Return the workers that a session started, the workers that those started, and so on, oldest first."""
        return self._select(
            "WHERE id IN (WITH RECURSIVE below (id, session) AS ("
            " SELECT id, s.session_id FROM workers LEFT JOIN worker_sessions s ON worker_id = id"
            " WHERE caller_session_id = ?"
            " UNION SELECT w.id, s.session_id FROM below b JOIN workers w ON w.caller_session_id = b.session"
            " LEFT JOIN worker_sessions s ON s.worker_id = w.id)"
            " SELECT id FROM below) ORDER BY rowid",
            session_id,
        )

    def depth(self, session_id: str) -> int:
        """Return a session's nesting depth: 0 for a person's, 1 for a worker's, 2 for a worker's worker, and so on."""
        found = self._db.execute(
            "WITH RECURSIVE above (caller, depth) AS ("
            " SELECT caller_session_id, 1 FROM workers JOIN worker_sessions s ON worker_id = id WHERE s.session_id = ?"
            " UNION SELECT w.caller_session_id, a.depth + 1 FROM above a"
            " JOIN worker_sessions s ON s.session_id = a.caller"
            " JOIN workers w ON w.id = s.worker_id WHERE a.depth < 100)"
            " SELECT max(depth) FROM above",
            (session_id,),
        ).get
        return found if isinstance(found, int) else 0

    def add_staged_copy(self, path: Path, *, session_id: str, source_path: Path, now: float | None = None) -> None:
        """Record that the log copy at `path` was made from the log `source_path` of the session `session_id`."""
        with write_transaction(self._db):
            self._db.execute(
                "INSERT INTO staged_copies (path, session_id, source_path, staged_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (path) DO UPDATE SET session_id = excluded.session_id,"
                " source_path = excluded.source_path, staged_at = excluded.staged_at",
                (str(path), session_id, str(source_path), _iso(now)),
            )

    def forget_staged_copy(self, path: Path) -> None:
        """Delete the record of a log copy that no longer exists."""
        with write_transaction(self._db):
            self._db.execute("DELETE FROM staged_copies WHERE path = ?", (str(path),))

    def staged_copies(self) -> dict[Path, str]:
        """Return the log copies that smart-fork made for workers: each copy's path, and the copied session's id."""
        rows: Iterable[Any] = self._db.execute("SELECT path, session_id FROM staged_copies ORDER BY rowid")
        return {Path(path): session_id for path, session_id in rows}

    def _own(self, identity: str, session_id: str) -> None:
        """Make a worker the owner of a session. The earlier owner's row keeps the id only as its last session."""
        self._db.execute(
            "UPDATE workers SET session_id = NULL WHERE session_id = ? AND id <> ?", (session_id, identity)
        )
        self._db.execute(
            "UPDATE workers SET session_id = ?1, last_session_id = ?1 WHERE id = ?2", (session_id, identity)
        )
        self._db.execute(
            "INSERT INTO worker_sessions (session_id, worker_id) SELECT ?, id FROM workers WHERE id = ?"
            " ON CONFLICT (session_id) DO UPDATE SET worker_id = excluded.worker_id",
            (session_id, identity),
        )

    def _set(self, identity: str, what: str, *values: Any, session_id: str | None = None) -> WorkerRecord:
        with write_transaction(self._db):
            if session_id is not None:
                self._own(identity, session_id)
            self._db.execute(f"UPDATE workers SET {what} WHERE id = ?", (*values, identity))  # noqa: S608 - our own words
        return self._by_id(identity)

    def _by_id(self, identity: str) -> WorkerRecord:
        if found := self.find(identity):
            return found
        raise NotFound(f"No such worker: {identity}")

    def _first(self, where: str, *values: Any) -> WorkerRecord | None:
        return next(iter(self._select(where, *values)), None)

    def _select(self, where: str, *values: Any) -> list[WorkerRecord]:
        names = [column.name for column in fields(WorkerRecord)]
        columns = [_SESSION if name == "session_id" else name for name in names]
        rows: Iterable[Any] = self._db.execute(f"SELECT {', '.join(columns)} FROM workers {where}", values)  # noqa: S608
        return [_worker(dict(zip(names, row, strict=True))) for row in rows]

    @classmethod
    def known_workers(cls) -> list[WorkerRecord]:
        """Return all workers, newest first; an empty list if there is no registry, which is not created."""
        if not has_registry():
            return []
        with Registry() as registry:
            return registry.workers()

    @classmethod
    def known_worker(cls, session_id: str) -> WorkerRecord | None:
        """Return the worker that has or had this session; `None` also if there is no registry, which is not created."""
        if not has_registry():
            return None
        with Registry() as registry:
            return registry.of_session(session_id)


def _worker(row: dict[str, Any]) -> WorkerRecord:
    """Return a database row as a worker. Words of a newer version become defaults, so that the worker stays listed."""
    for name, words, otherwise in (("state", State, "running"), ("status", Status, ""), ("kind", WorkerKind, "fork")):
        if row[name] not in get_args(words):
            row[name] = otherwise
    return WorkerRecord(**row | {"command": tuple(map(str, list_in(json_in(str(row["command"])))))})


def _iso(moment: float | None = None) -> str:
    seconds = time.time() if moment is None else moment
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"


def open_database(path: Path, patience: int) -> apsw.Connection:
    """Open the registry's database, creating it if missing. Wait for other processes up to `patience` milliseconds.

    Raises:
        RegistryUnavailable: the file is damaged, was written by a newer version, or cannot be opened.
    """
    private_dir(path.parent)
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))  # its WAL gets the same mode
    try:
        db = apsw.Connection(str(path))
        write_ahead(db, patience)
        db.execute("PRAGMA foreign_keys = ON")
        _create(db)
    except apsw.Error as error:
        raise registry_error(path, error) from error
    return db


def registry_error(path: Path, error: apsw.Error) -> RegistryUnavailable:
    """Return a database `error` as an error of the registry, with advice. A damaged file is kept."""
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return RegistryUnavailable(
            f"The register of workers, {path}, is damaged: {error}",
            "New workers cannot start. Running workers continue. Move it away to begin again, or save its readable "
            f"part: mv {path} {path}.damaged && sqlite3 {path}.damaged .recover | sqlite3 {path}",
        )
    return RegistryUnavailable(f"The register of workers cannot be used: {what_failed(error)}", next_step(error))


#: The version of the tables. Older tables are migrated.
_FORM = 7
_TABLES = """
CREATE TABLE workers (
    id TEXT PRIMARY KEY, agent TEXT NOT NULL, name TEXT NOT NULL, source_session_id TEXT NOT NULL,
    session_id TEXT UNIQUE, caller_session_id TEXT, place TEXT NOT NULL, terminal_id TEXT, pid INTEGER,
    cwd TEXT NOT NULL, command TEXT NOT NULL DEFAULT '[]', prompt TEXT NOT NULL, state TEXT NOT NULL,
    started_at TEXT NOT NULL, log_path TEXT,
    -- How it was started, in which worktree, what its hooks said last, and when it ended.
    kind TEXT NOT NULL DEFAULT 'fork', attach TEXT NOT NULL DEFAULT '',
    worktree TEXT, branch TEXT, base_commit TEXT, depth INTEGER NOT NULL DEFAULT 1,
    permission_mode TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL DEFAULT '', status_note TEXT NOT NULL DEFAULT '', status_at TEXT, ended_at TEXT,
    -- The session that it had last. A later worker may go on with it: then that one has it in `session_id`.
    last_session_id TEXT,
    -- The process that starts it: where that has died, nothing comes of the start.
    maker INTEGER,
    -- The copy of a log that is made for it.
    copied_to TEXT
);
CREATE INDEX workers_of_caller ON workers (caller_session_id);
-- The transcripts that were copied for workers.
CREATE TABLE staged_copies (
    path TEXT PRIMARY KEY, session_id TEXT NOT NULL, source_path TEXT NOT NULL, staged_at TEXT NOT NULL
);
CREATE INDEX staged_copies_of_session ON staged_copies (session_id);
-- Every session that a worker has had: ``/clear`` and ``/resume`` give it another one.
CREATE TABLE worker_sessions (session_id TEXT PRIMARY KEY, worker_id TEXT NOT NULL REFERENCES workers (id));
CREATE INDEX worker_sessions_of_worker ON worker_sessions (worker_id);
"""


def _create(db: apsw.Connection) -> None:
    if db.pragma("user_version") == _FORM:
        return
    with write_transaction(db):  # another process may have been first
        form = db.pragma("user_version")
        if form > _FORM:
            raise RegistryUnavailable(
                f"{db.filename} was written by a newer version",
                "Restart what runs of the older version, or update it. To begin again, move the file away.",
            )
        if form != _FORM:
            add_missing_tables(db, _TABLES)
            db.execute(f"PRAGMA user_version = {_FORM}")
