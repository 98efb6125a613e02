"""A fork from the request to a running worker: program, worktree, transcript, plan, place, registry."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Self

import apsw

from indexer.project import project_of, resolve
from indexer.transcripts.agents import adapter as adapter_of
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import Agent, Session
from smart_fork import sessions
from smart_fork.branch import branch_point, message_at, write_branch
from smart_fork.bringing_back import brought_back
from smart_fork.confirmation import CONFIRM_SECONDS, Clock, SystemClock, World, confirm, one_at_a_time
from smart_fork.errors import ForkRefused, NotFound, SmartForkError
from smart_fork.plan import DEPTH, ForkPlan, ForkRequest, environment, plain_name, plan_fork, shell_command
from smart_fork.processes import Processes, SystemProcesses
from smart_fork.programs import find_program, require_fork
from smart_fork.registry import Registry, Worker
from smart_fork.staging import remove, stage_transcript
from smart_fork.workers import choose_place
from smart_fork.workers.base import Place, Started
from smart_fork.worktree import Worktree, create_worktree, plan_worktree, remove_worktree


@dataclass(frozen=True, slots=True)
class ForkSource:
    """The session to fork. `cwd` is where it worked."""

    agent: Agent
    session_id: str
    source_path: Path
    cwd: str


@dataclass(frozen=True, slots=True)
class ForkedSession:
    """A fork that was started (or, of a dry run, would be).

    `session_name` is the worker's name, `resume_session_id` the session that was forked, `new_session_id` the
    fork's own (`None` where the agent had not told it in time), `command` one line for display, `attach` what shows
    the worker.
    """

    session_name: str
    worker_id: str
    terminal_id: str | None
    resume_session_id: str
    new_session_id: str | None
    command: str
    cwd: str
    place: str
    log: str | None = None
    attach: str = ""
    warnings: list[str] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """The fork as JSON values."""
        return asdict(self)


def fork_session(
    reference: str,
    prompt: str | None = None,
    *,
    at: int | None = None,
    through: str | None = None,
    worktree: str | bool | None = None,
    place: str | None = None,
    cwd: str | None = None,
    name: str | None = None,
    dry_run: bool = False,
    caller_session_id: str | None = None,
) -> dict[str, Any]:
    """Fork the session that `reference` means (see `sessions.locate`), from message number `at` on, or from its end.

    With the id of a message in `through`, at the end of what that is part of, which may be the session's end.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    with brought_back(sessions.locate(reference), dry_run=dry_run) as located:
        session = sessions.read(located)
        source = ForkSource(session.agent, session.session_id, session.source_path, session.cwd)
        if through is not None:
            end, note = _end_of(session, through)
        else:
            end = None if at is None else branch_point(session, message_at(session, at))
            note = f"Forked after message {end}, where the agent had finished what message {at} is part of"
        forked = fork(
            source,
            prompt=prompt,
            at=None if end is None else session.turns[end].id,
            worktree=worktree,
            place=place,
            cwd=Path(cwd) if cwd else None,
            name=name,
            dry_run=dry_run,
            caller_session_id=caller_session_id,
        )
        if through is not None or end != at:
            forked.warnings.insert(0, note)
        return forked.as_json()


def _end_of(session: Session, message_id: str) -> tuple[int | None, str]:
    """After which turn what that message is part of ends, `None` for the session's end; and that in words."""
    turn = next((i for i, turn in enumerate(session.turns) if turn.id == message_id), None)
    if turn is None:
        hint = "The session has been rewound since it was searched; search again."
        raise ForkRefused(f"Invalid or inactive branch point: {message_id}", hint)
    end = session.ends()[turn]
    starts = [exchange.start for exchange in session.exchanges()]
    exchange = sum(start <= turn for start in starts)
    where = "at the session's end" if end is None else f"after message {end}"
    return end, f"Forked {where}: exchange {exchange} of {len(starts)} answers best"


