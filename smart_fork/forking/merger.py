"""Several sessions into one fork: of each what answers, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from indexer.transcripts.model import AgentName, Session
from smart_fork import sessions
from smart_fork.agents.copier import Excerpt
from smart_fork.agents.facets import teller_of
from smart_fork.agents.selection import named
from smart_fork.budget.costs import costs
from smart_fork.budget.wanted import MATCH
from smart_fork.budget.within import Selected
from smart_fork.copies.session_copy import Point, last_branch_point
from smart_fork.copies.told import Part, beginning_with, whence, without_shared
from smart_fork.errors import Usage, advice
from smart_fork.foreign_sessions import shared_as
from smart_fork.forking.bringing_back import brought_back
from smart_fork.forking.handover import beyond, handover, joined, notes
from smart_fork.forking.launch import check_forkable, done_by, fork, same_command
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.spec import WorkerSpec, source_of
from smart_fork.forking.spending import Spending, chosen
from smart_fork.forking.started import Forked

#: So many sessions go into one.
MOST = 8


def fork_merged(request: ForkRequest) -> Forked:
    """One fork of a session, with what answers in it, and then in each of those that are merged.

    They share the budget: what one does not need the others may. What several have from the same beginning is there
    once. Of another agent's session what was said and done is told; with `as_agent`, that one is told of all of them.

    Raises:
        SmartForkError: nothing was started, and nothing is left of the attempt.
    """
    references = [one for one in (request.session, *request.merge) if one]
    spending, dry_run = request.budget, request.dry_run
    if spending is None:
        raise TypeError("sessions are merged within a budget")
    if not 2 <= len(references) <= MOST:
        raise Usage(
            f"Between 2 and {MOST} sessions can be merged, not {len(references)}",
            advice("Name several, or fork the one without --merge.", tool="Give several, or fork the one alone."),
        )
    if spending.wanted.changed():
        raise Usage("keep and drop work with one session only", "Fork it alone, or merge without them.")
    with ExitStack() as stack:
        located = [stack.enter_context(brought_back(sessions.locate(one), dry_run=dry_run)) for one in references]
        read = [sessions.read(one) for one in located]
        agent = read[0].agent if request.as_agent is None else named(request.as_agent)
        _check(read, agent)
        check_forkable(read[0], request.cwd)
        found = _selected(read, spending)
        if not dry_run:
            spending.settle()
        unmasked = request.options.unmasked
        first, *others = [
            Part(session, _excerpt(session, one), unmasked) for session, one in zip(read, found, strict=True)
        ]
        told = [
            replace(part, excerpt=beginning_with(f"What follows is from {whence(part.session)}.", part.excerpt))
            for part in (first, *others)
        ]
        parts = [told[0], *(without_shared(part, read[: n + 1]) for n, part in enumerate(told[1:]))]
        left = tuple(part for part in parts[1:] if part.excerpt.kept)
        last = max(parts[0].excerpt.kept)
        spec = WorkerSpec(
            "fork",
            read[0].agent,
            source_of(read[0]),
            request.options,
            Point(last, read[0].turns[last].id),
            cwd=Path(request.cwd) if request.cwd else None,
            caller_session_id=request.caller_session_id,
            excerpt=parts[0].excerpt,
            others=left,
        )
        unheaded = [without_shared(part, read[:n]) for n, part in enumerate((first, *others))]
        each = [
            handover(one.session, one.excerpt.end, agent, one.excerpt, unmasked=unmasked)
            for one in unheaded
            if one.excerpt.kept and not agent == read[0].agent == one.session.agent
        ]
        if agent != read[0].agent:
            spec = replace(spec, agent=agent, handover=joined(each))
        forked = fork(spec, dry_run=dry_run)
        if dry_run:
            whose = [shared_as(one.session_id) or one.session_id for one in read]
            again = same_command(whose, request.options, budget=spending, as_agent=request.as_agent, cwd=request.cwd)
            forked = done_by(forked, again)
        said = [note for one in found for note in one.selection.notes]
        said += beyond(spec.handover.handed, spending.wanted) if spec.handover else []
        said += [] if spec.handover else [note for one in each for note in notes(one.handed, agent)]
        selections = [one.selection for one in found]
        return replace(
            forked, warnings=(*said, *forked.warnings), selection=selections[0], merged=tuple(selections[1:])
        )


def _check(read: Sequence[Session], agent: AgentName) -> None:
    ids = [session.session_id for session in read]
    if len(set(ids)) < len(ids):
        raise Usage("A session cannot be merged with itself", "Name each session once.")
    if any(session.agent != agent for session in read):
        teller_of(agent)


def _selected(read: Sequence[Session], spending: Spending) -> list[Selected]:
    """What is kept of each; the smallest first, so that what it leaves is the others'."""
    found: dict[int, Selected] = {}
    left = spending.wanted.budget
    order = sorted(range(len(read)), key=lambda place: sum(turn.token_est for turn in read[place].turns))
    for done, place in enumerate(order):
        share = left if left == MATCH else max(1, int(left) // (len(read) - done))
        wanted = replace(spending.wanted, budget=share)
        one = chosen(read[place], last_branch_point(read[place]), replace(spending, wanted=wanted))
        found[place] = one
        if left != MATCH:
            left = max(0, int(left) - one.selection.tokens)
    return [found[place] for place in range(len(read))]


def _excerpt(session: Session, one: Selected) -> Excerpt:
    """What is kept of a session, also where that is all of it."""
    if one.excerpt is not None:
        return one.excerpt
    end = last_branch_point(session)
    return Excerpt(frozenset(range(end + 1)), end, {}, costs(session).turns)
