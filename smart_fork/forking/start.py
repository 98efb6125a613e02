"""Starts a worker (an agent that smart-fork runs): its checks, command, registry row, place and confirmation.

Everything is checked first. A failed start removes what it made.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Self

import apsw

from indexer.environment import DEPTH
from indexer.lazy_compilation import dataclass
from indexer.safe_files import private_dir
from indexer.transcripts.base import is_there
from indexer.transcripts.model import Session
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.programs import Program
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.display_text import plain_name
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage
from smart_fork.forking import worker_preconditions
from smart_fork.forking.confirmation import CONFIRM_SECONDS, Confirmation, confirm, one_at_a_time
from smart_fork.forking.copies import write_branch
from smart_fork.forking.fork_content import ForkContent
from smart_fork.forking.handover import write_handover
from smart_fork.forking.handover_text import delete_leftover_logs
from smart_fork.forking.results import Forked, StartedWorker
from smart_fork.forking.source_sessions import is_others
from smart_fork.forking.worker_preconditions import Provisions, directory, place_of_work, provisions
from smart_fork.forking.worker_spec import WorkerSpec, preceded
from smart_fork.system.call_context import refuse_cancelled
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.recovery import undo_cut_off
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.terminals import choose_place
from smart_fork.workers.worker_place import WorkerLocation, WorkerPlace
from smart_fork.workers.worktree import Worktree

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PreparedWorker:
    """A worker (an agent to run) that was checked and is ready to start. It has no files and no process yet."""

    spec: WorkerSpec
    machine: Machine
    request: LaunchRequest
    place: WorkerPlace
    provisions: Provisions = field(default_factory=Provisions)
    #: Notes on changes since the forked session, put before the prompt, if any.
    note: str = ""
    #: The path of the worktree, if the worker must have one.
    worktree: Path | None = None

    @property
    def cwd(self) -> Path:
        """Return the directory that the worker will work in: its planned worktree, or the requested one."""
        return self.worktree or self.request.target_cwd

    def plan(self, cwd: Path | None = None, worker_id: str = "") -> ForkPlan:
        """Return the plan with the command that starts the worker in `cwd`, by default in the requested directory.

        Raises:
            Usage: an id, the prompt or the nesting depth is invalid.
            ForkRefused: the session is another agent's, or workers are nested too deeply.
        """
        request = replace(self.request, worker_id=worker_id, target_cwd=cwd or self.request.target_cwd)
        with _home_of(self.spec):
            return ForkPlan.of(request)

    def launch(self, *, patience: float = CONFIRM_SECONDS) -> LaunchedWorker:
        """Start the worker. Wait up to `patience` seconds until its log or screen shows that it has taken its prompt.

        Raises:
            SmartForkError: the worker did not start, or ended before it took its prompt.
        """
        spec, place, machine = self.spec, self.place, self.machine
        with _home_of(spec), Registry() as registry, Attempt(machine, registry) as attempt:
            undo_cut_off(registry, machine)
            if spec.written:
                attempt.otherwise(spec.written.undo)
            worker = _registered(self, attempt)
            made, warnings = _worktree(self, worker, attempt)
            warnings += spec.deviations(place, self.request.target_cwd)
            warnings += [*spec.unloaded(), *self.provisions.notes]
            plan = self.plan(made.path if made else None, worker.id)
            if not spec.written:
                warnings += attempt.stage(plan, spec, worker)
            with one_at_a_time(plan):
                began = machine.clock.now()
                new = plan.new_session_id if spec.form != "resume" else None
                worker = registry.set_ready(
                    worker.id, cwd=plan.cwd, tree=made.made if made else None, session_id=new, now=began
                )
                _give_back(attempt, plan, worker)
                refuse_cancelled()
                if place.replaces:  # nothing of ours is left to say so afterwards
                    _note_running(registry, worker, plan, WorkerLocation(pid=Processes.own_pid()))
                environment = self.provisions.environment(plan, machine.env)
                started = place.start(plan, worker, replace(machine, env=environment))
                attempt.succeeded()  # the first step that cannot be taken back
                plan = replace(plan, new_session_id=started.session_id or plan.new_session_id)
                Program.keep()
                launched = LaunchedWorker(
                    plan, place.name, worker, started, plan.new_session_id, warnings, note=self.note
                )
                look = partial(confirm, plan, place, started, machine, began, patience=patience)
                launched, ended = _noted(registry, worker, launched, look)
                if ended:
                    attempt.failed()
                    if place.screen(started, machine) is None:
                        started = replace(started, attach="")  # there is nothing left to look at
                    raise ended.as_error(plan, started)
                return launched

    def preview(self) -> LaunchedWorker:
        """Return the answer of a dry run: the command and warnings."""
        plan = self.plan(self.cwd)
        warnings = self.spec.deviations(self.place, self.request.target_cwd)
        warnings += self.spec.made_first(plan, in_worktree=self.worktree is not None)
        if self.worktree:
            warnings += filter(None, [Worktree.empty_submodules(self.request.target_cwd, self.machine.processes)])
        return LaunchedWorker(plan, self.place.name, warnings=warnings, note=self.note, name=self.spec.called)

    def drop(self) -> None:
        """Do nothing: unlike `Fork.drop`, there are no files to delete."""


def prepare(spec: WorkerSpec, machine: Machine | None = None, *, dry_run: bool = False) -> PreparedWorker:
    """Check all that a start of the worker needs, and return the worker ready to start.

    A `dry_run` does not check whether the agent is logged in.

    Raises:
        SmartForkError: the worker could not be started.
    """
    spec = replace(spec, source=spec.source and _with_log(spec.source))
    with _home_of(spec):
        return _prepared(spec, machine or Machine(), dry_run=dry_run)


def _home_of(spec: WorkerSpec) -> AbstractContextManager[None]:
    """Return a context in which the agent's home directory (one for each account) is that of the session's log."""
    own = spec.source if spec.source and spec.source.turns and not spec.content.handover else None
    return AGENTS[spec.agent].home.used(own.source_path if own else None)


def _prepared(spec: WorkerSpec, machine: Machine, *, dry_run: bool) -> PreparedWorker:
    worker_preconditions.check_handed_over(spec)
    Usage.refuse_empty({"worktree": spec.options.worktree, "name": spec.options.name})
    place = choose_place(spec.options.place, machine)
    if place.agent not in (None, spec.agent):
        raise Usage(f"{AGENTS.title_of(spec.agent)} does not run in {place.name}", "Run it in tmux, or as a process.")
    source, written, point = spec.source, spec.written, spec.content.point
    target = place_of_work(source.cwd, spec.cwd) if source else directory(spec.cwd or Path.cwd())
    note = spec.note_in(target, machine.processes)
    known = [*([source] if source else []), *(part.session for part in spec.content.others)]
    request = LaunchRequest(
        agent=spec.agent, session_id=source.session_id if source else "", target_cwd=target,
        program=_program(spec, place, machine),
        new_session_id=written.session_id if written else AGENTS.starter_of(spec.agent).new_id(),
        prompt=preceded(spec.options.prompt, note), headless=place.headless, background=place.agent is not None,
        name=plain_name(spec.options.name) or None, at=written.at if written else point.message_id if point else None,
        source_agent=source.agent if source and source.turns else None,
        depth=_depth(machine.env, spec.caller_session_id), form=spec.form,
        of_others=any(is_others(one.session_id, one if one.turns else None) for one in known),
        has_tools=AGENTS.starter_of(spec.agent).waits and AGENTS.registration_of(spec.agent).starts(),
        options=spec.options,
    )  # fmt: skip
    worker_preconditions.check_permissions(request)
    for one in () if dry_run else known:
        provenance.refuse_pending_withdrawal(one.session_id)
    prepared = PreparedWorker(spec, machine, request, place, note=note)
    worker_preconditions.check_delivery(prepared.plan(), place)
    # Refuses a limit that is not a number; whether the limit is reached is checked when the worker starts.
    worker_preconditions.admission(request, machine, counts=not place.replaces)
    if spec.form == "resume":
        worker_preconditions.check_resumable(spec, request)
    worktree = None
    if spec.options.in_worktree and not spec.or_without:
        options = spec.options
        planned = Worktree.plan(target, spec.worktree_name, machine.processes, with_changes=options.with_changes)
        worktree = planned.path
    given = Provisions() if dry_run else provisions(spec.agent, request.program, place, machine)
    return replace(prepared, provisions=given, worktree=worktree)


def start(spec: WorkerSpec, machine: Machine | None = None) -> StartedWorker:
    """Check and start a worker, and return the answer about it."""
    return prepare(spec, machine).launch().as_worker()


def _registered(prepared: PreparedWorker, attempt: Attempt) -> WorkerRecord:
    """Add the worker to the registry before files are made for it, so that it counts for the worker limit."""
    spec, request, machine = prepared.spec, prepared.request, prepared.machine
    asked = WorkerRecord.ASKED if request.of_others else ""
    worker = attempt.registry.add(
        request.agent,
        name=request.name or spec.called or "",
        numbered=request.name is None,
        source_session_id=request.session_id,
        caller_session_id=spec.caller_session_id,
        place=prepared.place.name,
        cwd=request.target_cwd,
        prompt=ForkPlan.passable(spec.options.prompt or ""),
        kind=spec.kind,
        depth=request.depth + 1,
        permission_mode=WorkerRecord.UNASKED if request.skip_permissions else asked,
        maker=os.getpid(),
        now=machine.clock.now(),
        admit=worker_preconditions.admission(request, machine, counts=not prepared.place.replaces),
    )
    attempt.otherwise(lambda: attempt.registry.set_state(worker.id, "failed"))
    return worker


def _worktree(prepared: PreparedWorker, worker: WorkerRecord, attempt: Attempt) -> tuple[Worktree | None, list[str]]:
    options, target = prepared.spec.options, prepared.request.target_cwd
    if not options.in_worktree:
        return None, []
    try:
        made = attempt.worktree(worker, target, prepared.spec.worktree_name, with_changes=options.with_changes)
    except SmartForkError as error:
        if not prepared.spec.or_without:
            raise
        return None, [f"It works in the directory itself: {error.message}"]
    processes = attempt.machine.processes
    return made, [*filter(None, (made.left_unfiltered(processes), Worktree.empty_submodules(target, processes)))]


def _note_running(registry: Registry, worker: WorkerRecord, plan: ForkPlan, started: WorkerLocation) -> None:
    started.note(registry, worker.id, plan.argv)
    if plan.new_session_id:  # a session that is gone on with was the one of an earlier worker's until now
        registry.set_session_id(worker.id, plan.new_session_id)


def _give_back(attempt: Attempt, plan: ForkPlan, worker: WorkerRecord) -> None:
    """Register an undo step: if the start fails, the resumed session belongs to its earlier worker again."""
    owner = attempt.registry.of_session(plan.new_session_id) if plan.new_session_id else None
    if owner and owner.id != worker.id and owner.session_id and owner.session_id == plan.new_session_id:
        attempt.otherwise(partial(attempt.registry.set_session_id, owner.id, owner.session_id))


def _noted(
    registry: Registry, worker: WorkerRecord, launched: LaunchedWorker, look: Callable[[], Confirmation]
) -> tuple[LaunchedWorker, Confirmation | None]:
    """Wait for the result of `look` (how the started worker behaves), and record it. Return the worker.

    Also return the result if the worker ended before it took its prompt. Errors are warnings here: the worker runs.
    """
    plan, started = launched.plan, launched.started
    try:
        _note_running(registry, worker, plan, started)
        seen = look()
        if seen.session_id and seen.session_id != plan.new_session_id:
            registry.set_session_id(worker.id, seen.session_id)
        if seen.last_words is not None:
            registry.set_state(worker.id, "ended")
        if note := seen.remark(plan, started):
            launched.warnings.append(note)
        known = registry.get(worker.id)
        ended = seen if seen.last_words is not None and not seen.taken else None
        return replace(launched, worker=known, session_id=seen.session_id, confirmed=seen.taken), ended
    except (OSError, SmartForkError, apsw.Error) as error:
        log.warning("%s was started, but that could not be noted: %s", worker.id, error)
        launched.warnings.append(f"It was started, but the register of workers failed: {error}")
        return launched, None


def _depth(env: Mapping[str, str], caller_session_id: str | None) -> int:
    """Return the nesting depth of the worker that asks (0 for a person), from the environment or the registry.

    The registry is needed too, because Codex does not pass on the environment variable.
    """
    text = env.get(DEPTH, "")
    told = int(text) if text.isascii() and text.isdigit() else 0
    if not caller_session_id:
        return told
    with Registry() as registry:
        return max(told, registry.depth(caller_session_id))


def _with_log(session: Session) -> Session:
    """Return the session with its log's current path: the agent may have moved or archived the log."""
    if not session.turns or is_there(str(session.source_path)):
        return session
    found = READERS.original_of(session.agent, session.session_id)
    if found is None:
        raise NotFound(f"The session's log is gone: {session.source_path}", "The agent may have deleted it.")
    return replace(session, source_path=found)


