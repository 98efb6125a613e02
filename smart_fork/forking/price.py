"""What a fork loads before it has done anything: all of its session, or as far as it knows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

from indexer.transcripts.model import Session
from smart_fork.budget.costs import costs
from smart_fork.budget.selection import Selection
from smart_fork.copies.session_copy import Point
from smart_fork.errors import SmartForkError
from smart_fork.forking.started import ForkPrice
from smart_fork.retrieval.cache import cached_until, is_cached


def price_of(
    session: Session, point: Point | None, within: int | None = None, loads: Sequence[int] | None = None
) -> ForkPrice:
    """The price of a fork at `point`, or of one that keeps only so many tokens `within` it in another form.

    What is sent in another form than before is in nobody's cache. `loads` is what `loads_of` has counted, if it has.
    """
    loads = loads_of(session) if loads is None else loads
    whole = loads[-1] if loads else 0
    if within is not None:
        return ForkPrice(within, whole)
    tokens = loads[point.index] if point is not None else whole
    until = cached_until(session.cache(point.index if point is not None else None))
    return ForkPrice(tokens, whole, is_cached(until), until)


def loads_of(session: Session) -> Sequence[int]:
    """What going on after each turn loads. What an agent has counted has all that was sent in it; where it has counted
    nothing, as in a copy that nobody has gone on with, all that will be is counted here.
    """
    if not any(turn.loaded for turn in session.turns):
        with suppress(SmartForkError):  # such as of an agent whose sessions have no records
            return list(accumulate(costs(session).turns))
    return session.loads()


def loaded_within(session: Session, kept: Selection, end: int) -> int:
    """Return what a fork loads that keeps so much of the conversation up to turn `end`.

    A budget counts the conversation alone: the agent's instructions and tools are added.
    """
    return kept.tokens + beside(session, kept.whole_tokens, end)


def beside(session: Session, conversation: int, end: int) -> int:
    """Return the tokens of instructions and tools in what a fork at turn `end` loads, beside its `conversation`.

    Both add up to what it loads. After a compaction they do not: then what the agent counted first decides.
    """
    first, loaded = session.instructions, session.loads()[end]
    if not first or loaded <= conversation or session.compacted(end):
        return first
    return loaded - conversation
