"""From what is wanted to a running worker: checked first, then program, worktree, transcript, place and registry."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import field, replace
from functools import partial
from pathlib import Path

import apsw

from indexer.lazy import dataclass
from indexer.project import resolve
from indexer.settings import DEPTH
from indexer.transcripts.base import is_there
from indexer.transcripts.model import Session
from smart_fork import session_origins
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.programs import Program
from smart_fork.agents.starter import ForkPlan, LaunchRequest
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage, advice
from smart_fork.finding.session_place import unplaced, where_now
from smart_fork.forking.attempt import Attempt, undone
from smart_fork.forking.confirmation import CONFIRM_SECONDS, Confirmation, confirm, one_at_a_time
from smart_fork.forking.occupation import admission
from smart_fork.forking.provisions import Provisions, provisions
from smart_fork.forking.restored_logs import is_others
from smart_fork.forking.results import Forked, StartedWorker
from smart_fork.forking.worker import (
    Launched,
    WorkerSpec,
    another_agent,
    as_fork,
    as_worker,
    elsewhere,
    ended_at_once,
    made_first,
    moved,
    preceded,
    remark,
)
from smart_fork.repository.worktree import Worktree, empty_submodules
from smart_fork.snippets import plain_name
from smart_fork.system import call_context
from smart_fork.system.call_context import refuse_cancelled
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.observation import undo_cut_off
from smart_fork.workers.place import Started, WorkerPlace
from smart_fork.workers.places import choose_place
from smart_fork.workers.registry import Registry, WorkerRecord

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A worker that could be started; nothing has been made for it yet."""

    spec: WorkerSpec
    machine: Machine
    request: LaunchRequest
    place: WorkerPlace
    provisions: Provisions = field(default_factory=Provisions)
    #: What has changed since the session that is forked: it stands before the prompt, if there is one.
    note: str = ""
    #: Where its worktree would be, if it must have one.
    worktree: Path | None = None

    @property
    def cwd(self) -> Path:
        """The directory that it works in, as far as that is known before the start."""
        return self.worktree or self.request.target_cwd

    def plan(self, cwd: Path | None = None, worker_id: str = "") -> ForkPlan:
        """The command of that worker, which works in `cwd` where it has a directory of its own.

        Raises:
            Usage: an id, the prompt or the depth is not acceptable.
            ForkRefused: another agent's session, or workers of workers of workers.
        """
        request = replace(self.request, worker_id=worker_id, target_cwd=cwd or self.request.target_cwd)
        with _home_of(self.spec):
            return ForkPlan.of(request)

    def launch(self, *, patience: float = CONFIRM_SECONDS) -> Launched:
        """Start it, and wait up to `patience` seconds until it is seen to take its prompt.

        Raises:
            SmartForkError: it was not started, or ended before it had taken its prompt; nothing is left of the attempt
                but a note in the registry and what it said.
        """
        spec, place, machine = self.spec, self.place, self.machine
        with _home_of(spec), Registry() as registry, Attempt(machine, registry) as attempt:
            undo_cut_off(registry, machine)
            if spec.written:
                attempt.otherwise(spec.written.undo)
            worker = _registered(self, attempt)
            made, warnings = _worktree(self, worker, attempt)
            warnings += [*elsewhere(spec, place), *another_agent(spec), *moved(spec, self.request.target_cwd)]
            warnings += spec.unloaded()
            warnings += self.provisions.notes
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
                    _note_running(registry, worker, plan, Started(pid=Processes.own_pid()))
                environment = self.provisions.environment(plan, machine.env)
                started = place.start(plan, worker, machine.processes, environment)
                attempt.succeeded()  # the first step that cannot be taken back
                plan = replace(plan, new_session_id=started.session_id or plan.new_session_id)
                Program.keep()
                launched = Launched(plan, place.name, worker, started, plan.new_session_id, warnings, note=self.note)
                look = partial(confirm, plan, place, started, machine, began, patience=patience)
                launched, ended = _noted(registry, worker, launched, look)
                if ended:
                    attempt.failed()
                    if place.screen(started, machine.processes, machine.env) is None:
                        started = replace(started, attach="")  # there is nothing left to look at
                    raise ended_at_once(plan, started, ended)
                return launched

    def preview(self) -> Launched:
        """Return what a start would do."""
        plan = self.plan(self.cwd)
        warnings = [*elsewhere(self.spec, self.place), *another_agent(self.spec)]
        warnings += moved(self.spec, self.request.target_cwd)
        warnings += made_first(self.spec, plan, in_worktree=self.worktree is not None)
        if self.worktree:
            warnings += filter(None, [empty_submodules(self.request.target_cwd, self.machine.processes)])
        return Launched(plan, self.place.name, warnings=warnings, note=self.note, name=self.spec.called)

    def drop(self) -> None:
        """Start nothing: nothing was made for it."""