def _program(spec: WorkerSpec, place: WorkerPlace, machine: Machine) -> str:
    # A shortened copy is resumed, which every version can.
    if spec.form != "fork" or spec.content.point or spec.written:
        return Program.find(spec.agent, machine.env)
    return Program.require(spec.agent, machine.processes, machine.env, headless=place.headless)


def resume_written(spec: WorkerSpec, machine: Machine | None = None) -> Forked:
    """Resume a session copy that was already written. If the start fails, delete the copy."""
    try:
        prepared = prepare(spec, machine)
    except BaseException:
        if spec.written:
            undone(spec.written.undo)
        raise
    return prepared.launch().as_fork()


@dataclass(frozen=True, slots=True)
class LaunchedWorker:
    """A started worker; in a dry run, only its plan and `name`. `session_id` is `None` until known.

    `confirmed` is true if it took its prompt, or is ready for one. `note` was put before the prompt.
    """

    plan: ForkPlan
    place: str
    worker: WorkerRecord | None = None
    started: WorkerLocation = field(default_factory=WorkerLocation)
    session_id: str | None = None
    warnings: list[str] = field(default_factory=list)
    confirmed: bool = False
    note: str = ""
    name: str | None = None

    def as_fork(self) -> Forked:
        """Return the answer about a fork, from this worker."""
        plan, worker, started = self.plan, self.worker, self.started
        return Forked(
            session_name=worker.name if worker else self.name or plan.name, worker_id=worker.id if worker else "",
            terminal_id=started.terminal_id, resume_session_id=plan.source_session_id,
            new_session_id=self.session_id or plan.new_session_id, command=plan.shell_command(), cwd=str(plan.cwd),
            place=self.place, log=str(started.log) if started.log else None, attach=started.attach,
            warnings=tuple(self.warnings), confirmed=self.confirmed, kind=worker.kind if worker else "fork",
            agent_type=plan.agent, news=self.note,
        )  # fmt: skip

    def as_worker(self) -> StartedWorker:
        """Return the answer about a started worker, from this worker."""
        if self.worker is None:
            raise TypeError("A dry run has no worker")
        command = self.plan.shell_command()
        return StartedWorker.of(self.worker, command, self.warnings, confirmed=self.confirmed, news=self.note)


