"""Starts up to four workers (agents that smart-fork runs) in one call.

All workers are checked before the first one starts. A session that is open in another process is not resumed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import apsw

from indexer.errors import what_failed
from indexer.lazy_compilation import dataclass
from indexer.project import project_of
from indexer.repositories import recorded
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents import AGENTS
from smart_fork.agents.references import Reference
from smart_fork.agents.request_fields import KEYS, Options
from smart_fork.display_text import quoted, shown
from smart_fork.errors import ForkRefused, SmartForkError, Usage, advice
from smart_fork.finding import session_lookup
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.forking.confirmation import CONFIRM_SECONDS
from smart_fork.forking.plan import Fork
from smart_fork.forking.request import Budget, ForkRequest
from smart_fork.forking.results import NotSpawned, Spawned, SpawnedWorker
from smart_fork.forking.resume import check_free, newest_session
from smart_fork.forking.source_sessions import refuse_borrowed
from smart_fork.forking.start import PreparedWorker, prepare
from smart_fork.forking.worker_preconditions import directory
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine
from smart_fork.workers.terminals import choose_place

if TYPE_CHECKING:
    from smart_fork.finding.session_library import Opening
    from smart_fork.workers.registry import WorkerKind


MAX_WORKERS = 4
#: Seconds to watch each worker at least, so that a worker that dies immediately is noticed.
MIN_CONFIRM_SECONDS = 5.0
#: Beginnings of errors that continue after the number: "Worker 0 missing required 'project_path'".
_READ_ON = ("missing required", "must be")
_WORDS: Mapping[type, str] = {str: "a string", bool: "true or false", int: "a number"}
_EXCLUSIVE = (
    ("resume_session_id", "continue_session"),
    ("fork_from", "resume_session_id"),
    ("fork_from", "continue_session"),
)


def spawn(
    workers: Sequence[Any], *, caller_session_id: str | None = None, default_agent: AgentName | None = None,
    machine: Machine | None = None, library: Opening | None = None,
) -> Spawned:  # fmt: skip
    """Start 1 to 4 workers, each from its JSON options. Return one result for each worker, also for a failed one.

    They share one waiting time. `library` is the index to search; by default, the index of the command line.

    Raises:
        SmartForkError: a worker cannot be started; then no worker was started.
    """
    if not workers:
        raise Usage("At least one worker is required", "Give each a project_path and a prompt.")
    if len(workers) > MAX_WORKERS:
        raise Usage(f"Maximum {MAX_WORKERS} workers per spawn", "Call again for the rest.")
    machine = machine or Machine()
    ready = list[ReadyWorker]()
    with ExitStack() as undoing:
        for index, one in enumerate(workers):
            try:
                asked = WorkerRequest(checked_options(one), default_agent or AGENTS.first(), caller_session_id, machine)
                ready.append(asked.ready(library))
                undoing.callback(ready[-1].worker.drop)
            except SmartForkError as error:
                colon = "" if error.message.startswith(_READ_ON) else ":"
                error.preface(f"Worker {index}{colon}")
                raise
        deadline = machine.clock.now() + CONFIRM_SECONDS
        results = tuple(_result(index, one, deadline - machine.clock.now()) for index, one in enumerate(ready))
    failed = sum(isinstance(one, NotSpawned) for one in results)
    return Spawned(len(results) - failed, failed, results)


class ReadyWorker(NamedTuple):
    """A worker or fork that was checked and can be started, and notes on it for the caller."""

    worker: PreparedWorker | Fork
    notes: Sequence[str]


def _result(index: int, ready: ReadyWorker, left: float) -> SpawnedWorker | NotSpawned:
    """Start a worker, and wait `left` seconds or a little more until it takes its prompt. Return failures, too."""
    try:
        launched = ready.worker.launch(patience=max(MIN_CONFIRM_SECONDS, left))
    except SmartForkError as error:
        return NotSpawned(index, error.code, error.message, error.hint)
    except (OSError, apsw.Error) as error:
        text = what_failed(error)
        hint = advice("`smart-fork doctor` checks every part.", tool="Start the others without it.")
        return NotSpawned(index, "unexpected", text, hint)
    return SpawnedWorker.numbered(index, launched.as_worker(), ready.notes)


def checked_options(said: Any) -> dict[str, Any]:
    """Return the JSON options of one worker; raise `Usage` for wrong names, types or contradictions.

    They are checked without pydantic: importing it would cost every command a tenth of a second.
    """
    if not isinstance(said, Mapping):
        raise Usage(f"must be an object, not {shown(said)}", f"Its keys: {', '.join(KEYS)}.")
    if unknown := [repr(quoted(str(key))) for key in said if key not in KEYS]:
        raise Usage(f"unknown key {', '.join(unknown)}", f"Known: {', '.join(KEYS)}.")
    given = {key: value for key, value in said.items() if value is not None}
    for key, value in given.items():
        if type(value) not in KEYS[key].types:  # exactly: true is a number to Python
            raise Usage(f"'{key}' must be {' or '.join(_WORDS[kind] for kind in KEYS[key].types)}, not {shown(value)}")
    Usage.refuse_empty(given)
    if not given.get("project_path"):
        raise Usage("missing required 'project_path'", "The directory that the worker works in.")
    Usage.refuse_both(given, _EXCLUSIVE)
    return given


@dataclass(frozen=True, slots=True)
class WorkerRequest:
    """A request to start one worker, from its JSON options `said`."""

    said: Mapping[str, Any]
    default_agent: AgentName
    caller: str | None
    machine: Machine

    @property
    def named(self) -> AgentName | None:
        """Return the agent that the request names, if any."""
        return AGENTS.to_start(self.said["agent_type"]) if "agent_type" in self.said else None

    @property
    def target(self) -> Path:
        """Return the directory that the worker is to work in."""
        return directory(self.said["project_path"])

    def ready(self, library: Opening | None = None) -> ReadyWorker:
        """Check the request, and return the worker, ready to start. `library` is the index for `at` and `budget`."""
        given, agent, notes = self.said, self.named or self.default_agent, list[str]()
        target, unsaid = self.target, "worktree" not in given
        kind = self._kind(agent, notes)
        if kind != "fork":
            for name in ("at", "budget", "keep", "drop"):
                if name in given:
                    which = repr(name) if name == "at" else "'budget'"
                    raise Usage(f"{which} needs a session to fork", "Say which: fork_from.")
        if given.get("run_in") == "here":
            raise Usage("run_in cannot be 'here'", "Places for workers are tmux and process.")
        options = Options.from_json(given)
        if unsaid:  # what begins from nothing has one if that is possible
            options = replace(options, worktree=project_of(target).git and kind in ("fork", "new"))
        if kind == "fork":
            return self._fork(self._session(agent), options, library)
        source = self._source(kind, agent)
        agent = self.named or (source.agent if source else agent)
        cwd = None if source and WorkDirectory(source.cwd).is_there else target
        spec = WorkerSpec(kind, agent, source, options, cwd=cwd, or_without=unsaid, caller_session_id=self.caller)
        return ReadyWorker(prepare(spec, self.machine), notes)

    def _kind(self, agent: AgentName, notes: list[str]) -> WorkerKind:
        fork = self.said.get("fork_session", False)
        if self.said.get("fork_from"):
            return "fork"
        if self.said.get("resume_session_id"):
            return "fork" if fork else "resume"
        if self.said.get("continue_session"):
            return "fork" if fork else "continue"
        if fork and not AGENTS.starter_of(agent).forks_nothing:
            raise Usage(
                "fork_session needs fork_from, resume_session_id or continue_session", "Name the session to fork."
            )
        if fork:
            notes.append("fork_session is ignored without resume_session_id or continue_session")
        return "new"

    def _session(self, agent: AgentName) -> str:
        if given := self.said.get("fork_from") or self.said.get("resume_session_id"):
            return str(given)
        newest = self._newest(agent)
        return str(Reference(newest.agent, newest.session_id))

    def _fork(self, session: str, options: Options, library: Opening | None) -> ReadyWorker:
        given = self.said
        request = ForkRequest(
            session, options, at=given.get("at"),
            budget=Budget.parse(given.get("budget"), given.get("keep"), given.get("drop")), cwd=str(self.target),
            as_agent=self.named, caller_session_id=self.caller, or_without="worktree" not in given,
        )  # fmt: skip
        planned = Fork.plan(request, library, self.machine)
        notes = [*planned.content.notes]
        for one in planned.content.selected:
            told = one.selection
            if not told.whole:
                exchanges = f"{told.kept} of {told.kept + told.left_out} exchanges"
                notes.append(f"It has {exchanges}, about {told.tokens:,} tokens")
        if handover := planned.content.handover:
            notes += handover.handed.notes(planned.prepared.spec.agent)
        return ReadyWorker(planned, notes)

    def _source(self, kind: WorkerKind, agent: AgentName) -> Session | None:
        """Return the session that the worker resumes; `None` if the worker begins a new session."""
        if kind == "new":
            return None
        source = self._newest(agent) if kind == "continue" else self._resumed(str(self.said["resume_session_id"]))
        self._check_going_on(source)
        return source

    def _resumed(self, reference: str) -> Session:
        located = session_lookup.locate(reference)
        refuse_borrowed(located)
        with bounded():
            return session_lookup.read(located)

    def _newest(self, agent: AgentName) -> Session:
        headless = choose_place(self.said.get("run_in"), self.machine).headless
        return newest_session(self.target, agent, automated=headless, apart_from=self.caller)

    def _check_going_on(self, source: Session) -> None:
        if self.named not in (None, source.agent):
            raise ForkRefused(
                f"A {source.agent} session cannot be resumed by {self.named}", "Drop agent_type, or fork it: fork_from."
            )
        if source.session_id == self.caller:
            raise ForkRefused("This is the calling session itself", "Fork it: fork_from.")
        worked_in = recorded(WorkDirectory(source.cwd).now)
        if source.cwd and (worked_in is None or project_of(worked_in).key != project_of(self.target).key):
            whose = "no" if worked_in is None else "another"
            raise ForkRefused(
                f"{source.session_id} worked in {WorkDirectory(source.cwd).shown}, which is of {whose} project",
                "A session resumes in its own directory. To run it here, fork it: fork_from.",
            )
        check_free(source, machine=self.machine)
