"""Fork points: the turns of a session after which a copy can continue.

There, each tool call has its result, and the agent has finished its answer. A fork inside an exchange (a prompt and its
answer) ends with the next such turn.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from indexer.lazy_compilation import dataclass
from indexer.transcripts.model import Session, Turn
from smart_fork.errors import ForkRefused, NotFound, advice


@dataclass(frozen=True, slots=True)
class ForkPoint:
    """The last turn of a session that a fork copies, by number and message id."""

    index: int
    message_id: str

    @classmethod
    def after(cls, session: Session, index: int) -> Self:
        """Return the fork point directly after turn `index` of `session`."""
        return cls(index, session.turns[index].id)


def point_at(session: Session, number: int) -> ForkPoint:
    """Return the fork point for a message, by its number in the output of the command ``show``."""
    return ForkPoint.after(session, branch_point(session, message_at(session, number)))


def message_at(session: Session, number: int) -> str:
    """Return the id of message (or tool call) `number`, counted as the command ``show`` does; else raise `NotFound`."""
    if not 0 <= number <= max((index for index, _ in session.messages), default=-1):
        raise NotFound(
            f"No message {number} in this session",
            advice(f"smart-fork show {session.session_id} numbers them.", tool="read_session numbers them."),
        )
    return session.turns[number].id


def branch_point(session: Session, at: str) -> int:
    """Return the index of the first turn, from message `at` on, after which a copy of the session can continue.

    The turn is in the exchange (a prompt and its answer) of `at`, and before the next compaction, after which a copy
    would lack `at`. If the exchange was never finished, it is the turn of `at` itself, if a copy can continue there.

    Raises:
        ForkRefused: no active message has the id `at`, or no copy can continue there.
    """
    start = next((index for index, turn in enumerate(session.turns) if turn.id == at), None)
    if start is None:
        raise ForkRefused(
            f"Invalid or inactive branch point: {at}",
            advice("Choose a message from smart-fork show.", tool="Choose a message from read_session."),
        )
    exchange = [one for one in session.exchanges() if one.start <= start][-1]
    end, points = exchange.start + len(exchange.turns), session.branch_points()
    point = next((point for point in points if start <= point < end), None)
    remembered = session.ends()[start]
    if remembered is not None and remembered < (end if point is None else point):
        return remembered
    if point is not None:
        return point
    if end < len(session.turns) and _waits_for_nothing(exchange.turns[: start - exchange.start + 1]):
        return start
    if session.resumed.reason == "gap" and start == len(session.turns) - 1:  # its agent would fork it there as well
        return start
    around = [max((p for p in points if p < start), default=None), next((p for p in points if p >= end), None)]
    hint = " or ".join(str(p) for p in around if p is not None)
    raise ForkRefused(
        f"Invalid or inactive branch point: {at}: the agent has not finished its answer",
        f"The nearest possible messages: {hint}." if hint else "",
    )


def last_branch_point(session: Session) -> int:
    """Return the index of the last turn after which a copy of the session can continue; else raise `ForkRefused`."""
    if points := session.branch_points():
        return points[-1]
    raise ForkRefused("No conversation to branch.", "The agent has not finished an answer in it yet.")


def _waits_for_nothing(turns: Sequence[Turn]) -> bool:
    """Return True if the last turn is text by the agent, and every tool call in `turns` has its result."""
    calls = {call.id for turn in turns for call in turn.tool_calls}
    answered = {result.tool_use_id for turn in turns for result in turn.tool_results}
    last = turns[-1]
    return last.role == "assistant" and bool(last.text) and not last.tool_calls and calls <= answered
