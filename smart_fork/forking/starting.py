"""From what is wanted to a running worker: checked first, then program, worktree, transcript, place and registry."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import apsw

from indexer.project import resolve
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import Agent
from smart_fork import permission
from smart_fork.advice import advice
from smart_fork.agents import AGENTS
from smart_fork.agents.logs import original_of
from smart_fork.agents.plan import DEPTH, ForkPlan, ForkRequest, Form, environment, passable, plain_name, plan_fork
from smart_fork.agents.programs import find_program, require_fork
from smart_fork.agents.staging import folder_of
from smart_fork.agents.titles import title_of
from smart_fork.caller import calling_agent
from smart_fork.copies.copying import Branch
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage
from smart_fork.forking.admission import admission
from smart_fork.forking.attempt import Attempt
from smart_fork.forking.confirmation import CONFIRM_SECONDS, Confirmation, World, confirm, one_at_a_time, world_of
from smart_fork.forking.provisions import Provisions, provisions
from smart_fork.forking.report import Launched, StartedWorker, as_worker, ended_at_once, remark
from smart_fork.places import choose_place
from smart_fork.places.base import Place, Started, note_started
from smart_fork.registry import UNASKED, Kind, Registry, Worker
from smart_fork.repository.worktree import Worktree, left_unfiltered, plan_worktree

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ForkSource:
    """The session to fork or to go on with. `cwd` is where it worked; without a path only the agent can find it."""

    agent: Agent
    session_id: str
    source_path: Path | None
    cwd: str


@dataclass(frozen=True, slots=True)
class Wanted:
    """A worker that is to be started; `source` is `None` for a new session.

    `at` is the id of the last message to keep. `worktree` is one's name, or true; with `or_without` the worker starts
    also where none can be made, and `with_changes` it has the uncommitted changes of the directory. `with_agent` is
    what the source is to be run with. `written` is a copy of the source that is there already.
    """

    kind: Kind
    agent: Agent
    source: ForkSource | None = None
    prompt: str | None = None
    at: str | None = None
    worktree: str | bool | None = None
    or_without: bool = False
    with_changes: bool = False
    place: str | None = None
    cwd: Path | None = None
    name: str | None = None
    skip_permissions: bool = False
    caller_session_id: str | None = None
    with_agent: Agent | None = None
    written: Branch | None = None

    @property
    def form(self) -> Form:
        """Which of the agent's commands that is."""
        match self.kind:
            case "continue":
                return "resume"
            case "branch":
                return "fork"
            case kind:
                return kind

    @property
    def worktree_name(self) -> str | None:
        """What a worktree would be named after."""
        return self.worktree if isinstance(self.worktree, str) else self.name


@dataclass(frozen=True, slots=True)
class Prepared:
    """A worker that could be started; nothing has been made for it yet."""

    wanted: Wanted
    request: ForkRequest
    place: Place
    provisions: Provisions = field(default_factory=Provisions)


def prepare(wanted: Wanted, world: World, *, dry_run: bool = False) -> Prepared:
    """Check all that can be checked before anything is made; for a `dry_run` not whether its agent is logged in.

    Raises:
        SmartForkError: it could not be started.
    """
    place = choose_place(wanted.place, world.processes, world.env)
    source, written = wanted.source, wanted.written
    request = ForkRequest(
        agent=wanted.agent,
        session_id=source.session_id if source else "",
        source_path=_source_path(source, world.adapter) if source else None,
        source_cwd=source.cwd if source else "",
        target_cwd=_target(wanted),
        program=_program(wanted, place, world),
        new_session_id=written.session_id if written else str(uuid.uuid4()),
        prompt=wanted.prompt,
        headless=place.headless,
        name=plain_name(wanted.name) or None,
        at=written.at if written else wanted.at,
        with_agent=wanted.with_agent,
        depth=_depth(world.env, wanted.caller_session_id),
        form=wanted.form,
        skip_permissions=wanted.skip_permissions,
    )
    plan_fork(request)
    admission(request, world, counts=not place.replaces)  # whether the limit is a number; it is asked at the start
    if wanted.form == "resume":
        _check_resumable(wanted, request)
    if wanted.worktree and not wanted.or_without:
        plan_worktree(request.target_cwd, wanted.worktree_name, world.processes, with_changes=wanted.with_changes)
    given = Provisions() if dry_run else provisions(wanted.agent, request.program, place, world.processes, world.env)
    return Prepared(wanted, request, place, given)


