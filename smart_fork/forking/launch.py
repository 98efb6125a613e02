"""Forks of sessions: what a caller asks for, from a reference to a running worker."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.project import project_of, recorded
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName, Session
from smart_fork import sessions
from smart_fork.agents.checkpoints import in_clone
from smart_fork.agents.options import Options
from smart_fork.agents.plan import ForkPlan
from smart_fork.agents.references import names_session
from smart_fork.agents.selection import named
from smart_fork.conversation import resumed_part
from smart_fork.copies.session_copy import Branch, Point, last_point, point_at
from smart_fork.errors import ForkRefused
from smart_fork.foreign_sessions import shared_as
from smart_fork.forking.attempt import undone
from smart_fork.forking.bringing_back import brought_back, is_borrowed
from smart_fork.forking.price import loaded_within, loads_of, price_of
from smart_fork.forking.report import Launched, as_fork
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.spec import WorkerSpec, source_of
from smart_fork.forking.start import Prepared, another_agent, launch, moved, planned_worktree, prepare
from smart_fork.forking.started import Forked
from smart_fork.forking.world import World, world_of
from smart_fork.retrieval.obstacles import Forkable, obstacles
from smart_fork.system.processes import Processes
from smart_fork.whereabouts import where_now

if TYPE_CHECKING:
    from smart_fork.forking.spending import Spending

_NEEDS = "The command needs"
#: The share of a look's time in which a log is read of which passages are chosen.
_CHOOSING = 0.2


def fork_session(request: ForkRequest) -> Forked:
    """Fork one session.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    budget, dry_run = request.budget, request.dry_run
    found = sessions.locate(request.session)
    chooses = budget is not None or request.as_agent is not None  # each passage is looked at
    with bounded(_CHOOSING if chooses else 1.0), brought_back(found, dry_run=dry_run) as located:
        session = in_clone(sessions.read(located), str(found.path))
        check_forkable(session, request.cwd)
        matched = request.through is not None
        point, note = _point_at(session, request.at) if request.through is None else _end_of(session, request.through)
        asked, alone = point, ""
        if point is None:
            point, alone = end_of_whole(session, borrowed=is_borrowed(found))
        spec = WorkerSpec(
            "fork",
            session.agent if request.as_agent is None else named(request.as_agent),
            source_of(session),
            request.options,
            point,
            cwd=Path(request.cwd) if request.cwd else None,
            caller_session_id=request.caller_session_id,
        )
        notes = [*filter(None, (note, sessions.left_out(session)))]
        kept = None
        if budget is not None:
            from smart_fork.forking.spending import within

            budget = replace(budget, known=budget.evidence(session))
            spec, kept = within(spec, session, budget)
            notes += kept.selection.notes
            if not dry_run:
                budget.settle()
        spec = told(spec, session)
        notes += [alone] if alone and not (spec.excerpt or spec.handover) else []
        if budget is not None and spec.handover:
            from smart_fork.forking.handover import beyond

            notes += beyond(spec.handover.handed, budget.wanted)
        forked = fork(spec, dry_run=dry_run)
        selection, loads = kept.selection if kept else None, loads_of(session)
        within_it = loaded_within(session, selection, spec.excerpt.end) if selection and spec.excerpt else None
        elsewhere = forked.cwd != where_now(session.cwd)
        new_from = selection.new_from if selection and not spec.handover else None
        within_it = spec.handover.handed.tokens if spec.handover else within_it
        price = price_of(session, spec.point, within_it, loads, new_from=new_from, elsewhere=elsewhere)
        forked = replace(forked, warnings=(*notes, *forked.warnings), selection=selection, price=price)
        if dry_run:
            shared = shared_as(session.session_id)
            named_as = [shared or session.session_id]
            again = same_command(
                named_as, spec.options, point=point, budget=budget, as_agent=request.as_agent, cwd=request.cwd
            )
            forked = _named_as_shared(forked, session.session_id, shared, again) if shared else done_by(forked, again)
        if not dry_run or spec.handover:
            return forked
        from smart_fork.forking.ways import ways

        return replace(
            forked,
            ways=ways(
                session, asked, budget or request.preview, matched=matched, kept=kept, loads=loads, elsewhere=elsewhere
            ),
        )


