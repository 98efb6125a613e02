"""Preconditions of starting a worker (an agent that smart-fork runs): its session is not in use, the worker limit
allows it, the agent is logged in.

Workers that use a session are in the registry. Other processes are found in the agent's own records, in command lines,
or by the open log file.

An agent passes only a part of the user's environment to its MCP servers, and a background service has almost none. So
smart-fork notes the names of the variables that a person set for the agent, and reads their values from the login
shell.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import field
from functools import cached_property
from pathlib import Path

from indexer.lazy import dataclass
from indexer.project import resolve
from indexer.runs import start_time
from indexer.settings import Setting
from indexer.transcripts.model import AgentName
from indexer.transcripts.reader_state import utc
from smart_fork.agents import AGENTS
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.programs import Program
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.display_text import plain_name, quoted
from smart_fork.errors import ForkRefused, NotFound, Usage, advice
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.forking.results import StartedWorker
from smart_fork.forking.worker import WorkerSpec, describe
from smart_fork.system import call_context
from smart_fork.system.processes import Machine, Processes, Running
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.worker_terminal import WorkerPlace


class WorkerLimit(ForkRefused):
    """Error: the setting for the number of running workers (agents that smart-fork started) allows no more."""

    code = "worker_limit"
    http_status = 429


class AlreadyRuns(ForkRefused):
    """Error: a running worker already has the session open. The hint says how to reach that worker."""

    code = "already_runs"

    def __init__(self, worker: WorkerRecord, session_id: str) -> None:
        see = advice(
            f"Go there: {worker.attach}" if worker.attach else "`smart-fork active` shows it.",
            tool=f"Send the prompt there: message_worker, with worker {worker.id}.",
        )
        super().__init__(f"{session_id} is running already, as worker {worker.id}", see)
        self.worker = worker

    def described(self, warnings: Sequence[str] = ()) -> StartedWorker:
        """Return the answer about the worker, as if it had just been started."""
        return describe(self.worker, shlex.join(self.worker.command), warnings, confirmed=True)


def limit(env: Mapping[str, str]) -> int:
    """Return the number of workers that may run at the same time; raise `Usage` if the setting is not a number."""
    if fault := Setting.MAX_WORKERS.fault(env):
        raise Usage(fault)
    return Setting.MAX_WORKERS.number(env)


def admission(request: LaunchRequest, machine: Machine, *, counts: bool) -> Callable[[Sequence[WorkerRecord]], None]:
    """Return a check for a new worker, which refuses if one of the given running workers has its session or name.

    With `counts`, it also refuses if too many workers run. A worker in a person's own terminal does not count.
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
    """Return the worker among those recorded as `running` that has the session open; `None` if it has ended."""
    return next((worker for worker in running if session_id in _sessions(worker) and _lives(worker, machine)), None)


def _lives(worker: WorkerRecord, machine: Machine) -> bool:
    return is_alive(worker, machine.processes, machine.env, machine.clock.now())


def _sessions(worker: WorkerRecord) -> tuple[str | None, ...]:
    # Its session is noted as its own only once it runs.
    return (worker.session_id, worker.source_session_id if worker.kind in ("resume", "continue") else None)


#: A log counts as being written if its last change is at most this long ago.
FRESH_SECONDS = 5.0


