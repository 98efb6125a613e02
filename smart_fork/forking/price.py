"""What a fork loads before it has done anything: all of its session, or as far as it knows it."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate

from indexer.transcripts.model import Session
from smart_fork.agents.facets import tail_of
from smart_fork.budget.costs import costs
from smart_fork.budget.selection import Selection
from smart_fork.copies.session_copy import Point
from smart_fork.errors import SmartForkError
from smart_fork.finding.worth import is_cached, own_cached_until
from smart_fork.forking.started import ForkPrice


def price_of(
    session: Session, point: Point | None, within: int | None = None, loads: Sequence[int] | None = None,
    *, new_from: int | None = None, elsewhere: bool = False,
) -> ForkPrice:  # fmt: skip
    """The price of a fork at `point`, or of one that has so many tokens `within` it in another form.

    What is sent in another form than before is in nobody's cache: of what is kept within a budget only what comes
    before the turn `new_from` is. `loads` is what `loads_of` has counted, if it has. `elsewhere` as in `shared_until`.
    """
    loads = loads_of(session) if loads is None else loads
    whole = loads[-1] if loads else 0
    if within is None:
        end = point.index if point is not None else None
        until = shared_until(session, end, elsewhere=elsewhere)
        return ForkPrice(whole if end is None else loads[end], whole, is_cached(until), until)
    until = shared_until(session, new_from - 1, elsewhere=elsewhere) if new_from else ""
    if not new_from or not is_cached(until):
        return ForkPrice(within, whole)
    return ForkPrice(within, whole, cached_until=until, cached_tokens=min(within, loads[new_from - 1]))


def shared_until(session: Session, end: int | None = None, *, elsewhere: bool = False) -> str:
    """Return until when the model has in its cache how a session up to turn `end` begins, as a fork there is sent it.

    Empty where the log does not say it, or a fork begins otherwise: of another person's session, across a gap, or
    `elsewhere`, in another directory than the session's, which most agents' versions name before all that was said.
    """
    until = own_cached_until(str(session.source_path), session.cache(end))
    return (
        "" if elsewhere and is_cached(until) and not tail_of(session.agent).keeps_prompt(session.source_path) else until
    )


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