@bounded()
def check_startable(
    reference: str, options: Options, *, cwd: str | None, as_agent: AgentName | None = None, dry_run: bool = False
) -> None:
    """Refuse what a fork of a session would be refused for before anything is made: no program, no login, no place.

    Raises:
        SmartForkError: it could not be started.
    """
    with brought_back(sessions.locate(reference), dry_run=True) as located:
        session = sessions.read(located)
        check_forkable(session, cwd)
        agent = session.agent if as_agent is None else named(as_agent)
        checked = replace(options, brief=False)  # git refuses no fork, and is asked for the note when one starts
        spec = WorkerSpec("fork", agent, source_of(session), checked, cwd=Path(cwd) if cwd else None)
        prepare(told(spec, session), world_of(agent), dry_run=dry_run)


def done_by(forked: Forked, command: str) -> Forked:
    """A dry run that says which `command` of ours does what its agent's own cannot do alone."""
    said = (f"{one}: {command}" if one.startswith(_NEEDS) else one for one in forked.warnings)
    return replace(forked, warnings=tuple(said))


def _named_as_shared(forked: Forked, copy: str, shared: str, command: str) -> Forked:
    """A dry run of a team's session, whose copy is not here any more when somebody reads it."""
    note = f"A real run copies the team's session, then runs: {forked.command.replace(copy, '<its id>')}"
    return replace(forked, command=command, resume_session_id=shared, warnings=(*forked.warnings, note))


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


def told(spec: WorkerSpec, session: Session) -> WorkerSpec:
    """The same with what its agent is told of `session`, where that is another agent's.

    Raises:
        Usage: that agent cannot receive sessions of other agents.
        ForkRefused: the log was rewritten meanwhile.
        NotFound: a session that it was forked from is gone.
    """
    if spec.agent == session.agent:
        return spec
    from smart_fork.forking.handover import handover

    end = spec.point.index if spec.point else len(session.turns) - 1
    point = spec.point or Point(end, session.turns[end].id)
    told = handover(session, end, spec.agent, spec.excerpt, unmasked=spec.options.unmasked)
    return replace(spec, point=point, handover=told)


def _point_at(session: Session, at: int | None) -> tuple[Point | None, str]:
    """Where message number `at` is finished; and that in words, where it is another one."""
    if at is None:
        return None, ""
    point = point_at(session, at)
    return point, point.moved_from(at) if point.index != at else ""


def end_of_whole(session: Session, *, borrowed: bool) -> tuple[Point | None, str]:
    """Return where a fork of all of a session ends that is a copy, as it is of one with a gap; and what to say of that.

    Without a point its agent forks it.
    """
    part = resumed_part(session.resumed, session.compacted(), len(session.turns))
    if part is None or part.reason != "gap":
        return last_point(session) if borrowed else None, ""
    alone, end = f"Its agent alone {part.sentence}", len(session.turns) - 1
    if session.unread:
        return None, alone
    return Point(end, session.turns[end].id), f"{alone}. The fork is a copy with everything before that"


def _end_of(session: Session, message_id: str) -> tuple[Point | None, str]:
    """Where what that message is part of ends, `None` for the session's end; and that in words."""
    turn = next((i for i, turn in enumerate(session.turns) if turn.id == message_id), None)
    if turn is None:
        hint = "The session was rewound after the search. Search again."
        raise ForkRefused(f"Invalid or inactive branch point: {message_id}", hint)
    end = session.ends()[turn]
    starts = [exchange.start for exchange in session.exchanges()]
    exchange = sum(start <= turn for start in starts)
    where = "at the session's end" if end is None else f"after message {end}"
    note = f"Forked {where}: exchange {exchange} of {len(starts)} answers best"
    return None if end is None else Point(end, session.turns[end].id), note


