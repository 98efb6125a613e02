"""Several sessions into one fork: of each what answers, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.copier import Excerpt
from smart_fork.agents.facets import teller_of
from smart_fork.budget.costs import costs
from smart_fork.budget.wanted import MATCH, Wanted
from smart_fork.budget.within import Selected
from smart_fork.copies.session_copy import last_branch_point
from smart_fork.copies.told import Part, beginning_with, whence, without_shared
from smart_fork.errors import Usage
from smart_fork.forking.budget import Answers, chosen, point_of
from smart_fork.forking.handover import beyond, handover, joined, notes
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.spec import Content


def merged(
    request: ForkRequest, read: Sequence[Session], wanted: Wanted, agent: AgentName, answers: Answers | None
) -> Content:
    """Return what answers in a session, and then in each of those that are merged.

    They share the budget `wanted`: what one does not need the others may. What several have from the same beginning is
    there once. Of another agent's session what was said and done is told; `agent`, if it is another one than the first
    session's, is told of all of them.

    Raises:
        SmartForkError: they cannot be merged.
    """
    _check(read, agent)
    found = _selected(read, wanted, answers)
    unmasked = request.options.unmasked
    first, *others = [Part(session, _excerpt(session, one), unmasked) for session, one in zip(read, found, strict=True)]
    told = [
        replace(part, excerpt=beginning_with(f"What follows is from {whence(part.session)}.", part.excerpt))
        for part in (first, *others)
    ]
    parts = [told[0], *(without_shared(part, read[: n + 1]) for n, part in enumerate(told[1:]))]
    unheaded = [without_shared(part, read[:n]) for n, part in enumerate((first, *others))]
    each = [
        handover(one.session, one.excerpt.end, agent, one.excerpt, unmasked=unmasked)
        for one in unheaded
        if one.excerpt.kept and not agent == read[0].agent == one.session.agent
    ]
    handed = joined(each) if agent != read[0].agent else None
    said = [note for one in found for note in one.selection.notes]
    said += beyond(handed.handed, wanted) if handed else [note for one in each for note in notes(one.handed, agent)]
    excerpt = parts[0].excerpt
    return Content(
        point=point_of(read[0], max(excerpt.kept)),
        excerpt=excerpt,
        others=tuple(part for part in parts[1:] if part.excerpt.kept),
        handover=handed,
        selected=tuple(found),
        notes=tuple(said),
    )


def _check(read: Sequence[Session], agent: AgentName) -> None:
    ids = [session.session_id for session in read]
    if len(set(ids)) < len(ids):
        raise Usage("A session cannot be merged with itself", "Name each session once.")
    if any(session.agent != agent for session in read):
        teller_of(agent)


def _selected(read: Sequence[Session], all_: Wanted, answers: Answers | None) -> list[Selected]:
    """What is kept of each; the smallest first, so that what it leaves is the others'."""
    found: dict[int, Selected] = {}
    left = all_.budget
    order = sorted(range(len(read)), key=lambda place: sum(turn.token_est for turn in read[place].turns))
    for done, place in enumerate(order):
        share = left if left == MATCH else max(1, int(left) // (len(read) - done))
        one = chosen(read[place], last_branch_point(read[place]), replace(all_, budget=share), answers)
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
