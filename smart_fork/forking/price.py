"""What a fork loads before it has done anything: all of its session, or as far as it knows it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import accumulate

from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.copies.session_copy import Point, last_branch_point
from smart_fork.errors import SmartForkError
from smart_fork.finding.hit import BUDGET_TOKENS
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.finding.worth import age_of, ago, cache_in_words, is_cached, own_cached_until
from smart_fork.forking.costs import Costs, costs
from smart_fork.forking.recommendation import fits
from smart_fork.forking.selection import Selection
from smart_fork.forking.started import ForkPrice, Way
from smart_fork.forking.wanted import MATCH, Amount, Wanted
from smart_fork.forking.within import Selected, chooser_of, within

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
        ""
        if elsewhere and is_cached(until) and not AGENTS.tail_of(session.agent).keeps_prompt(session.source_path)
        else until
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