def prepare(spec: WorkerSpec, machine: Machine | None = None, *, dry_run: bool = False) -> Prepared:
    """Check all that can be checked before anything is made; for a `dry_run` not whether its agent is logged in.

    Raises:
        SmartForkError: it could not be started.
    """
    spec = replace(spec, source=spec.source and _with_log(spec.source))
    with _home_of(spec):
        return _prepared(spec, machine or Machine(), dry_run=dry_run)


def _home_of(spec: WorkerSpec) -> AbstractContextManager[None]:
    """Use the agent's folder in which the session is: a person may have several accounts."""
    own = spec.source if spec.source and spec.source.turns and not spec.content.handover else None
    return AGENTS[spec.agent].home.used(own.source_path if own else None)


def _prepared(spec: WorkerSpec, machine: Machine, *, dry_run: bool) -> Prepared:
    _check_told(spec)
    Usage.refuse_empty({"worktree": spec.options.worktree, "name": spec.options.name})
    place = choose_place(spec.options.place, machine.processes, machine.env)
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
    _check_asks(request)
    for one in () if dry_run else known:
        session_origins.refuse_pending_withdrawal(one.session_id)
    prepared = Prepared(spec, machine, request, place, note=note)
    _check_delivery(prepared.plan(), place)
    admission(request, machine, counts=not place.replaces)  # whether the limit is a number; it is asked at the start
    if spec.form == "resume":
        _check_resumable(spec, request)
    worktree = None
    if spec.options.in_worktree and not spec.or_without:
        options = spec.options
        planned = Worktree.plan(target, spec.worktree_name, machine.processes, with_changes=options.with_changes)
        worktree = planned.path
    given = Provisions() if dry_run else provisions(spec.agent, request.program, place, machine.processes, machine.env)
    return replace(prepared, provisions=given, worktree=worktree)


def start(spec: WorkerSpec, machine: Machine | None = None) -> StartedWorker:
    """Check what is wanted and start it.

    Raises:
        SmartForkError: it was not started.
    """
    return as_worker(prepare(spec, machine).launch())


def _registered(prepared: Prepared, attempt: Attempt) -> WorkerRecord:
    """Its row, which takes its place among those that may run before anything is made."""
    spec, request, machine = prepared.spec, prepared.request, prepared.machine
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
        permission_mode=WorkerRecord.UNASKED
        if request.skip_permissions
        else WorkerRecord.ASKED
        if request.of_others
        else "",
        maker=os.getpid(),
        now=machine.clock.now(),
        admit=admission(request, machine, counts=not prepared.place.replaces),
    )
    attempt.otherwise(lambda: attempt.registry.set_state(worker.id, "failed"))
    return worker


def _worktree(prepared: Prepared, worker: WorkerRecord, attempt: Attempt) -> tuple[Worktree | None, list[str]]:
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
    return made, [*filter(None, (made.left_unfiltered(processes), empty_submodules(target, processes)))]


def _note_running(registry: Registry, worker: WorkerRecord, plan: ForkPlan, started: Started) -> None:
    started.note(registry, worker.id, plan.argv)
    if plan.new_session_id:  # a session that is gone on with was the one of an earlier worker's until now
        registry.set_session_id(worker.id, plan.new_session_id)


def _give_back(attempt: Attempt, plan: ForkPlan, worker: WorkerRecord) -> None:
    """A session that is gone on with stays its earlier worker's where nothing comes of this one."""
    owner = attempt.registry.of_session(plan.new_session_id) if plan.new_session_id else None
    if owner and owner.id != worker.id and owner.session_id and owner.session_id == plan.new_session_id:
        attempt.otherwise(partial(attempt.registry.set_session_id, owner.id, owner.session_id))


def _noted(
    registry: Registry, worker: WorkerRecord, launched: Launched, look: Callable[[], Confirmation]
) -> tuple[Launched, Confirmation | None]:
    """Record what is seen of a worker, and its end if that came before it took its prompt.

    It was started: nothing that fails now takes it back.
    """
    plan, started = launched.plan, launched.started
    try:
        _note_running(registry, worker, plan, started)
        seen = look()
        if seen.session_id and seen.session_id != plan.new_session_id:
            registry.set_session_id(worker.id, seen.session_id)
        if seen.last_words is not None:
            registry.set_state(worker.id, "ended")
        if note := remark(plan, started, seen):
            launched.warnings.append(note)
        known = registry.get(worker.id)
        ended = seen if seen.last_words is not None and not seen.taken else None
        return replace(launched, worker=known, session_id=seen.session_id, confirmed=seen.taken), ended
    except (OSError, SmartForkError, apsw.Error) as error:
        log.warning("%s was started, but that could not be noted: %s", worker.id, error)
        launched.warnings.append(f"It was started, but the register of workers failed: {error}")
        return launched, None


