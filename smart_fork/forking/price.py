"""What a fork loads before it has done anything: all of its session, or as far as it knows it."""

from __future__ import annotations

from indexer.transcripts.model import Session
from smart_fork.copies.session_copy import Point
from smart_fork.forking.started import ForkPrice
from smart_fork.retrieval.cache import may_be_cached


def price_of(session: Session, point: Point | None, within: int | None = None) -> ForkPrice:
    """The price of a fork at `point`, or of one that keeps only so many tokens `within` a budget.

    What is sent in another form than before is in nobody's cache.
    """
    whole = session.token_estimate
    if within is not None:
        return ForkPrice(within, whole)
    tokens = session.loads()[point.index] if point is not None else whole
    used = session.turns[point.index].timestamp if point is not None else session.last_activity
    return ForkPrice(tokens, whole, cached=may_be_cached(used))