def launch(prepared: Prepared, world: World, *, patience: float = CONFIRM_SECONDS) -> Launched:
    """Start it, and wait up to `patience` seconds until it is seen to take its prompt.

    Raises:
        SmartForkError: it was not started, or ended before it had taken its prompt; nothing is left of the attempt but
            a note in the registry and what it said.
    """
    wanted, place = prepared.wanted, prepared.place
    with Registry() as registry, Attempt(world, registry) as attempt:
        if wanted.written:
            attempt.otherwise(wanted.written.undo)
        worker = _registered(prepared, world, attempt)
        made, warnings = _worktree(prepared, attempt)
        warnings += [*another_agent(wanted), *prepared.provisions.notes]
        request = replace(
            prepared.request, worker_id=worker.id, target_cwd=made.path if made else prepared.request.target_cwd
        )
        plan = plan_fork(request)
        if not wanted.written:
            warnings += attempt.stage(plan, request)
        with one_at_a_time(plan):
            began = world.clock.now()
            worker = registry.set_ready(
                worker.id,
                cwd=request.target_cwd,
                worktree=made.path if made else None,
                branch=made.branch if made else None,
                base_commit=made.base if made else None,
                now=began,
            )
            if plan.new_session_id and wanted.form != "resume":
                registry.set_session_id(worker.id, plan.new_session_id)
            _give_back(attempt, plan, worker)
            if place.replaces:  # nothing of ours is left to say so afterwards
                _note_running(registry, worker, plan, Started(pid=os.getpid()))
            started = place.start(plan, worker, world.processes, environment(plan, _given(prepared, world)))
            attempt.succeeded()  # the first step that cannot be taken back (B-065)
            launched = Launched(plan, place.name, worker, started, plan.new_session_id, warnings)
            look = partial(confirm, plan, place, started, world, began, patience=patience)
            launched, ended = _noted(registry, worker, launched, look)
            if ended:
                attempt.failed()
                raise ended_at_once(plan, started, ended)
            return launched


def start(wanted: Wanted, world: World | None = None) -> StartedWorker:
    """Check what is wanted and start it.

    Raises:
        SmartForkError: it was not started.
    """
    world = world or world_of(wanted.agent)
    return as_worker(launch(prepare(wanted, world), world))


def another_agent(wanted: Wanted) -> list[str]:
    """What to say where another agent than the one that asks takes up a session of its own."""
    asks = calling_agent()
    if asks in (None, wanted.agent) or wanted.source is None:
        return []
    theirs, own = title_of(wanted.agent), title_of(str(asks))
    return [f"This starts {theirs}, not {own}: the session is one of {theirs}"]


def agent_named(name: str) -> Agent:
    """The agent of that name.

    Raises:
        SmartForkError: there is none (R-060).
    """
    agent = next((agent.name for agent in AGENTS if agent.name == name), None)
    if agent is None:
        raise SmartForkError(
            f"Unknown adapter: {plain_name(name)}", f"Adapters are: {', '.join(agent.name for agent in AGENTS)}."
        )
    return agent


def _given(prepared: Prepared, world: World) -> dict[str, str]:
    return {**world.env, **prepared.provisions.variables}


def _registered(prepared: Prepared, world: World, attempt: Attempt) -> Worker:
    """Its row, which takes its place among those that may run before anything is made."""
    wanted, request = prepared.wanted, prepared.request
    worker = attempt.registry.add(
        request.agent,
        name=request.name or "",
        source_session_id=request.session_id,
        caller_session_id=wanted.caller_session_id,
        place=prepared.place.name,
        cwd=request.target_cwd,
        prompt=passable(request.prompt or ""),
        kind=wanted.kind,
        depth=request.depth + 1,
        permission_mode=UNASKED if request.skip_permissions else "",
        now=world.clock.now(),
        admit=admission(request, world, counts=not prepared.place.replaces),
    )
    attempt.otherwise(lambda: attempt.registry.set_state(worker.id, "failed"))
    return worker