def fork(spec: WorkerSpec, world: World | None = None, *, dry_run: bool = False) -> Forked:
    """Fork a session as `spec` says.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    world = world or world_of(spec.agent)
    prepared = prepare(spec, world, dry_run=dry_run)
    forked = as_fork(_planned(prepared, world) if dry_run else launch(prepared, world))
    return replace(forked, handed=spec.handover.handed) if spec.handover else forked


def resume_written(spec: WorkerSpec, written: Branch, processes: Processes | None = None) -> Forked:
    """Run a copy of a session that was `written`; the copy goes where it could not be started.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the copy.
    """
    world = world_of(spec.agent, processes)
    try:
        prepared = prepare(replace(spec, kind="branch", written=written), world)
    except BaseException:
        undone(written.undo)
        raise
    return as_fork(launch(prepared, world))


def _planned(prepared: Prepared, world: World) -> Launched:
    spec, request = prepared.spec, prepared.request
    in_worktree = spec.options.in_worktree
    plan = prepared.plan(planned_worktree(spec.options, request, world) if in_worktree else None)
    warnings = another_agent(spec) + moved(spec, request.target_cwd)
    warnings += _prepared_first(
        plan,
        request.source_cwd,
        worktree=in_worktree,
        distilled=spec.excerpt is not None and not spec.handover,
        handed=spec.handover is not None,
    )
    return Launched(plan, prepared.place.name, warnings=warnings, note=prepared.note)


def _prepared_first(plan: ForkPlan, source_cwd: str, *, worktree: bool, distilled: bool, handed: bool) -> list[str]:
    """What a real run makes before its command works: a dry run makes nothing, so its command alone would fail."""
    branch = plan.staging == "branch"
    worked_in = recorded(source_cwd)
    elsewhere = plan.staging == "transcript" and (worked_in is None or project_of(worked_in) != project_of(plan.cwd))
    needed = {
        "the worktree": worktree,
        "a copy of the handed-over session": branch and handed,
        "a copy of the kept exchanges": branch and distilled,
        "a copy up to that message": branch and bool(plan.at) and not distilled and not handed,
        "a copy of the session": branch and not plan.at and not distilled,
        "a copy of the log": elsewhere,
    }
    made = " and ".join(what for what, is_needed in needed.items() if is_needed)
    return [f"The command needs {made}, which a real run makes first"] if made else []


# Writes the command of ours for a fork, with all that was asked for: a dry run says it where the agent's own fails.


def same_command(
    references: Sequence[str],
    options: Options,
    *,
    point: Point | None = None,
    budget: Spending | None = None,
    as_agent: AgentName | None = None,
    cwd: str | None = None,
) -> str:
    """Return one line that forks these sessions in the same way; several are merged."""
    given: list[tuple[str, object]] = [("--merge", len(references) > 1), ("--at", point and point.index)]
    given += _within(budget, options.prompt or "") if budget else ()
    given += [("--as", as_agent), ("--cwd", cwd), ("--in", options.place), ("--name", options.name)]
    named = isinstance(options.worktree, str)
    given += [
        ("--worktree-name" if named else "--worktree", options.worktree),
        ("--with-changes", options.with_changes),
    ]
    given += [("--no-brief", not options.brief), ("--unmasked", options.unmasked)]
    return shlex.join(("smart-fork", "fork", *references, *_words(given), *_prompt(options.prompt)))


def _within(budget: Spending, prompt: str) -> Iterator[tuple[str, object]]:
    wanted = budget.wanted
    yield "--budget", wanted.budget
    for option, numbers in (("--keep", wanted.keep), ("--drop", wanted.drop)):
        yield option, ",".join(map(str, sorted(numbers))) or None
    yield "--intent", None if budget.intent.strip() == prompt.strip() else budget.intent
    for one in budget.also:
        yield "--also", one


def _words(given: Iterable[tuple[str, object]]) -> Iterator[str]:
    for option, value in given:
        if value is not None and value is not False:
            yield from (option,) if value is True else (option, str(value))


def _prompt(prompt: str | None) -> tuple[str, ...]:
    """The last word; behind ``--`` where it would pass for an option or a session."""
    if not prompt:
        return ()
    return ("--", prompt) if prompt.startswith("-") or names_session(prompt) else (prompt,)
