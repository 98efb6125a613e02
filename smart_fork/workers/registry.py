"""What we started: workers and staged copies, in ``<SMART_FORK_HOME>/workers.db``. It cannot be rebuilt."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Literal, Self, TypeVar, get_args

import apsw
import orjson

from indexer.lazy import dataclass
from indexer.masking import mask
from indexer.store.schema import compact, immediate
from indexer.transcripts.model import AgentName, Session, Turn
from indexer.values import Value, json_in, list_in
from smart_fork.errors import NotFound, Usage, advice
from smart_fork.snippets import quoted, storable
from smart_fork.system import call_context
from smart_fork.workers.registry_file import has_registry, registry_file
from smart_fork.workers.registry_schema import opened, unusable

BUSY_MILLISECONDS = 15_000
MIN_PREFIX = 8

#: What we know of the process or window.
State = Literal["starting", "running", "ended", "failed"]
#: What the agent's own hooks said last of a running worker; empty before the first.
Status = Literal["", "working", "idle", "waiting"]
#: States that nothing comes after.
OVER: tuple[State, ...] = ("ended", "failed")
LIVING: tuple[State, ...] = ("starting", "running")
#: How a worker came about. A branch is a fork that had been written before.
Kind = Literal["fork", "branch", "new", "resume", "continue"]
#: A worktree: its path, its branch, and the commit that the work in it is on top of.
Tree = tuple[str, str, str]
_TREE = "worktree = ?, branch = ?, base_commit = ?"
_SESSION = "coalesce(session_id, last_session_id)"
_Told = TypeVar("_Told", bound=Value)


@dataclass(frozen=True, slots=True)
class WorkerRecord:
    """An agent that we started. `id` is ``{agent}-{milliseconds}``; `session_id` is `None` until known.

    A later worker may go on with the same session: `Registry.of_session` says who has it now.

    `source_session_id` is empty for a new session. `worktree` and `branch` are those that were made for it, on
    top of `base_commit`. `copied_to` is the copy of a log that was made for it. `status_note` is what it waits for.
    """

    #: The permissions of a worker that asks nobody; Claude Code's word for it.
    UNASKED: ClassVar = "bypassPermissions"
    #: That of one that asks, whatever settings and records say.
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
    kind: Kind = "fork"
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
        """Whether it has ended."""
        return self.state in OVER

    @property
    def is_fork(self) -> bool:
        """Whether its session is a copy of another."""
        return self.kind in ("fork", "branch")

    def own_part(self, session: Session) -> tuple[Turn, ...]:
        """Return its own turns in order. Copied turns keep their times, so turns since its start are its own."""
        start = next((i for i, turn in enumerate(session.turns) if turn.timestamp >= self.started_at), None)
        return session.turns[start:] if start is not None else ()

    def told(self, kind: type[_Told], **also: Any) -> _Told:
        """An answer about it: it has what it is named for of the worker, unless `also` says it otherwise."""
        known = {"worker_id": self.id, "agent_type": self.agent}
        known |= {one.name: getattr(self, one.name) for one in fields(self)}
        return kind(**{one.name: known[one.name] for one in fields(kind) if one.name in known} | also)


@dataclass(frozen=True, slots=True)
class StagedCopy:
    """A transcript that we copied: the same session as its source, not another one."""

    path: str
    session_id: str
    source_path: str
    staged_at: str


class Registry:
    """Workers and staged copies. Several processes may have it open; use it as a context manager, or close it."""

    def __init__(self, path: Path | None = None, *, patience: int = BUSY_MILLISECONDS) -> None:
        """`patience` is how many milliseconds another process that writes is waited for.

        Raises:
            RegistryUnavailable: it is damaged, or the disk or another process refuses; raised also when it is left.
        """
        self.path = path or registry_file()
        self._db = opened(self.path, patience)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        if isinstance(error, apsw.Error):
            raise unusable(self.path, error) from error

    def close(self) -> None:
        """Close the database. Closing twice does nothing."""
        self._db.close()

    def add(
        self, agent: AgentName, *, name: str = "", numbered: bool = False, source_session_id: str,
        session_id: str | None = None, caller_session_id: str | None = None, place: str, cwd: Path, prompt: str = "",
        kind: Kind = "fork", worktree: Path | None = None, branch: str | None = None, base_commit: str | None = None,
        depth: int = 1, permission_mode: str = "", maker: int | None = None, now: float | None = None,
        admit: Callable[[Sequence[WorkerRecord]], None] | None = None,
    ) -> WorkerRecord:  # fmt: skip
        """Register a worker that is about to be started. Ids are unique, in the same millisecond too.

        Of what it is told, here and later, secrets are masked: the register is one more copy of it.

        A worker without a name is named by its id. A name that is `numbered` has a number behind it where another that
        runs has it. `admit` is shown those that run; by raising it refuses this one, and no other process can start one
        in between.
        """
        seconds = time.time() if now is None else now
        number = int(seconds * 1000)
        with immediate(self._db):
            running = self.workers(states=LIVING)
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

    def set_planned(self, identity: str, tree: Tree) -> WorkerRecord:
        """Note which worktree will be made for it: whoever comes next removes it if the start is cut off."""
        return self._set(identity, _TREE, *tree)

    def set_copying(self, identity: str, path: Path) -> WorkerRecord:
        """Note which copy of a log will be made for it, likewise."""
        return self._set(identity, "copied_to = ?", str(path))

    def set_ready(
        self, identity: str, *, cwd: Path, tree: Tree | None, session_id: str | None, now: float | None = None
    ) -> WorkerRecord:
        """Note what was made for it, and its session, where that is a new one whose id is known. It is started now:
        what it says itself is later than that.
        """
        values = (str(cwd), _iso(now), *(tree or (None, None, None)))
        return self._set(identity, f"cwd = ?, started_at = ?, {_TREE}", *values, session_id=session_id)

    def set_started(
        self, identity: str, *, command: Sequence[str], terminal_id: str | None = None, pid: int | None = None,
        log: Path | None = None, attach: str = "",
    ) -> WorkerRecord:  # fmt: skip
        """Note that it runs, and where."""
        return self._set(
            identity,
            "command = ?, terminal_id = ?, pid = ?, log_path = ?, attach = ?, state = 'running', ended_at = NULL",
            orjson.dumps([mask(word) for word in command]).decode(), terminal_id, pid, str(log) if log else None,
            attach,
        )  # fmt: skip

    def set_found(self, identity: str, *, pid: int, terminal_id: str | None) -> WorkerRecord:
        """Note where a worker runs whose start was cut off before that was written down; what is known stays."""
        what = "state = 'running', pid = coalesce(pid, ?), terminal_id = coalesce(terminal_id, ?)"
        return self._set(identity, what, pid, terminal_id)

    def set_session_id(self, identity: str, session_id: str) -> WorkerRecord:
        """Note the id of the worker's own session. One session belongs to one worker.

        It may be another one than before: all that it has had name the worker.
        """
        with immediate(self._db):
            self._own(identity, session_id)
        return self._by_id(identity)

    def set_state(self, identity: str, state: State, *, now: float | None = None) -> WorkerRecord:
        """Note what has become of it; and when, for one that has ended. What it did last no longer counts then."""
        if state not in OVER:
            return self._set(identity, "state = ?, ended_at = NULL", state)
        return self._set(
            identity, "state = ?, status = '', status_note = '', ended_at = coalesce(ended_at, ?)", state, _iso(now)
        )

    def set_closed(self, identity: str) -> WorkerRecord:
        """Note that it has ended, and that somebody wanted it to: nothing of it is shown among those that run."""
        self.set_state(identity, "ended")
        return self._set(identity, "pid = NULL")

    def note_end(self, seen: WorkerRecord, *, now: float | None = None) -> WorkerRecord | None:
        """Note that a worker, as it was `seen` to run, has ended; `None` where it has been taken up again since."""
        with immediate(self._db):
            known = self.find(seen.id)
            if known is None or (known.pid, known.state) != (seen.pid, seen.state):
                return None
        return self.set_state(seen.id, "ended" if seen.pid or seen.terminal_id else "failed", now=now)

    def set_status(self, identity: str, status: Status, note: str = "", *, now: float | None = None) -> WorkerRecord:
        """Note what its hooks say that it does; `note` is what it waits for."""
        return self._set(identity, "status = ?, status_note = ?, status_at = ?", status, mask(note), _iso(now))

    def take_back(self, identity: str, *, name: str, prompt: str, command: Sequence[str]) -> WorkerRecord:
        """Have a worker say no more than this of what it was told; what it waits for is taken back as well."""
        words = orjson.dumps(list(command)).decode()
        return self._set(identity, "name = ?, prompt = ?, command = ?, status_note = ''", name, prompt, words)

    def erase(self) -> bool:
        """Have nothing in the file that was changed or deleted. False where somebody still reads what was before."""
        return compact(self._db)

    def find(self, identity: str) -> WorkerRecord | None:
        """The worker of exactly that id."""
        return next(iter(self._select("WHERE id = ?", identity)), None)

    def of_session(self, session_id: str) -> WorkerRecord | None:
        """The worker whose session that is, or once was."""
        return next(
            iter(
                self._select(
                    "WHERE session_id = ?1 OR id = (SELECT worker_id FROM worker_sessions WHERE session_id = ?1)"
                    " ORDER BY session_id = ?1 DESC LIMIT 1",
                    session_id,
                )
            ),
            None,
        )

    def successor(self, worker: WorkerRecord) -> WorkerRecord:
        """Who goes on with the session of a worker: a later worker, or still that one."""
        later = self.of_session(worker.session_id) if worker.session_id else None
        return later if later and later.session_id == worker.session_id else worker

    def get(self, reference: str) -> WorkerRecord:
        """The worker of that id, session id, terminal or name, or of an unambiguous beginning of an id.

        A name or terminal means one that runs before one that has ended, and of those the newest.

        Raises:
            NotFound: there is none that is the caller's business.
            Usage: the beginning is that of several, or several that run have the name.
        """
        shown, reference = quoted(reference), storable(reference)
        known = self.find(reference) or self.of_session(reference)
        if known and call_context.permits(known.cwd):
            return known
        for column in ("terminal_id", "name"):
            found = self._permitted(f"WHERE {column} = ? ORDER BY rowid DESC", reference)
            running = [worker for worker in found if worker.state in LIVING]
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

    def _permitted(self, where: str, *values: str) -> list[WorkerRecord]:
        return [worker for worker in self._select(where, *values) if call_context.permits(worker.cwd)]

    def workers(self, *, states: Sequence[State] | None = None) -> list[WorkerRecord]:
        """All workers, newest first; only those in `states` if given."""
        found = self._select("ORDER BY rowid DESC")
        return [worker for worker in found if states is None or worker.state in states]

    def spawned_by(self, session_id: str) -> list[WorkerRecord]:
        """The workers that this session had started, and those that they started in turn, oldest first."""
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
        """How many workers stand one above the other, down to this session; 0 for a session that a person began."""
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
        """Note a transcript that we copied."""
        with immediate(self._db):
            self._db.execute(
                "INSERT INTO staged_copies (path, session_id, source_path, staged_at) VALUES (?, ?, ?, ?)"
                " ON CONFLICT (path) DO UPDATE SET session_id = excluded.session_id,"
                " source_path = excluded.source_path, staged_at = excluded.staged_at",
                (str(path), session_id, str(source_path), _iso(now)),
            )

    def forget_staged_copy(self, path: Path) -> None:
        """Forget a copy that is no longer there."""
        with immediate(self._db):
            self._db.execute("DELETE FROM staged_copies WHERE path = ?", (str(path),))

    def staged_copies(self, session_id: str | None = None) -> list[StagedCopy]:
        """The copies that we made; those of one session if given."""
        rows: Iterable[Any] = self._db.execute(
            "SELECT path, session_id, source_path, staged_at FROM staged_copies"
            " WHERE ?1 IS NULL OR session_id = ?1 ORDER BY rowid",
            (session_id,),
        )
        return [StagedCopy(*row) for row in rows]

    def _own(self, identity: str, session_id: str) -> None:
        """Whoever had it before keeps it as its last one, so that its id still leads there."""
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
        with immediate(self._db):
            if session_id is not None:
                self._own(identity, session_id)
            self._db.execute(f"UPDATE workers SET {what} WHERE id = ?", (*values, identity))  # noqa: S608 - our own words
        return self._by_id(identity)

    def _by_id(self, identity: str) -> WorkerRecord:
        if found := self.find(identity):
            return found
        raise NotFound(f"No such worker: {identity}")

    def _select(self, where: str, *values: Any) -> list[WorkerRecord]:
        names = [column.name for column in fields(WorkerRecord)]
        columns = [_SESSION if name == "session_id" else name for name in names]
        rows: Iterable[Any] = self._db.execute(f"SELECT {', '.join(columns)} FROM workers {where}", values)  # noqa: S608
        return [_worker(dict(zip(names, row, strict=True))) for row in rows]

    @classmethod
    def known_workers(cls) -> list[WorkerRecord]:
        """All workers, newest first: none where nothing was ever started, and no register is made by looking."""
        if not has_registry():
            return []
        with Registry() as registry:
            return registry.workers()

    @classmethod
    def known_worker(cls, session_id: str) -> WorkerRecord | None:
        """The worker whose session that is, or once was."""
        if not has_registry():
            return None
        with Registry() as registry:
            return registry.of_session(session_id)


def _worker(row: dict[str, Any]) -> WorkerRecord:
    """One row. What another version has written in words of its own does not hide the worker."""
    for name, words, otherwise in (("state", State, "running"), ("status", Status, ""), ("kind", Kind, "fork")):
        if row[name] not in get_args(words):
            row[name] = otherwise
    return WorkerRecord(**row | {"command": _words(row["command"])})


def _words(text: object) -> tuple[str, ...]:
    return tuple(map(str, list_in(json_in(str(text)))))


def _iso(moment: float | None = None) -> str:
    seconds = time.time() if moment is None else moment
    whole, milliseconds = divmod(int(seconds * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(whole)) + f".{milliseconds:03d}Z"