def place_of_work(worked_in: str, cwd: str | Path | None = None) -> Path:
    """Return `cwd`, or where the work goes on of a session that worked in the directory `worked_in`.

    Raises:
        ForkRefused: nobody knows.
        NotFound: there is no such directory, and no repository that it was in.
    """
    hint = advice("Give a directory: --cwd DIR.", tool="Give a directory: project_path, or cwd of a branch.")
    if cwd is not None:
        return directory(cwd)
    if why := unplaced(worked_in):
        raise ForkRefused(f"No directory to work in: {why}", hint)
    return directory(where_now(worked_in), hint)


def directory(path: str | Path, hint: str = "Give an existing directory.") -> Path:
    """An existing directory, resolved.

    Raises:
        NotFound: there is none of that name.
    """
    call_context.require(str(path), plain_name(str(path)))
    try:
        target = resolve(path)
        there = target.is_dir()
    except (OSError, ValueError) as error:  # too long, a NUL
        raise NotFound(f"No such directory: {plain_name(str(path))}", hint) from error
    if not there:
        raise NotFound(f"No such directory: {plain_name(str(target))}", hint)
    return target


def _check_told(spec: WorkerSpec) -> None:
    """No agent reads another one's log: it is told of it."""
    source = spec.source
    if source is not None and source.agent != spec.agent and not (spec.content.handover or spec.written):
        raise ForkRefused(
            f"A session of {AGENTS.title_of(source.agent)} cannot be forked with {AGENTS.title_of(spec.agent)}",
            advice(
                f"Hand it over: smart-fork fork {source.session_id} --as {spec.agent}",
                tool=f"Hand it over: as_agent '{spec.agent}', or agent_type beside fork_from.",
            ),
        )


def _check_asks(request: LaunchRequest) -> None:
    """Require confirmations for a session of someone else: its author could have planted instructions."""
    if request.of_others and request.skip_permissions:
        raise ForkRefused(
            f"{request.session_id} continues a teammate's session: its agent asks before it acts",
            advice(
                "Drop --skip-permissions. Its window can change the permissions.",
                tool="Drop skip_permissions. The user can change the permissions in its window.",
            ),
        )


def _check_resumable(spec: WorkerSpec, request: LaunchRequest) -> None:
    """A session goes on where it worked, and as itself."""
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


def _check_delivery(plan: ForkPlan, place: WorkerPlace) -> None:
    """Check that the place can deliver the prompt to the agent."""
    if plan.prompt and plan.delivery not in place.delivers:
        hint = advice(
            "Run it in tmux: --in tmux. Or start without a prompt, and type it.", tool="Run it in tmux: run_in."
        )
        how = {"typed": "typed", "input": "on its standard input", "argument": "as an argument"}[plan.delivery]
        raise ForkRefused(
            f"{AGENTS.title_of(plan.agent)} takes this prompt only {how}, and that cannot be done in {place.name}", hint
        )


def _depth(env: Mapping[str, str], caller_session_id: str | None) -> int:
    """Return the nesting depth, from the environment or from the caller's record, since Codex does not pass the
    variable on.
    """
    text = env.get(DEPTH, "")
    told = int(text) if text.isascii() and text.isdigit() else 0
    if not caller_session_id:
        return told
    with Registry() as registry:
        return max(told, registry.depth(caller_session_id))


def _with_log(session: Session) -> Session:
    """A session with its log where it is now: it may have moved to another folder, or to the archive, meanwhile."""
    if not session.turns or is_there(str(session.source_path)):
        return session
    found = READERS.original_of(session.agent, session.session_id)
    if found is None:
        raise NotFound(f"The session's log is gone: {session.source_path}", "The agent may have deleted it.")
    return replace(session, source_path=found)


def _program(spec: WorkerSpec, place: WorkerPlace, machine: Machine) -> str:
    if (
        spec.form != "fork" or spec.content.point or spec.written
    ):  # a shortened copy is resumed, which every version can
        return Program.find(spec.agent, machine.env)
    return Program.require(spec.agent, machine.processes, machine.env, headless=place.headless)


def resume_written(spec: WorkerSpec, machine: Machine | None = None) -> Forked:
    """Run a copy of a session that was written; the copy goes where it could not be started.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the copy.
    """
    try:
        prepared = prepare(spec, machine)
    except BaseException:
        if spec.written:
            undone(spec.written.undo)
        raise
    return as_fork(prepared.launch())
