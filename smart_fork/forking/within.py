"""A session as it fits into a budget: from what is asked to what is kept."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from indexer.transcripts.model import Session
from smart_fork.agents.copier import Excerpt
from smart_fork.errors import ForkRefused, Usage, advice
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.forking.choice import Choice, Chooser, Gains
from smart_fork.forking.costs import Costs, costs
from smart_fork.forking.selection import Kept, SelectedExchange, Selection
from smart_fork.forking.units import Unit, units
from smart_fork.forking.wanted import MATCH, Wanted


class Selected(NamedTuple):
    """A selection, the excerpt that it is of the session (`None` for all of it), and what has chosen it."""

    selection: Selection
    excerpt: Excerpt | None
    chooser: Chooser


def selected(session: Session, end: int, wanted: Wanted, evidence: ExchangeEvidence | None) -> Selected:
    """Choose what of a session up to turn `end` is kept within a budget, by the `evidence` for its exchanges.

    Without any, what was said last is kept.

    Raises:
        ForkRefused: nothing is left out of sessions of that agent.
        Usage: there is no exchange of a number that was given, or nothing would be left.
    """
    return within(chooser_of(session, costs(session), end, evidence), wanted)


def chooser_of(session: Session, counted: Costs, end: int, evidence: ExchangeEvidence | None) -> Chooser:
    """Return what chooses among the exchanges of a session up to turn `end`."""
    return Chooser(units(session, counted, end), counted, end, session, gains_of(evidence))


def within(chooser: Chooser, wanted: Wanted) -> Selected:
    """Choose what is kept within a budget.

    Raises:
        ForkRefused: there is no prompt.
        Usage: there is no exchange of a number that was given, or nothing would be left.
    """
    parts, counted, end = chooser.units, chooser.costs, chooser.end
    _check(parts, wanted)
    whole = sum(counted.turns[: end + 1]) + counted.summary(end)
    most = None if wanted.budget == MATCH else wanted.budget
    why = chooser.unknown
    notes = [f"The best exchanges are unknown ({why}): the last exchange is kept"] if why else []
    known: dict[str, Any] = {
        "session_id": chooser.session.session_id, "budget": str(wanted.budget), "whole_tokens": whole
    }  # fmt: skip
    if most is not None and most >= whole:
        choice = chooser.all_but(wanted.drop, wanted.keep)
    else:
        choice = chooser.within(most, wanted.keep, wanted.drop)
    # What its agent forks is not the whole of a session that was compacted.
    forgotten = chooser.session.compacted(end)
    if not forgotten and not wanted.drop and max(most or 0, chooser.tokens(choice)) >= whole:
        rows = _rows(chooser, chooser.all_but(()))
        notes.append(f"Nothing is dropped: the whole conversation has about {whole:,} tokens")
        told = Selection(
            **known, tokens=whole, kept=len(rows), left_out=0, whole=True, notes=tuple(notes), exchanges=rows
        )
        return Selected(told, None, chooser)
    if not any(step.prompt and choice.kept >= set(step.turns) for unit in parts for step in unit.steps):
        raise Usage("No prompt would remain", "Drop fewer exchanges.")
    tokens = chooser.tokens(choice)
    too_much = most is not None and tokens > most
    if too_much:
        what = "With the exchanges to keep," if wanted.keep else "In the smallest complete form,"
        notes.append(f"{what} it takes about {tokens:,} tokens, more than the budget")
    rows = _rows(chooser, choice)
    out = sum(row.kept == "nothing" for row in rows)
    taken = tuple(counted.of(turn, full=turn in choice.full) for turn in range(len(counted.turns)))
    told = Selection(
        **known, tokens=tokens, kept=len(rows) - out, left_out=out, smallest=too_much, notes=tuple(notes),
        new_from=_new_from(chooser.session, end, choice.kept, taken, counted.turns), exchanges=rows,
    )  # fmt: skip
    shortened = choice.kept - choice.full
    return Selected(told, Excerpt(choice.kept, end, chooser.told(choice.kept), taken, shortened), chooser)


def _new_from(session: Session, end: int, kept: frozenset[int], taken: Sequence[int], whole: Sequence[int]) -> int:
    """The first message that is not sent as the agent has sent it: the first of all, where that was compacted."""
    if session.compacted(end):
        return 0
    return next((turn for turn in range(end + 1) if turn not in kept or taken[turn] < whole[turn]), end + 1)


def gains_of(evidence: ExchangeEvidence | None) -> Gains:
    """What speaks for each exchange, counted from 1, as one number: what it means, and what it says."""
    if evidence is None or not evidence.parts:
        return Gains(unknown=evidence.why_not if evidence is not None else "")
    nearest = max(part.nearest for part in evidence.parts.values()) or 1.0
    words = max(part.words for part in evidence.parts.values()) or 1.0
    gains = {number + 1: part.nearest / nearest + part.words / words for number, part in evidence.parts.items()}
    return Gains(gains, None if evidence.point is None else evidence.point + 1)


def _check(parts: Sequence[Unit], wanted: Wanted) -> None:
    if not any(unit.prompt for unit in parts):
        raise ForkRefused("No prompt up to that message.", "Fork it at a later message.")
    known = {unit.number for unit in parts}
    for number in sorted(wanted.keep | wanted.drop):
        if number not in known:
            raise Usage(
                f"There is no exchange {number} to keep or drop: the session has {_span(known)}",
                advice("--dry-run shows them.", tool="`exchanges` in the answer has their numbers."),
            )
    if both := wanted.keep & wanted.drop:
        raise Usage(f"Exchange {min(both)} cannot be both kept and dropped", "Name it once.")


def _span(known: Collection[int]) -> str:
    return f"{min(known)} to {max(known)}" if known else "none"


def _rows(chooser: Chooser, choice: Choice) -> tuple[SelectedExchange, ...]:
    rows = []
    for unit, title in zip(chooser.units, chooser.titles, strict=True):
        of_it = unit.whole & choice.kept
        tokens = sum(chooser.costs.of(turn, full=turn in choice.full) for turn in of_it)
        rows.append(
            SelectedExchange(
                number=unit.number,
                message=unit.start,
                title=title,
                tokens=sum(step.tokens for step in unit.steps),
                kept=_how(unit, of_it, complete=tokens == sum(chooser.costs.turns[turn] for turn in of_it)),
                kept_tokens=tokens,
                why=choice.why.get(unit.number, "") if of_it else "",
            )
        )
    return tuple(rows)


def _how(unit: Unit, kept: frozenset[int], *, complete: bool) -> Kept:
    if not kept:
        return "nothing"
    if kept >= unit.whole:
        return "whole" if complete else "shortened"
    return "words" if kept <= unit.words else "part"