def fork(
    source: ForkSource,
    *,
    prompt: str | None = None,
    at: str | None = None,
    worktree: str | bool | None = None,
    place: str | None = None,
    cwd: Path | None = None,
    name: str | None = None,
    dry_run: bool = False,
    caller_session_id: str | None = None,
    with_agent: Agent | None = None,
    processes: Processes | None = None,
    env: Mapping[str, str] | None = None,
    adapter: AgentAdapter | None = None,
    clock: Clock | None = None,
) -> ForkedSession:
    """Fork `source`, up to message `at` where given, and have it work on `prompt`.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    world = World(
        processes or SystemProcesses(),
        os.environ if env is None else env,
        adapter or adapter_of(source.agent),
        clock or SystemClock(),
    )
    chosen = choose_place(place, world.processes, world.env)
    request = ForkRequest(
        agent=source.agent,
        session_id=source.session_id,
        source_path=_source_path(source, world.adapter),
        source_cwd=source.cwd,
        target_cwd=_target(source, cwd),
        program=_program(source.agent, chosen, world, branch=bool(at)),
        new_session_id=str(uuid.uuid4()),
        prompt=prompt,
        headless=chosen.headless,
        name=plain_name(name) or None,
        at=at,
        with_agent=with_agent,
        depth=_depth(world.env, caller_session_id),
    )
    plan_fork(request)  # what is wrong with the request is said before anything is made
    worktree_name = worktree if isinstance(worktree, str) else name
    if dry_run:
        if worktree:
            planned = plan_worktree(request.target_cwd, worktree_name, world.processes)
            request = replace(request, target_cwd=planned.path)
        return _report(plan_fork(request), chosen, warnings=_prepared_first(request, worktree=bool(worktree)))
    with Registry() as registry, _Attempt(world) as attempt:
        if worktree:
            made = attempt.worktree(request.target_cwd, worktree_name)
            request = replace(request, target_cwd=made.path)
        return _start(request, chosen, caller_session_id, attempt, registry)


def _start(
    request: ForkRequest, place: Place, caller_session_id: str | None, attempt: _Attempt, registry: Registry
) -> ForkedSession:
    world = attempt.world
    warnings = attempt.stage(plan_fork(request), request, registry)
    with one_at_a_time(plan_fork(request)):
        began = world.clock.now()
        worker = registry.add(
            request.agent,
            name=request.name or "",
            source_session_id=request.session_id,
            caller_session_id=caller_session_id,
            place=place.name,
            cwd=request.target_cwd,
            prompt=request.prompt or "",
            now=began,
        )
        plan = plan_fork(replace(request, worker_id=worker.id))
        if plan.new_session_id:
            registry.set_session_id(worker.id, plan.new_session_id)
        if place.replaces:
            registry.set_started(worker.id, command=plan.argv, pid=os.getpid())
        try:
            started = place.start(plan, worker, world.processes, environment(plan, world.env))
        except BaseException:
            registry.set_state(worker.id, "failed")
            raise
        attempt.succeeded()
        registry.set_started(
            worker.id,
            command=plan.argv,
            terminal_id=started.terminal_id,
            pid=started.pid,
            log=started.log,
            attach=started.attach,
        )
        seen = confirm(plan, place, started, world, began)
        if seen.session_id and seen.session_id != plan.new_session_id:
            registry.set_session_id(worker.id, seen.session_id)
    if seen.last_words is not None:
        registry.set_state(worker.id, "ended")
    if not seen.found:
        warnings.append(_unconfirmed(plan, started, seen.last_words))
    return _report(plan, place, worker=worker, started=started, new_session_id=seen.session_id, warnings=warnings)


class _Attempt:
    """What has been made for a fork, to be taken away again unless it was started."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._made: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        for undo in reversed(self._made):
            with contextlib.suppress(OSError, SmartForkError, apsw.Error):  # the first error is the one to tell
                undo()

    def succeeded(self) -> None:
        """Keep everything."""
        self._made.clear()

    def worktree(self, repository: Path, name: str | None) -> Worktree:
        """Make a worktree for the fork."""
        made = create_worktree(repository, name, self.world.processes)
        self._made.append(lambda: remove_worktree(made, self.world.processes))
        return made

    def stage(self, plan: ForkPlan, request: ForkRequest, registry: Registry) -> list[str]:
        """Put on disk what the plan needs there. Returns what the person should know about it."""
        now = self.world.clock.now()
        if plan.staging == "transcript":
            staged = stage_transcript(request.source_path, request.session_id, request.target_cwd)
            self._made.append(staged.undo)
            if staged.path in staged.created:
                registry.add_staged_copy(
                    staged.path, session_id=request.session_id, source_path=request.source_path, now=now
                )
                self._made.append(lambda: registry.forget_staged_copy(staged.path))
        elif plan.staging == "branch" and plan.at and plan.new_session_id:
            written = write_branch(
                self.world.adapter,
                request.source_path,
                at=plan.at,
                new_session_id=plan.new_session_id,
                target_cwd=request.target_cwd,
                now=datetime.fromtimestamp(now),  # noqa: DTZ006 - Codex names its files by local time
            )
            self._made.append(lambda: remove(written.path))
            if written.moved:
                return [f"Forked after {written.at}, where the agent had finished what {plan.at} is part of"]
        return []