def _worktree(prepared: Prepared, attempt: Attempt) -> tuple[Worktree | None, list[str]]:
    wanted = prepared.wanted
    if not wanted.worktree:
        return None, []
    try:
        made = attempt.worktree(prepared.request.target_cwd, wanted.worktree_name, with_changes=wanted.with_changes)
    except SmartForkError as error:
        if not wanted.or_without:
            raise
        return None, [f"It works in the directory itself: {error.message}"]
    note = left_unfiltered(made, attempt.world.processes)
    return made, [note] if note else []


def _note_running(registry: Registry, worker: Worker, plan: ForkPlan, started: Started) -> None:
    note_started(registry, worker.id, plan.argv, started)
    if plan.new_session_id:  # a session that is gone on with was the one of an earlier worker's until now
        registry.set_session_id(worker.id, plan.new_session_id)


def _give_back(attempt: Attempt, plan: ForkPlan, worker: Worker) -> None:
    """A session that is gone on with stays its earlier worker's where nothing comes of this one."""
    owner = attempt.registry.of_session(plan.new_session_id) if plan.new_session_id else None
    if owner and owner.id != worker.id and owner.session_id and owner.session_id == plan.new_session_id:
        attempt.otherwise(partial(attempt.registry.set_session_id, owner.id, owner.session_id))


def _noted(
    registry: Registry, worker: Worker, launched: Launched, look: Callable[[], Confirmation]
) -> tuple[Launched, Confirmation | None]:
    """What is seen of it, written down; and how it ended, if that was before it had taken its prompt.

    It was started: nothing that fails now takes it back (B-055).
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
        launched.warnings.append(f"It was started, but that could not be noted: {error}")
        return launched, None


def _target(wanted: Wanted) -> Path:
    cwd: Path | str | None = wanted.cwd
    if cwd is None and wanted.source is not None:
        if not wanted.source.cwd:
            raise ForkRefused(
                "It is not known where this session worked",
                advice(
                    "Say where the fork is to work: --cwd DIR.",
                    tool="Say where the fork is to work: project_path.",
                ),
            )
        cwd = wanted.source.cwd
    return directory(cwd if cwd is not None else Path.cwd())


def directory(path: str | Path) -> Path:
    """An existing directory, resolved.

    Raises:
        NotFound: there is none of that name.
    """
    hint = "Say where it is to work: an existing directory."
    permission.require(str(path), plain_name(str(path)))
    try:
        target = resolve(path)
        there = target.is_dir()
    except (OSError, ValueError) as error:  # too long, a NUL
        raise NotFound(f"No such directory: {plain_name(str(path))}", hint) from error
    if not there:
        raise NotFound(f"No such directory: {plain_name(str(target))}", hint)
    return target


def _check_resumable(wanted: Wanted, request: ForkRequest) -> None:
    """A session goes on where it worked, and as itself (R-066)."""
    if wanted.worktree or wanted.at:
        raise Usage("Only a fork can have a worktree or begin at an earlier message", "Fork the session instead.")
    if wanted.agent == "claude" and request.source_path and request.source_path.parent != folder_of(request.target_cwd):
        raise ForkRefused(
            f"Claude Code cannot find this session in {request.target_cwd}",
            advice(
                f"Fork it instead: smart-fork fork {request.session_id}",
                tool="Fork it instead: fork_from.",
            ),
        )


def _depth(env: Mapping[str, str], caller_session_id: str | None) -> int:
    """How deep we are: from the environment, or, since Codex does not pass that on, from what we know of the caller."""
    text = env.get(DEPTH, "")
    told = int(text) if text.isascii() and text.isdigit() else 0
    if not caller_session_id:
        return told
    with Registry() as registry:
        return max(told, registry.depth(caller_session_id))


def _source_path(source: ForkSource, adapter: AgentAdapter) -> Path | None:
    """Where the log is now: it may have moved to another folder, or to the archive, since it was read (F-100)."""
    if source.source_path is None or source.source_path.is_file():
        return source.source_path
    found = original_of(adapter, source.session_id)
    if found is None:
        raise NotFound(f"The session's log is gone: {source.source_path}", "The agent may have deleted it.")
    return found


def _program(wanted: Wanted, place: Place, world: World) -> str:
    if wanted.form != "fork" or wanted.at or wanted.written:  # a shortened copy is resumed, which every version can
        return find_program(wanted.agent, world.env)
    return require_fork(wanted.agent, world.processes, world.env, headless=place.headless)
