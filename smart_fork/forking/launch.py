"""Forks of sessions: what a caller asks for, from a reference to a running worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from indexer.project import project_of
from indexer.transcripts.base import AgentAdapter
from indexer.transcripts.model import Agent, Session
from smart_fork import sessions
from smart_fork.agents.plan import ForkRequest, plan_fork
from smart_fork.copies.copying import Branch, branch_point, message_at
from smart_fork.errors import ForkRefused
from smart_fork.forking.attempt import undone
from smart_fork.forking.bringing_back import brought_back
from smart_fork.forking.confirmation import Clock, World, world_of
from smart_fork.forking.report import ForkedSession, Launched, as_fork
from smart_fork.forking.starting import ForkSource, Prepared, Wanted, another_agent, launch, prepare
from smart_fork.processes import Processes, SystemProcesses
from smart_fork.repository.worktree import plan_worktree
from smart_fork.retrieval.obstacles import Forkable, obstacles


def fork_session(
    reference: str,
    prompt: str | None = None,
    *,
    at: int | None = None,
    through: str | None = None,
    worktree: str | bool | None = None,
    with_changes: bool = False,
    place: str | None = None,
    cwd: str | None = None,
    name: str | None = None,
    dry_run: bool = False,
    caller_session_id: str | None = None,
) -> dict[str, Any]:
    """Fork the session that `reference` means (see `sessions.locate`), from message number `at` on, or from its end.

    With the id of a message in `through`, at the end of what that is part of, which may be the session's end. With
    `with_changes` in a worktree that has the uncommitted changes of the directory as well.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    with brought_back(sessions.locate(reference), dry_run=dry_run) as located:
        session = sessions.read(located)
        check_forkable(session, cwd)
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
            with_changes=with_changes,
            place=place,
            cwd=Path(cwd) if cwd else None,
            name=name,
            dry_run=dry_run,
            caller_session_id=caller_session_id,
        )
        if through is not None or end != at:
            forked.warnings.insert(0, note)
        return forked.as_json()


def check_forkable(session: Session, cwd: str | None) -> None:
    """Refuse what results say cannot be forked to work in `cwd`, or where it worked.

    Raises:
        ForkRefused: it cannot.
    """
    asked = any(turn.prompt for turn in session.turns)
    log = str(session.source_path)
    whys = obstacles(Forkable(session.agent, session.session_id, log, session.cwd, session.origin, asked, cwd))
    if whys:
        raise ForkRefused(f"{session.session_id} cannot be forked: {'; '.join(whys)}")


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
    with_changes: bool = False,
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
    world = world_of(source.agent, processes or SystemProcesses(), env, clock, adapter)
    wanted = Wanted(
        "fork",
        source.agent,
        source,
        prompt=prompt,
        at=at,
        worktree=worktree or with_changes,
        with_changes=with_changes,
        place=place,
        cwd=cwd,
        name=name,
        caller_session_id=caller_session_id,
        with_agent=with_agent,
    )
    prepared = prepare(wanted, world, dry_run=dry_run)
    return as_fork(_planned(prepared, world) if dry_run else launch(prepared, world))


def resume_written(
    source: ForkSource,
    written: Branch,
    *,
    prompt: str | None = None,
    place: str | None = None,
    name: str | None = None,
    caller_session_id: str | None = None,
    processes: Processes | None = None,
) -> ForkedSession:
    """Run a copy of `source` that was written; the copy goes where it could not be started.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the copy.
    """
    wanted = Wanted(
        "branch",
        source.agent,
        source,
        prompt=prompt,
        place=place,
        name=name,
        caller_session_id=caller_session_id,
        written=written,
    )
    world = world_of(source.agent, processes)
    try:
        prepared = prepare(wanted, world)
    except BaseException:
        undone(written.undo)
        raise
    return as_fork(launch(prepared, world))


def _planned(prepared: Prepared, world: World) -> Launched:
    wanted, request = prepared.wanted, prepared.request
    if wanted.worktree:
        planned = plan_worktree(
            request.target_cwd, wanted.worktree_name, world.processes, with_changes=wanted.with_changes
        )
        request = replace(request, target_cwd=planned.path)
    warnings = another_agent(wanted) + _prepared_first(request, worktree=bool(wanted.worktree))
    return Launched(plan_fork(request), prepared.place.name, warnings=warnings)


def _prepared_first(request: ForkRequest, *, worktree: bool) -> list[str]:
    """What a real run makes before its command works: a dry run makes nothing, so its command alone would fail."""
    elsewhere = request.agent == "claude" and project_of(request.target_cwd) != project_of(request.source_cwd)
    needed = {"the worktree": worktree, "a copy up to that message": bool(request.at), "a copy of the log": elsewhere}
    made = " and ".join(what for what, is_needed in needed.items() if is_needed)
    return [f"The command needs {made}, which a real run makes first"] if made else []