def _prepared_first(request: ForkRequest, *, worktree: bool) -> list[str]:
    """What a real run makes before its command works: a dry run makes nothing, so its command alone would fail."""
    elsewhere = request.agent == "claude" and project_of(request.target_cwd) != project_of(request.source_cwd)
    needed = {"the worktree": worktree, "a copy up to that message": bool(request.at), "a copy of the log": elsewhere}
    made = " and ".join(what for what, is_needed in needed.items() if is_needed)
    return [f"The command needs {made}, which a real run makes first"] if made else []


def _target(source: ForkSource, cwd: Path | None) -> Path:
    if cwd is None and not source.cwd:
        raise ForkRefused("It is not known where this session worked", "Say where the fork is to work: --cwd DIR.")
    target = resolve(cwd if cwd is not None else source.cwd)
    if not target.is_dir():
        raise NotFound(f"No such directory: {target}", "Say where the fork is to work: --cwd DIR.")
    return target


def _depth(env: Mapping[str, str], caller_session_id: str | None) -> int:
    """How deep we are: from the environment, or, since Codex does not pass that on, from what we know of the caller."""
    text = env.get(DEPTH, "")
    told = int(text) if text.isascii() and text.isdigit() else 0
    if not caller_session_id:
        return told
    with Registry() as registry:
        return max(told, registry.depth(caller_session_id))


def _source_path(source: ForkSource, adapter: AgentAdapter) -> Path:
    """Where the log is now: it may have moved to another folder, or to the archive, since it was read (F-100)."""
    if source.source_path.is_file():
        return source.source_path
    found = adapter.locate(source.session_id)
    if not found:
        raise NotFound(f"The session's log is gone: {source.source_path}", "The agent may have deleted it.")
    return found[0]


def _program(agent: Agent, place: Place, world: World, *, branch: bool) -> str:
    if branch:  # a shortened copy is resumed, which every version can
        return find_program(agent, world.env)
    return require_fork(agent, world.processes, world.env, headless=place.headless)


def _unconfirmed(plan: ForkPlan, started: Started, last_words: str | None) -> str:
    if last_words is not None:
        return f"The worker ended without a session of its own: {last_words or 'it said nothing'}"
    see = f" See: {started.attach}" if started.attach else ""
    return (
        f"{plan.agent} has not written the fork's log in {CONFIRM_SECONDS:g} seconds; it may be asking something.{see}"
    )


def _report(
    plan: ForkPlan,
    place: Place,
    *,
    worker: Worker | None = None,
    started: Started = Started(),  # noqa: B008 - frozen
    new_session_id: str | None = None,
    warnings: list[str] | None = None,
) -> ForkedSession:
    return ForkedSession(
        session_name=worker.name if worker else plan.name,
        worker_id=worker.id if worker else "",
        terminal_id=started.terminal_id,
        resume_session_id=plan.source_session_id,
        new_session_id=new_session_id or plan.new_session_id,
        command=shell_command(plan),
        cwd=str(plan.cwd),
        place=place.name,
        log=str(started.log) if started.log else None,
        attach=started.attach,
        warnings=warnings or [],
    )
