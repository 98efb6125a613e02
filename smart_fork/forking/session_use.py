"""Processes that have a session open: workers (agents that smart-fork started), and others.

Workers are in the registry. Other processes are found in the agent's own records, in command lines, or by the open log
file.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from indexer.errors import joined
from indexer.runs import start_time
from indexer.transcripts.model import AgentName, Session
from indexer.transcripts.reader_state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import ForkRefused, advice
from smart_fork.forking.results import StartedWorker
from smart_fork.system.processes import Machine, Running
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.registry import Registry, WorkerRecord


class AlreadyRuns(ForkRefused):
    """Error: a running worker already has the session open. The hint says how to reach the worker."""

    code = "already_runs"

    def __init__(self, worker: WorkerRecord, session_id: str) -> None:
        see = advice(
            f"Go there: {worker.attach}" if worker.attach else "`smart-fork active` shows it.",
            tool=f"Send the prompt there: message_worker, with worker {worker.id}.",
        )
        super().__init__(f"{session_id} is running already, as worker {worker.id}", see)
        self.worker = worker

    def described(self, warnings: Sequence[str] = ()) -> StartedWorker:
        """Return the answer of a start, for the worker that runs already."""
        return StartedWorker.of(self.worker, shlex.join(self.worker.command), warnings, confirmed=True, news="")


def occupant(session_id: str, running: Sequence[WorkerRecord], machine: Machine) -> WorkerRecord | None:
    """Return the worker in `running` that has the session open and is alive, if any."""
    return next((worker for worker in running if session_id in _sessions(worker) and is_alive(worker, machine)), None)


def _sessions(worker: WorkerRecord) -> tuple[str | None, ...]:
    # Its session is noted as its own only once it runs.
    return (worker.session_id, worker.source_session_id if worker.kind in ("resume", "continue") else None)


#: A log counts as being written if its last change is at most this long ago.
FRESH_SECONDS = 5.0


#: Seconds after which an unfinished answer without new records counts as given up, or as waiting for a person.
QUIET_SECONDS = 60.0
IN_PROGRESS = (
    "Cannot branch while a response or tool call is in progress. "
    "Wait for it to finish or resolve the pending tool call."
)
TASKS_RUN = "Stop the current session's running background tasks before branching the conversation."
#: The number of running tasks that an error names.
NAMED = 3


def is_unfinished(session: Session) -> bool:
    """Return True if the session ends with a tool call without a result, or with a prompt without an answer."""
    points = session.branch_points()
    done = [i for i, turn in enumerate(session.turns) if turn.prompt or turn.tool_calls or turn.tool_results]
    return not points or (bool(done) and done[-1] > points[-1])


class SessionUse:
    """The workers and other processes that use a session, looked up when asked for. `log` is its log, if known."""

    def __init__(
        self, agent: AgentName, session_id: str, log: Path | None, around: Machine | None = None
    ) -> None:  # fmt: skip
        self.agent, self.session_id, self.log = agent, session_id, log
        self._around = around or Machine()
        self._agent_processes = AGENTS[agent].processes if agent in AGENTS else None

    @cached_property
    def workers(self) -> list[WorkerRecord]:
        """Return the workers whose last session is this one, including ended workers."""
        known = Registry.known_workers()
        return [one for one in known if (one.agent, one.session_id) == (self.agent, self.session_id)]

    @cached_property
    def worker(self) -> WorkerRecord | None:
        """Return the running worker that has the session open, if any."""
        ours = [one for one in Registry.known_workers() if one.agent == self.agent]
        return occupant(self.session_id, ours, self._around)

    @cached_property
    def processes(self) -> list[int]:
        """Return the ids of the agent's processes that have the session open.

        If a worker has or had the session, only processes that certainly have it open count.
        """
        if not self._agent_processes:
            return []
        inside = self._agent_processes.inside(self.session_id, self.log, self._running)
        return sorted(pid for pid, sure in inside.items() if sure or not self.workers)

    @property
    def since(self) -> str | None:
        """Return when the agent process that has the session open was started; `None` if no process has.

        Return "" if no process was found, but the log changed just now.
        """
        if self.worker:
            return max(self.worker.started_at, _started(self.worker.pid))
        if self.processes:
            return min(map(_started, self.processes))
        return "" if self._is_fresh else None

    def check_free(self, *, force: bool = False) -> None:
        """Refuse to resume a session that is open in a worker or, unless `force`, another process.

        Raises:
            AlreadyRuns: a worker has the session open.
            ForkRefused: another process has it open, or seems to.
        """
        if self.worker:
            raise AlreadyRuns(self.worker, self.session_id)
        why = f"process {self.processes[0]} has it open" if not force and self.processes else ""
        if not force and (why or self._is_fresh):
            raise ForkRefused(
                f"{self.session_id} seems to be open elsewhere: {why or 'its log changed just now'}",
                advice(
                    f"Fork it: smart-fork fork {self.session_id}. Or close it there. --force resumes it anyway.",
                    tool="Fork it: fork_from, or fork_session_id. Or let the user close it there.",
                ),
            )

    @classmethod
    def refuse_while_working(
        cls, session: Session, now: float, hint: str, task_hint: str, caller: str | None = None
    ) -> None:
        """Refuse (`ForkRefused`) to copy a session while its agent is answering, or runs tasks in the background.

        `hint` is the next step if the agent answers, `task_hint` if it runs tasks. `caller` is the id of the session
        that asks.
        """
        file = READERS[session.agent].log_at(str(session.source_path))
        changed_at = file.mtime_ns / 1e9 if file else session.source_path.stat().st_mtime
        quiet = now - changed_at >= QUIET_SECONDS
        users = cls(session.agent, session.session_id, session.source_path)
        if (is_unfinished(session) and not quiet) or (users.worker and users.worker.status == "working"):
            raise ForkRefused(IN_PROGRESS, hint)
        since = users.since
        if since is None and session.session_id != caller:  # tasks of an agent that has ended do not count
            return
        tail = AGENTS.tail_of(session.agent)
        tasks = tail.running_tasks(tail.records(session.source_path), since or "")
        if tasks:
            named = "; ".join(f"{task.what} ({task.id})" if task.what != task.id else task.id for task in tasks[:NAMED])
            more = f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else ""
            raise ForkRefused(TASKS_RUN, joined(f"In the background: {named}{more}", task_hint))

    @contextmanager
    def kept_out(self) -> Iterator[None]:
        """Prevent the agent from writing to the session inside the context, by its own lock, if it has one.

        Raises:
            ForkRefused: a process has the session open, or may write to its log.
        """
        if who := self.writer:
            raise ForkRefused(
                f"The session is running: {self.session_id} ({who})",
                "End it first; or cut a copy of it: smart_fork.excise.branch.",
            )
        with self._locked():
            yield

    @property
    def writer(self) -> str:
        """Return a text that names the process or worker that may write to the session's log; empty without one."""
        if self.agent in AGENTS and not AGENTS[self.agent].writes_on:
            return ""
        if self.worker:
            return f"worker {self.worker.id}"
        try:
            with self._locked():
                pass
        except ForkRefused as error:
            return str(error.message)
        if self.processes:
            return f"{AGENTS.title_of(self.agent)}, process {self.processes[0]}"
        near = self._agent_processes.near(self.log, self._running) if self._agent_processes and self.log else ""
        return near or (_holder_of_file(self.log) if self.log else "")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._agent_processes.hold(self.session_id) if self._agent_processes else None
        try:
            yield
        finally:
            if lock is not None:
                os.close(lock)

    @cached_property
    def _running(self) -> dict[int, Running]:
        return self._around.processes.running()

    @cached_property
    def _is_fresh(self) -> bool:
        """Return True if the log changed just now, and no worker has the session: an unknown process may write it."""
        try:
            now = self._around.clock.now()
            return not self.workers and self.log is not None and now - self.log.stat().st_mtime < FRESH_SECONDS
        except OSError:
            return False


def _started(pid: int | None) -> str:
    return utc(start_time(pid)) if pid is not None else ""


def _holder_of_file(log: Path) -> str:
    """Return a text that names another process with the log open for writing; empty without one, or not on Linux."""
    with suppress(OSError):
        wanted = log.stat()
        for pid, link in _opened_by_others():
            with suppress(OSError):  # closed meanwhile
                if os.path.samestat(link.stat(), wanted) and _writes(Path(f"/proc/{pid}/fdinfo/{link.name}")):
                    return f"process {pid} has its file open"
    return ""


def _opened_by_others() -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield (process id, link below ``/proc``) for each file that another process has open.

    There are thousands of links, so no `Path` objects are made.
    """
    for process in [*os.scandir("/proc")]:
        if process.name.isdigit() and int(process.name) != os.getpid():
            with suppress(OSError):  # it has ended, or is somebody else's
                yield from [(process.name, link) for link in os.scandir(f"{process.path}/fd")]


def _writes(info: Path) -> bool:
    with suppress(OSError, StopIteration):
        flags = next(line for line in info.read_text().splitlines() if line.startswith("flags:"))
        return int(flags.split()[1], 8) & os.O_ACCMODE != os.O_RDONLY
    return False