def undone(undo: Callable[[], object]) -> None:
    """Call `undo`, and only log its errors, so that the user sees the error that came before."""
    try:
        undo()
    except (OSError, SmartForkError, apsw.Error) as error:
        log.warning("something that was made for a worker is left: %s", error)


class Attempt:
    """An attempt to start a worker, as a context manager. Leaving it undoes what was made, unless it `succeeded`."""

    def __init__(self, machine: Machine, registry: Registry) -> None:
        self.machine = machine
        self.registry = registry
        self._made: list[Callable[[], object]] = []
        self._began = self._kept = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for undo in () if self._kept else reversed(self._made):
            undone(undo)

    def otherwise(self, undo: Callable[[], object]) -> None:
        """Register `undo` to be called if the worker does not start."""
        self._made.append(undo)

    def succeeded(self) -> None:
        """Record that the worker runs: what was made for it is kept, also if an error follows."""
        self._began = self._kept = True

    def failed(self) -> None:
        """Record that the started worker ended without doing anything, so that what was made for it is deleted."""
        self._kept = False

    def worktree(
        self, worker: WorkerRecord, repository: Path, name: str | None, *, with_changes: bool = False
    ) -> Worktree:
        """Make a git worktree for the worker, with the uncommitted changes of `repository` if `with_changes`."""
        made = Worktree.create(
            repository, name, self.machine.processes, with_changes=with_changes,
            note=lambda planned: self.registry.set_planned(worker.id, planned.made),
        )  # fmt: skip
        self.otherwise(lambda: self._without(made))
        return made

    def _without(self, made: Worktree) -> None:
        """Remove the worktree `made`; refuse (`ForkRefused`) if an agent ran in it and left unsaved work there."""
        if not self._began:
            made.remove(self.machine.processes)
        elif problem := made.remove_if_saved(self.machine.processes):
            raise ForkRefused(problem)

    def stage(self, plan: ForkPlan, spec: WorkerSpec, worker: WorkerRecord) -> list[str]:
        """Write the files that the plan's command needs, such as a copy of a log. Return notes for the user."""
        delete_leftover_logs()
        source = spec.source if spec.source and spec.source.turns else None
        if plan.staging == "name":
            return self._name(plan, source.source_path if source else None)
        if source is None:
            return []
        if plan.staging == "transcript":
            self._transcript(plan, source.source_path, worker)
        elif plan.staging == "branch" and plan.new_session_id:
            return self._copy(plan, plan.new_session_id, source, spec.content, worker)
        return []

    def _transcript(self, plan: ForkPlan, log: Path, worker: WorkerRecord) -> None:
        storage = AGENTS.storage_of(plan.agent)
        folder = storage.folder(plan.cwd) or log.parent
        session_id, now = plan.source_session_id, self.machine.clock.now()
        target = folder / f"{session_id}{log.suffix}"
        if not target.exists():
            self.registry.set_copying(worker.id, target)
            self.registry.add_staged_copy(target, session_id=session_id, source_path=log, now=now)
            self.otherwise(lambda: self.registry.forget_staged_copy(target))
        self.otherwise(storage.stage(log, session_id, folder).undo)

    def _name(self, plan: ForkPlan, log: Path | None) -> list[str]:
        """Give the session's log a second name (a hard link) where the agent looks for it. Return notes.

        The link is kept if the start fails: the agent may have deleted the first name.
        """
        log = log or READERS.original_of(plan.agent, plan.source_session_id)
        storage = AGENTS.storage_of(plan.agent)
        target = storage.second_path(log, plan.source_session_id, plan.cwd) if log else None
        if not log or not target:
            return []
        if target.parent != log.parent:
            self._make_room(plan, log, target)
            private_dir(target.parent)
            storage.copy_folder_beside(log, target)
            now, session_id = self.machine.clock.now(), plan.source_session_id
            self.registry.add_staged_copy(target, session_id=session_id, source_path=log, now=now)
        storage.add_path(log, target)
        if not target.samefile(log):
            return [f"It continues in a copy of its log, {target}. {log} is not changed"]
        return [f"Its log is also {target} now: two names of one file"] if target.parent != log.parent else []

    def _make_room(self, plan: ForkPlan, log: Path, target: Path) -> None:
        """Delete the log copy that an earlier start made at `target`, if it is only a beginning of `log`."""
        session_id, files = plan.source_session_id, AGENTS.files_of(plan.agent)
        is_ours = (
            self.registry.staged_copies().get(target) == session_id and target.is_file() and not target.samefile(log)
        )
        if is_ours and files.begins_with(log, files.content(target)):
            target.unlink()

    def _copy(
        self, plan: ForkPlan, new_id: str, source: Session, content: ForkContent, worker: WorkerRecord
    ) -> list[str]:
        """Write the fork's content as the new session `new_id`. Return notes for the user.

        The new log of a handover or merge does not name all parents, so smart-fork records them.
        """
        now = datetime.fromtimestamp(self.machine.clock.now())  # noqa: DTZ006 - files may be named by local time
        reader, becomes = READERS[plan.agent], NewSession(new_id, plan.cwd, now, plan.title)
        self.registry.set_copying(worker.id, AGENTS.copier_of(plan.agent).place(source.source_path, becomes))
        if content.handover:
            written = write_handover(reader, content.handover, source, becomes, self.machine)
        else:
            written = write_branch(
                source, becomes, excerpt=content.excerpt, others=content.others, at=plan.at, machine=self.machine
            )
        self.otherwise(written.undo)
        if content.handover or content.others:
            through = content.point.message_id if content.point else ""
            others = [(part.session.agent, part.session.session_id) for part in content.others]
            one = provenance.HandedOver(new_id, plan.agent, source.agent, source.session_id, through)
            provenance.remember_handover(one, others)
            self.otherwise(lambda: provenance.forget_handover(new_id))
        note = (
            f"Forked after {written.at}, where the agent had finished what {plan.at} is part of"
            if plan.at
            else "The unfinished answer is not in the fork"
        )
        moved = written.moved and not (content.excerpt or content.handover)
        return [*written.warnings, *([note] if moved else [])]