class Occupation:
    """The workers and other processes that use one session, looked up when needed. `log` is its log, if known."""

    def __init__(
        self, agent: AgentName, session_id: str, log: Path | None, around: Machine | None = None
    ) -> None:  # fmt: skip
        self.agent, self.session_id, self.log = agent, session_id, log
        self._around = around or Machine()
        self._agent_processes = AGENTS[agent].processes if agent in AGENTS else None

    @cached_property
    def workers(self) -> list[WorkerRecord]:
        """Return the workers that have or had the session, including ended workers."""
        return [
            one for one in Registry.known_workers() if one.agent == self.agent and one.session_id == self.session_id
        ]

    @cached_property
    def worker(self) -> WorkerRecord | None:
        """Return the running worker that has the session open, if any."""
        ours = [one for one in Registry.known_workers() if one.agent == self.agent]
        return occupant(self.session_id, ours, self._around)

    @cached_property
    def processes(self) -> list[int]:
        """Return the ids of the agent's processes that have the session open; of a worker's session, certain ones."""
        if not self._agent_processes:
            return []
        inside = self._agent_processes.inside(self.session_id, self.log, self._running)
        return sorted(pid for pid, sure in inside.items() if sure or not self.workers)

    @property
    def since(self) -> str | None:
        """Return when the agent process that has the session open was started; `None` if there is none.

        If the log changed just now, but no process was found, return an empty string.
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

    @contextmanager
    def kept_out(self) -> Iterator[None]:
        """Prevent the agent from writing to the session inside the context, if the agent has a lock for that.

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
    """Return a text that names another process that has the log open for writing; Linux alone can tell."""
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


class NotLoggedIn(ForkRefused):
    """Error: the agent is not logged in. If it were started, it would only ask for a login."""

    code = "not_logged_in"


@dataclass(frozen=True, slots=True)
class Provisions:
    """Environment variables to add for a worker, and notes about them to show to the user."""

    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    notes: tuple[str, ...] = ()

    def environment(self, plan: ForkPlan, env: Mapping[str, str]) -> dict[str, str]:
        """Return the full environment for the plan's program, with a search path that finds it."""
        return plan.environment({**env, **Program.path_for(plan.argv[0], env), **self.variables})


def provisions(
    agent: AgentName, program: str, place: WorkerPlace, processes: Processes, env: Mapping[str, str]
) -> Provisions:
    """Return the environment variables that a worker of `agent` needs in `place` and `env` lacks, from the login shell.

    Raises:
        NotLoggedIn: the agent's own check says that it is not logged in.
    """
    if place.replaces:  # a person sits there, whom the agent asks itself
        return Provisions()
    login = AGENTS.login_of(agent)
    wanted = dict.fromkeys((*login.noted(), *login.required()))
    missing = [name for name in wanted if not env.get(name)]
    if not missing and login.is_plain(env):
        return Provisions()
    around = {**place.inherited(processes, env), **env}
    settled = login.settled()
    missing = [name for name in missing if name not in around and name not in settled]
    # A worker's home is the one that its session was found in: another one would not have it.
    shell = login.shell(env)
    given = shell.values([name for name in missing if name != login.folder], processes)
    missing = [name for name in missing if name not in given]
    found = Program.login_state(login, around | given, program, processes)
    whence = "its settings name" if found.lacks else "your environment had"
    lacks = _lacks(found.lacks or missing, whence, shell.path)
    if found.logged_in is not False or Setting.CHECK_LOGIN.is_off(env):
        return Provisions(
            given, (f"{AGENTS.title_of(agent)} starts with the login that it finds{lacks}",) if missing else ()
        )
    if sys.platform == "darwin" and not found.lacks:  # its keychain may be open where the worker runs
        return Provisions(given, (f"{AGENTS.title_of(agent)} says that it is not logged in here{lacks}",))
    raise NotLoggedIn(
        f"Nothing was started: {AGENTS.title_of(agent)} is not logged in here{lacks}", _step(login.command)
    )


def _lacks(names: Sequence[str], whence: str, shell: str) -> str:
    """Return the end of a sentence about unset environment variables `names`; empty without names.

    `whence` says why they are expected. `shell` is the login shell that was asked for them, if any.
    """
    if not names:
        return ""
    one = len(names) == 1
    asked = f", and your login shell ({Path(shell).name}) does not set {'it' if one else 'them'}" if shell else ""
    return f": {_listed(names)}, which {whence}, {'is' if one else 'are'} not set{asked}"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _step(command: str) -> str:
    anyway = f"{Setting.CHECK_LOGIN}=false starts it anyway."
    return advice(
        f"Log in with `{command}`, or set it in the profile that your login shell reads. {anyway}",
        tool=f"Tell the user: log in with `{command}`, or set it in the profile of the login shell. {anyway}",
    )


