"""Finds out who uses a session. Resuming, branching and cutting all ask here.

Workers of ours are in the registry. Of other processes each agent notes which session they have open (see `Presence`);
one that notes nothing may name it in its command, or has its log open.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path

from indexer.runs import born
from indexer.settings import Setting
from indexer.transcripts.model import AgentName
from indexer.transcripts.state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.starter import LaunchRequest
from smart_fork.errors import ForkRefused, Usage, advice
from smart_fork.snippets import quoted
from smart_fork.system.processes import Machine, Running
from smart_fork.workers.places import lives
from smart_fork.workers.registry import Registry, WorkerRecord


class WorkerLimit(ForkRefused):
    """As many workers as may run are running."""

    code = "worker_limit"
    http_status = 429


class AlreadyRuns(ForkRefused):
    """The session is being gone on with by a worker, which is where to go."""

    code = "already_runs"

    def __init__(self, worker: WorkerRecord, session_id: str) -> None:
        see = advice(
            f"Go there: {worker.attach}" if worker.attach else "`smart-fork active` shows it.",
            tool=f"Send the prompt there: message_worker, with worker {worker.id}.",
        )
        super().__init__(f"{session_id} is running already, as worker {worker.id}", see)
        self.worker = worker


def limit(env: Mapping[str, str]) -> int:
    """Return how many workers may run concurrently.

    Raises:
        Usage: the setting is not a number.
    """
    if fault := Setting.MAX_WORKERS.fault(env):
        raise Usage(fault)
    return Setting.MAX_WORKERS.number(env)


def admission(request: LaunchRequest, machine: Machine, *, counts: bool) -> Callable[[Sequence[WorkerRecord]], None]:
    """Return a check that refuses the worker if too many run. A terminal with a person in it does not count.

    Raises:
        Usage: the limit is not a number.
    """
    most = limit(machine.env)

    def admit(running: Sequence[WorkerRecord]) -> None:
        if request.form == "resume" and (worker := occupant(request.session_id, running, machine)):
            raise AlreadyRuns(worker, request.session_id)
        namesakes = (worker for worker in running if worker.name == request.name)
        if other := next((worker for worker in namesakes if _lives(worker, machine)), None):
            hint = advice(f"Choose another, or end that one: smart-fork close {other.id}", tool="Choose another name.")
            raise ForkRefused(f"{quoted(other.name)} is the name of {other.id}, which runs", hint)
        others = [worker for worker in running if worker.place != "here"]
        if counts and len(others) >= most and sum(_lives(worker, machine) for worker in others) >= most:
            raise WorkerLimit(
                f"{most} workers are running, and {Setting.MAX_WORKERS} allows no more",
                advice(
                    "Wait until one ends, or end one. `smart-fork active` lists them.",
                    tool="Wait until one ends (list_workers, wait_workers), or let the user end one.",
                ),
            )

    return admit


def occupant(session_id: str, running: Sequence[WorkerRecord], machine: Machine) -> WorkerRecord | None:
    """The living worker that goes on in that session."""
    return next((worker for worker in running if session_id in _sessions(worker) and _lives(worker, machine)), None)


def _lives(worker: WorkerRecord, machine: Machine) -> bool:
    return lives(worker, machine.processes, machine.env, machine.clock.now())


def _sessions(worker: WorkerRecord) -> tuple[str | None, ...]:
    # Its session is noted as its own only once it runs.
    return (worker.session_id, worker.source_session_id if worker.kind in ("resume", "continue") else None)


#: A log that was written to this short a time ago is being written to.
FRESH_SECONDS = 5.0


class Occupation:
    """The users of one session at the moment of the first question. Its `log` is not always known."""

    def __init__(
        self, agent: AgentName, session_id: str, log: Path | None, around: Machine | None = None
    ) -> None:  # fmt: skip
        self.agent, self.session_id, self.log = agent, session_id, log
        self._around = around or Machine()
        self._presence = AGENTS[agent].presence if agent in AGENTS else None

    @cached_property
    def workers(self) -> list[WorkerRecord]:
        """Our workers that have the session now, ended ones too."""
        return [
            one for one in Registry.known_workers() if one.agent == self.agent and one.session_id == self.session_id
        ]

    @cached_property
    def worker(self) -> WorkerRecord | None:
        """Our worker that is in it."""
        ours = [one for one in Registry.known_workers() if one.agent == self.agent]
        return occupant(self.session_id, ours, self._around)

    @cached_property
    def processes(self) -> list[int]:
        """Processes of its agent that are in it. What is only concluded does not count where a worker of ours was."""
        if not self._presence:
            return []
        inside = self._presence.inside(self.session_id, self.log, self._running)
        return sorted(pid for pid, sure in inside.items() if sure or not self.workers)

    @property
    def since(self) -> str | None:
        """When its agent was started there, empty if that is not known; `None` if nobody is in it."""
        if self.worker:
            return max(self.worker.started_at, _started(self.worker.pid))
        if self.processes:
            return min(map(_started, self.processes))
        return "" if self._is_fresh else None

    def check_free(self, *, force: bool = False) -> None:
        """Refuse to go on in it while somebody is there.

        Raises:
            AlreadyRuns: one of our workers is.
            ForkRefused: somebody else is, or seems to be, and `force` does not say that it does not matter.
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

    @contextmanager
    def kept_out(self) -> Iterator[None]:
        """Keep its agent from writing to it, where it can be kept from that.

        Raises:
            ForkRefused: somebody is in it, or may write to it.
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
        """Name who may write to the log, which includes more than the session's users. Empty if nobody is seen."""
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
        near = self._presence.near(self.log, self._running) if self._presence and self.log else ""
        return near or (_holder_of_file(self.log) if self.log else "")

    @contextmanager
    def _locked(self) -> Iterator[None]:
        lock = self._presence.hold(self.session_id) if self._presence else None
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
        """Return True if another process wrote to the log just now. A worker of ours may have written last."""
        try:
            now = self._around.clock.now()
            return not self.workers and self.log is not None and now - self.log.stat().st_mtime < FRESH_SECONDS
        except OSError:
            return False


def _started(pid: int | None) -> str:
    return utc(born(pid)) if pid is not None else ""


def _holder_of_file(log: Path) -> str:
    """A process other than this one that has the file open for writing, where the system tells (Linux)."""
    with suppress(OSError):
        wanted = log.stat()
        for pid, link in _opened_by_others():
            with suppress(OSError):  # closed meanwhile
                if os.path.samestat(link.stat(), wanted) and _writes(Path(f"/proc/{pid}/fdinfo/{link.name}")):
                    return f"process {pid} has its file open"
    return ""


def _opened_by_others() -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield the files that other processes have open: thousands in all, so without a `Path` for each.

    Raises:
        OSError: the system does not tell.
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
