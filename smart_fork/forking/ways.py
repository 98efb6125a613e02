"""The ways to fork a session, side by side: what each loads, and what of that its model still has in its cache."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from indexer.transcripts.model import Session
from smart_fork.budget.costs import Costs, costs
from smart_fork.budget.wanted import MATCH, Amount, Wanted
from smart_fork.budget.within import Selected, chooser_of, within
from smart_fork.copies.session_copy import Point, last_branch_point
from smart_fork.errors import SmartForkError
from smart_fork.finding.hit import BUDGET_TOKENS
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.finding.worth import age_of, ago, cache_in_words
from smart_fork.forking.floor import fits
from smart_fork.forking.price import beside, loaded_within, loads_of, price_of
from smart_fork.forking.started import ForkPrice, Way

log = logging.getLogger(__name__)


def ways(
    session: Session, at: Point | None, wanted: Wanted | None, evidence: ExchangeEvidence | None, *,
    matched: bool = False, kept: Selected | None = None, loads: Sequence[int] | None = None,
    elsewhere: bool = False,
) -> tuple[Way, ...]:  # fmt: skip
    """All of it, to the message `at` which it was asked, to the end of what answers, and within budgets.

    What answers is told by the `evidence`, or with `matched` by `at`. The budget `wanted` is among them. What cannot
    be had is left out, and so is what costs more than all of it and carries nothing more of what answers. `kept` is
    what that budget keeps, and `loads` what `loads_of` has counted, where that is known. `elsewhere` is
    as `price_of` has it.
    """
    priced = partial(price_of, session, loads=loads_of(session) if loads is None else loads, elsewhere=elsewhere)
    price = partial(_up_to, session, priced)
    counted = kept.chooser.costs if kept is not None else _counted(session)
    found = [_in_parts(session, price(None, ""), counted)]
    match = at if matched else None
    if at is not None or matched:
        found.append(price(at, "--at match" if at is None or matched else f"--at {at.index}"))
    try:
        answers = evidence is not None and fits(evidence)
        if answers and evidence and evidence.point is not None and not matched:
            match = _end_of(session, evidence.point)
            found.append(price(match, "--at match"))
        if evidence is None or counted is None:
            return _offered(session, found, match, at)
        end = at.index if at is not None else last_branch_point(session)
        chooser = kept.chooser if kept else chooser_of(session, counted, end, evidence if answers else None)
        wanted = wanted or Wanted(MATCH)
        amounts: list[Amount] = [
            *([MATCH] if answers else []),
            BUDGET_TOKENS if wanted.budget == MATCH else wanted.budget,
        ]
        for budget in amounts:
            same = budget == wanted.budget
            one = kept if kept is not None and same else within(chooser, wanted if same else Wanted(budget))
            told, option = one.selection, f"--budget {budget}"
            tokens = None if told.whole else loaded_within(session, told, end)
            way = _way(option, priced(at, tokens, new_from=told.new_from)) if tokens is not None else price(at, option)
            of_it = [row.kept for row in told.exchanges if match and row.message <= match.index]
            if one is kept or way.tokens <= found[0].tokens or _is_forgotten(session, match):
                found.append(replace(way, carries=of_it[-1:] not in ([], ["nothing"])))
    except SmartForkError as error:  # such as of an agent of whose sessions nothing is left out
        log.info("not all ways to fork it can be compared: %s", error.message)
    return _offered(session, found, match, at)


def _is_forgotten(session: Session, match: Point | None) -> bool:
    return match is not None and match.index < session.compacted()


def _offered(session: Session, found: Sequence[Way], match: Point | None, at: Point | None) -> tuple[Way, ...]:
    """The ways; where the whole session has forgotten what matched, each says whether it carries that."""
    if match is None or not _is_forgotten(session, match):
        return tuple(replace(one, carries=None) for one in found)
    there = at is not None and session.compacted(at.index) <= match.index <= at.index
    known = {"": False, "--at match": True, f"--at {at.index if at else ''}": there}
    return tuple(replace(one, carries=known.get(one.option, one.carries)) for one in found)


def parts_in_words(ways: Sequence[Way]) -> Iterator[str]:
    """What a fork of all of it loads, and of what, where that is known."""
    for one in ways:
        if one.conversation:
            rest = one.tokens - one.conversation
            yield (
                f"Whole session: {one.tokens:,} tokens "
                f"(conversation {one.conversation:,}; instructions and tools {rest:,})"
            )


def way_in_words(way: Way) -> str:
    """The use of what a way loads, and whether it has the exchange that matched where not all ways have it."""
    carried = {None: "", True: "carries the match", False: "has forgotten the match"}[way.carries]
    return ", ".join(filter(None, (use_in_words(way), carried)))


def use_in_words(way: Way) -> str:
    """When what a way loads was used, and whether it is in its model's cache, for a person."""
    age, cached = age_of(way.used_at), cache_in_words(way.cached_until, way.cached_tokens)
    if age is None:
        another = f"another form, {cached}" if cached else "another form, not cached"
        return "last use unknown" if way.used_at else another
    return ", ".join(filter(None, (f"used {ago(age)} ago", cached)))


def _up_to(session: Session, priced: Callable[[Point | None], ForkPrice], point: Point | None, option: str) -> Way:
    used = session.turns[point.index].timestamp if point is not None else session.last_activity
    return _way(option, priced(point), used)


def _way(option: str, price: ForkPrice, used: str = "") -> Way:
    return Way(
        option, price.tokens, price.cached, used, cached_until=price.cached_until, cached_tokens=price.cached_tokens
    )


def _counted(session: Session) -> Costs | None:
    try:
        return costs(session)
    except (SmartForkError, OSError):  # such as of an agent whose sessions have no records
        return None


def _in_parts(session: Session, whole: Way, counted: Costs | None) -> Way:
    """The way with all of it, and how much of that is the conversation, where that is known."""
    if counted is None:
        return whole
    end = len(session.turns) - 1
    return replace(whole, conversation=whole.tokens - beside(session, sum(counted.turns), end))


def _end_of(session: Session, exchange: int) -> Point | None:
    """Where exchange `exchange` is finished; `None` for the session's end."""
    starts = [one.start for one in session.exchanges()]
    if not 0 <= exchange < len(starts):
        return None
    end = session.ends()[starts[exchange]]
    return None if end is None else Point(end, session.turns[end].id)
