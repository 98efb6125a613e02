"""What goes into a fork of a session: where it leaves, what is left out, and what another agent is told."""

from __future__ import annotations

from typing import TYPE_CHECKING

from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, Session
from smart_fork import sessions
from smart_fork.agents.copier import Excerpt
from smart_fork.budget.within import Selected
from smart_fork.conversation import resumed_part
from smart_fork.copies.session_copy import Point, last_branch_point, last_point, point_at
from smart_fork.errors import ForkRefused
from smart_fork.forking.budget import Answers, answering, chosen
from smart_fork.forking.request import ForkRequest

if TYPE_CHECKING:
    from smart_fork.copies.told import Part
    from smart_fork.forking.handover import Handover


@dataclass(frozen=True, slots=True)
class Content:
    """What goes into a fork: of its session all up to `point` or the `excerpt`, and of `others` what they keep.

    `asked` is the point that was asked for, `leaves` the one before anything was left out. `handover` is what another
    agent is told of all that. `selected` is what a budget keeps of each session.
    """

    asked: Point | None = None
    leaves: Point | None = None
    point: Point | None = None
    excerpt: Excerpt | None = None
    others: tuple[Part, ...] = ()
    handover: Handover | None = None
    selected: tuple[Selected, ...] = ()
    notes: tuple[str, ...] = ()


def content_of(
    request: ForkRequest, session: Session, agent: AgentName, answers: Answers | None, *, borrowed: bool
) -> Content:
    """Return what goes into a fork of one session; a `borrowed` one is copied.

    Raises:
        SmartForkError: it cannot be forked so.
    """
    asked, moved = _point(request, session, answers)
    leaves, alone = (asked, "") if asked is not None else end_of_whole(session, borrowed=borrowed)
    notes = [*filter(None, (moved, sessions.left_out(session)))]
    point, excerpt, kept = leaves, None, None
    if request.budget is not None:
        end = leaves.index if leaves else last_branch_point(session)
        kept = chosen(session, end, request.budget, answers)
        excerpt = kept.excerpt
        notes += kept.selection.notes
        point = point_of(session, max(excerpt.kept)) if excerpt is not None else leaves
    point, handover = handed_to(agent, session, point, excerpt, unmasked=request.options.unmasked)
    notes += [alone] if alone and not (excerpt or handover) else []
    if request.budget is not None and handover is not None:
        from smart_fork.forking.handover import beyond

        notes += beyond(handover.handed, request.budget)
    selected = () if kept is None else (kept,)
    return Content(asked, leaves, point, excerpt, handover=handover, selected=selected, notes=tuple(notes))


def handed_to(
    agent: AgentName, session: Session, point: Point | None, excerpt: Excerpt | None, *, unmasked: bool
) -> tuple[Point | None, Handover | None]:
    """Return where a fork with `agent` ends, and what that is told of another agent's session.

    Raises:
        Usage: that agent cannot receive sessions of other agents.
        ForkRefused: the log was rewritten meanwhile.
        NotFound: a session that it was forked from is gone.
    """
    if agent == session.agent:
        return point, None
    from smart_fork.forking.handover import handover

    point = point or point_of(session, len(session.turns) - 1)
    return point, handover(session, point.index, agent, excerpt, unmasked=unmasked)


def _point(request: ForkRequest, session: Session, answers: Answers | None) -> tuple[Point | None, str]:
    """Where a fork leaves, `None` for the session's end; and what to say of that."""
    if request.at_match:
        return _end_of(session, answering(session, answers, request.found))
    if (message := request.message) is None:
        return None, ""
    point = point_at(session, message)
    return point, point.moved_from(message) if point.index != message else ""


def end_of_whole(session: Session, *, borrowed: bool) -> tuple[Point | None, str]:
    """Return where a fork of all of a session ends that is a copy, as it is of one with a gap; and what to say of that.

    Without a point its agent forks it.
    """
    part = resumed_part(session.resumed, session.compacted(), len(session.turns))
    if part is None or part.reason != "gap":
        return last_point(session) if borrowed else None, ""
    alone = f"Its agent alone {part.sentence}"
    if session.unread:
        return None, alone
    return point_of(session, len(session.turns) - 1), f"{alone}. The fork is a copy with everything before that"


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
    return None if end is None else point_of(session, end), note


def point_of(session: Session, turn: int) -> Point:
    """Return the point behind a turn."""
    return Point(turn, session.turns[turn].id)