def check_handed_over(spec: WorkerSpec) -> None:
    """Refuse to start an agent on another agent's session, whose log it cannot read, unless it gets it as text."""
    source = spec.source
    if source is not None and source.agent != spec.agent and not (spec.content.handover or spec.written):
        raise ForkRefused(
            f"A session of {AGENTS.title_of(source.agent)} cannot be forked with {AGENTS.title_of(spec.agent)}",
            advice(
                f"Hand it over: smart-fork fork {source.session_id} --as {spec.agent}",
                tool=f"Hand it over: as_agent '{spec.agent}', or agent_type beside fork_from.",
            ),
        )


def check_permissions(request: LaunchRequest) -> None:
    """Refuse to start an agent without permission prompts in another user's session, which may contain instructions."""
    if request.of_others and request.skip_permissions:
        raise ForkRefused(
            f"{request.session_id} continues a teammate's session: its agent asks before it acts",
            advice(
                "Drop --skip-permissions. Its window can change the permissions.",
                tool="Drop skip_permissions. The user can change the permissions in its window.",
            ),
        )


def check_resumable(spec: WorkerSpec, request: LaunchRequest) -> None:
    """Refuse to resume a session in a worktree, from an earlier message, or where the agent does not find its log."""
    if spec.options.in_worktree or spec.content.point:
        raise Usage("Only a fork can have a worktree or begin at an earlier message", "Fork the session instead.")
    source = spec.source
    if (
        source
        and source.turns
        and not AGENTS.storage_of(spec.agent).finds(source.source_path, source.cwd, request.target_cwd)
    ):
        raise ForkRefused(
            f"{AGENTS.title_of(spec.agent)} cannot find this session in {request.target_cwd}",
            advice(f"Fork it instead: smart-fork fork {request.session_id}", tool="Fork it instead: fork_from."),
        )


def check_delivery(plan: ForkPlan, place: WorkerPlace) -> None:
    """Refuse a prompt that `place` (such as tmux) cannot pass as the agent needs: typed, as input or argument."""
    if plan.prompt and plan.delivery not in place.delivers:
        hint = advice(
            "Run it in tmux: --in tmux. Or start without a prompt, and type it.", tool="Run it in tmux: run_in."
        )
        how = {"typed": "typed", "input": "on its standard input", "argument": "as an argument"}[plan.delivery]
        raise ForkRefused(
            f"{AGENTS.title_of(plan.agent)} takes this prompt only {how}, and that cannot be done in {place.name}", hint
        )


def place_of_work(worked_in: str, cwd: str | Path | None = None) -> Path:
    """Return the directory in which an agent starts: `cwd` if given, else where the directory `worked_in` is now.

    Raises:
        ForkRefused: the session's directory is unknown.
        NotFound: the directory and its repository are gone.
    """
    hint = advice("Give a directory: --cwd DIR.", tool="Give a directory: project_path, or cwd of a branch.")
    if cwd is not None:
        return directory(cwd)
    if why := WorkDirectory(worked_in).problem:
        raise ForkRefused(f"No directory to work in: {why}", hint)
    return directory(WorkDirectory(worked_in).now, hint)


def directory(path: str | Path, hint: str = "Give an existing directory.") -> Path:
    """Return the resolved path of an existing directory; else raise `NotFound` with `hint`."""
    call_context.require(str(path), plain_name(str(path)))
    try:
        target = resolve(path)
        there = target.is_dir()
    except (OSError, ValueError) as error:  # too long, a NUL
        raise NotFound(f"No such directory: {plain_name(str(path))}", hint) from error
    if not there:
        raise NotFound(f"No such directory: {plain_name(str(target))}", hint)
    return target
