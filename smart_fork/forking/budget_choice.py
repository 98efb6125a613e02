"""Selects the exchanges (a prompt and its answer) of a session to keep within a token budget.

Evidence from the search index gives the chance that an exchange answers the intent (what the user looks for). An
exchange can be kept in four steps: prompt and final answer; also its edits, and the readings of the edited files; also
every tool call, with shortened results; everything in full. Steps with the most gain (chance times weight) per token
come first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import zip_longest
from math import exp
from typing import Any, NamedTuple

from indexer.lazy_compilation import dataclass
from indexer.masking import Masked
from indexer.transcripts.model import Session
from smart_fork.agents.copier import Excerpt
from smart_fork.errors import ForkRefused, Usage, advice
from smart_fork.finding.ranking import ExchangeEvidence
from smart_fork.forking.budget_parts import Costs, Dependencies, ExchangeUnit, ToolStep, marker, plain, title, units
from smart_fork.forking.request import Budget
from smart_fork.forking.results import Kept, SelectedExchange, Selection

#: Gain of keeping more of an answering exchange: its words; also its edits and what they need; also every call; and
#: everything in full. A budget of `match` takes only the first LEAST_LEVELS of these.
WORTH, LEAST_LEVELS = (1.0, 4.0, 0.3, 0.02), 3
#: Exponent from evidence to odds, fitted to labelled questions: full evidence (of words or of meaning) multiplies the
#: odds by e to this power. Without evidence, each exchange is BEFORE times as likely as the one after it.
SHARPNESS, BEFORE = 3.0, 0.5
#: The words of exchanges with at least this chance come first. Their edits may exceed the filled share; so may those of
#: the first exchange, since later work builds on them.
MIN_CHANCE = 0.03
#: Edits and calls are added to kept exchanges up to this share of a session's tokens: a larger fork saves little.
FILLED = 0.25
#: A budget of `match` takes at most this share of a session, or this many tokens, beside what is always kept.
LEAST_SHARE, LEAST_TOKENS = 0.12, 6_000
#: Tokens around a marker for dropped exchanges.
AROUND = 25
OPENING, ANSWER, LAST, NEEDED, NEAR, WANTED = "opening", "answers", "last", "needed", "near", "asked for"


@dataclass(frozen=True, slots=True)
class KeptTurns:
    """The numbers of the turns that a fork keeps (`kept`), and of those with unshortened tool results (`full`).

    `why` maps the number of each kept exchange (a prompt and its answer) to the reason to keep it.
    """

    kept: frozenset[int] = frozenset()
    full: frozenset[int] = frozenset()
    why: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Addition:
    """Turns to add to a choice: a part of the exchange (prompt and answer) with index `place`, and turns that it needs.

    Tool results in the turns `full` are not shortened.
    """

    place: int
    turns: frozenset[int]
    why: str
    full: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class PricedAddition:
    """Turns to add to a choice (`added`), with their estimated tokens and their gain.

    The gain is the chance that their exchange answers the intent, times the weight of this part of an exchange.
    """

    gain: float
    tokens: int
    added: Addition


class Chooser:
    """Chooses which exchanges (a prompt and its answer) of one session a fork keeps, among the turns 0 to `end`.

    `evidence` tells how likely each exchange answers the user's intent.
    """

    def __init__(self, session: Session, costs: Costs, end: int, evidence: ExchangeEvidence) -> None:
        self.units, self.costs, self.end, self.session = units(session, costs, end), costs, end, session
        self.unknown = "" if evidence.parts else evidence.why_not
        self._name = plain(session.session_id)
        self.needs = Dependencies(self.units)
        gains, numbers = _gains(evidence), [unit.number - 1 for unit in self.units]
        self._gain = [
            max((gain for at, gain in gains.items() if at >= number and (after is None or at < after)), default=0.0)
            for number, after in zip_longest(numbers, numbers[1:])
        ]
        self._point = None
        if evidence.parts and evidence.point is not None:
            self._point = max((at for at, number in enumerate(numbers) if number <= evidence.point), default=0)

    def smallest(self, drop: Collection[int] = ()) -> KeptTurns:
        """Return the smallest choice: prompt and final answer of the first, the best and the last exchange.

        Exchanges whose number is in `drop` are never chosen.
        """
        choice, best = KeptTurns(), [(place, ANSWER) for place in self._best()[:1]]
        for place, why in ((0, OPENING), *best, (len(self.units) - 1, LAST)):
            if self.units[place].number not in drop:
                choice = self._with(choice, Addition(place, self.units[place].words, why))
        return choice

    def all_but(self, drop: Collection[int], keep: Collection[int] = ()) -> KeptTurns:
        """Return the choice of all turns but those of exchanges in `drop`. Those in `keep` are noted as asked for."""
        kept = frozenset(turn for unit in self.units if unit.number not in drop for turn in unit.whole)
        return KeptTurns(kept, kept, {unit.number: WANTED for unit in self.units if unit.number in keep})

    def within(self, most: int | None, keep: Collection[int] = (), drop: Collection[int] = ()) -> KeptTurns:
        """Return the best choice within `most` tokens; for `None`, the smallest choice that answers the intent.

        Exchanges in `keep` are always chosen, exchanges in `drop` never.
        """
        choice = self.smallest(drop)
        for place, unit in enumerate(self.units):
            if unit.number in keep:
                choice = self._with(choice, Addition(place, self.needs.whole(place), WANTED, unit.whole))
        gone = frozenset(turn for unit in self.units if unit.number in drop for turn in unit.whole)
        whole = sum(self.costs.turns[: self.end + 1])
        share = LEAST_SHARE if most is None else FILLED
        bound = max(LEAST_TOKENS, int(share * whole))
        most, bound, least = (bound, bound, True) if most is None else (most, min(most, bound), False)
        sure = (0, *self._answers, *(() if least else self._correction()))
        likely = [place for place in self._ranked() if self._chances[place] >= MIN_CHANCE or place in sure]
        for place in likely:
            choice = self._added(choice, self._addition(place, self.needs.said(place)), most, gone)
        pieces = self._by_gain(likely, LEAST_LEVELS) if least else self._by_gain(range(len(self.units)), len(WORTH))
        for added in pieces:
            choice = self._added(choice, added, bound, gone)
        last = len(self.units) - 1
        choice = self._added(choice, Addition(last, self.needs.said(last), LAST), bound, gone)
        for place in likely:
            choice = self._added(choice, self._addition(place, self.needs.done(place)), most, gone)
        for place in likely:
            choice = self._with_last_edits(choice, self._addition(place, self.needs.done(place)), most, gone)
        for place in self._answers:
            choice = self._with_commands(choice, place, min(bound, int(share * whole)), gone, read_only=not least)
        return choice if least else self._with_beginning(choice, most, gone)

    @cached_property
    def titles(self) -> list[Masked]:
        """Return the title of each exchange (a prompt and its answer), in order, with secrets masked."""
        return [title(unit) for unit in self.units]

    def tokens(self, choice: KeptTurns) -> int:
        """Return the tokens of a choice: its turns, lines for dropped exchanges, and the last compaction's summary."""
        told = sum(self.costs.of_text(text) + AROUND for text in self.markers(choice.kept).values())
        return self._own(choice) + told

    def _own(self, choice: KeptTurns) -> int:
        """Return the tokens of a choice without the lines for dropped exchanges."""
        own = sum(self.costs.of(turn, full=turn in choice.full) for turn in choice.kept)
        return own + self.costs.summary(self.end)

    def markers(self, kept: frozenset[int]) -> dict[int, str]:
        """Return the text for each gap of dropped exchanges or steps, by the number of the kept turn after the gap."""
        found: dict[int, str] = {}
        first, exchanges, steps = None, 0, 0
        for unit in self.units:
            if not unit.whole & kept:
                first, exchanges = unit.start if first is None else first, exchanges + 1
                continue
            for step in unit.steps:
                if kept.isdisjoint(step.turns):
                    if step.calls or step.text:
                        first, steps = step.turns[0] if first is None else first, steps + 1
                    continue
                if first is not None:
                    found[step.turns[0]] = marker(self._name, first, exchanges=exchanges, steps=steps)
                first, exchanges, steps = None, 0, 0
        return found

    def _added(self, choice: KeptTurns, added: Addition, bound: int, gone: frozenset[int]) -> KeptTurns:
        """Return `choice` with `added`, or unchanged if the result would exceed `bound` tokens.

        `gone` are the turns of dropped exchanges, which are never added.
        """
        turns, full = added.turns - gone, added.full - gone
        if gone & self.units[added.place].whole or (turns <= choice.kept and full <= choice.full):
            return choice
        if sum(self.costs.of(turn, full=turn in full) for turn in turns) > bound:
            return choice
        more = self._with(choice, replace(added, turns=turns, full=full))
        return more if self._own(more) <= bound and self.tokens(more) <= bound else choice

    def _with_beginning(self, choice: KeptTurns, bound: int, gone: frozenset[int]) -> KeptTurns:
        """Return `choice` with as many whole exchanges from the session's beginning as fit into `bound` tokens.

        They cost little, since the model's cache may hold them. Turns in `gone`, of exchanges to drop, are never added.
        """
        for place, unit in enumerate(self.units):
            choice = self._added(choice, Addition(place, unit.whole, OPENING, unit.whole), bound, gone)
            if not (unit.whole <= choice.kept and unit.whole <= choice.full):
                break
        return choice

    def _with_last_edits(self, choice: KeptTurns, added: Addition, bound: int, gone: frozenset[int]) -> KeptTurns:
        """Return `choice` with the last edits of the exchange `added.place`, as many as fit into `bound` tokens."""
        if choice.kept >= added.turns or gone & self.units[added.place].whole:
            return choice

        def with_last(edits: int) -> KeptTurns:
            return self._with(choice, replace(added, turns=self.needs.done(added.place, edits) - gone))

        fitting = range(1, len(self.needs.edits(added.place)))
        count = bisect_right(fitting, bound, key=lambda edits: self.tokens(with_last(edits)))
        return with_last(fitting[count - 1]) if count else choice

    def _with_commands(
        self, choice: KeptTurns, place: int, room: int, gone: frozenset[int], *, read_only: bool
    ) -> KeptTurns:
        """Return `choice` with the shortest shell commands of exchange `place` that fit into `room` tokens in total.

        With `read_only`, add steps that only read files too. Turns in `gone`, of exchanges to drop, are never added.
        """
        left = [
            step
            for step in self.units[place].steps
            if step.calls
            and not (step.edits or step.broken)
            and not choice.kept.issuperset(step.turns)
            and gone.isdisjoint(step.turns)
        ]
        left.sort(key=lambda step: step.short)
        for some in ([one for one in left if one.runs], [one for one in left if read_only and not one.runs]):

            def with_first(count: int, some: Sequence[ToolStep] = some, before: KeptTurns = choice) -> KeptTurns:
                turns = frozenset(turn for step in some[:count] for turn in step.turns)
                return self._with(before, Addition(place, self.needs.closed(turns) - gone, ANSWER))

            counts = range(1, len(some) + 1)
            count = bisect_right(counts, room, key=lambda one: self.tokens(with_first(one)))
            choice = with_first(count) if count else choice
        return choice

    def _with(self, choice: KeptTurns, added: Addition) -> KeptTurns:
        new, why = added.turns - choice.kept, dict(choice.why)
        for unit in self.units:
            if new & unit.whole:
                why.setdefault(unit.number, NEEDED)
        own = self.units[added.place].number
        if why.get(own, NEEDED) == NEEDED and added.turns & self.units[added.place].whole:
            why[own] = added.why
        return KeptTurns(choice.kept | added.turns, choice.full | added.full, why)

    def _best(self) -> list[int]:
        """Return the indexes of the exchanges with evidence for the intent, best first.

        If no exchange has evidence, return all indexes, the last one first.
        """
        if not any(self._gain):
            return sorted(range(len(self.units)), reverse=True)
        ranked = sorted(range(len(self.units)), key=lambda place: (-self._gain[place], -place))
        return [place for place in ranked if self._gain[place] > 0]

    @cached_property
    def _answers(self) -> list[int]:
        """Return the indexes of the exchange with the best evidence, and of the one that completes the answer."""
        return list(dict.fromkeys([*self._best()[:1], *([self._point] if self._point is not None else [])]))

    def _correction(self) -> list[int]:
        """Return a list with the exchange after the best one if it edits files, since it often corrects the answer."""
        after = [place + 1 for place in self._best()[:1] if place + 1 < len(self.units)]
        return [place for place in after if self.needs.edits(place)]

    def _ranked(self) -> list[int]:
        return sorted(range(len(self.units)), key=lambda place: (-self._chances[place], -place))

    @cached_property
    def _chances(self) -> list[float]:
        """Return for each exchange the probability that it answers the intent (what the user looks for)."""
        most, last = max(self._gain), len(self.units) - 1
        odds = [exp(SHARPNESS * (gain - most)) if gain else 0.0 for gain in self._gain]
        if not most:
            odds = [BEFORE ** (last - place) for place in range(len(self.units))]
        return [one / sum(odds) for one in odds]

    def _by_gain(self, places: Iterable[int], levels: int) -> list[Addition]:
        """Return the parts of the exchanges `places` to keep, at most `levels` of each, most gain per token first."""
        pieces = [piece for place in places for piece in self._pieces(place, levels)]
        return [piece.added for piece in sorted(pieces, key=lambda piece: -piece.gain / piece.tokens)]

    def _pieces(self, place: int, levels: int) -> list[PricedAddition]:
        """Return the parts of the exchange `place` that could be kept, in falling order of gain per token.

        A part with more gain per token than the part before it is joined with that part.
        """
        found: list[PricedAddition] = []
        before = 0
        for worth, (turns, full) in zip(WORTH[:levels], self._levels(place), strict=False):
            tokens = sum(self.costs.of(turn, full=turn in full) for turn in turns)
            piece = PricedAddition(
                self._chances[place] * worth, max(1, tokens - before), self._addition(place, turns, full)
            )
            before = max(before, tokens)
            while found and piece.gain * found[-1].tokens >= found[-1].gain * piece.tokens:
                less = found.pop()
                piece = replace(piece, gain=piece.gain + less.gain, tokens=piece.tokens + less.tokens)
            found.append(piece)
        return found if self._chances[place] else []

    def _levels(self, place: int) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        """Yield four growing parts of an exchange: prompt and final answer; edits too; every step; every step in full.

        Each part is a pair: the turns to keep, and those of them whose tool results are not shortened.
        """
        yield self.needs.said(place), frozenset()
        yield self.needs.done(place), frozenset()
        yield self.needs.whole(place), frozenset()
        yield self.needs.whole(place), self.units[place].whole

    def _addition(self, place: int, turns: frozenset[int], full: frozenset[int] = frozenset()) -> Addition:
        return Addition(place, turns, ANSWER if place in self._answers else NEAR, full)


class Selected(NamedTuple):
    """The choice for one session within a budget: `selection` describes it to the user, `chooser` made it.

    `excerpt` has the kept turns; it is `None` if the whole session is kept.
    """

    selection: Selection
    excerpt: Excerpt | None
    chooser: Chooser


def within(chooser: Chooser, wanted: Budget) -> Selected:
    """Choose the exchanges (a prompt and its answer) of the chooser's session to keep within the budget `wanted`.

    Raises:
        ForkRefused: the session has no prompt among the turns to choose from.
        Usage: an exchange number does not exist, or no prompt would remain.
    """
    parts, counted, end = chooser.units, chooser.costs, chooser.end
    _check(parts, wanted)
    whole = sum(counted.turns[: end + 1]) + counted.summary(end)
    most = None if wanted.budget == Budget.MATCH else wanted.budget
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
    return Selected(told, Excerpt(choice.kept, end, chooser.markers(choice.kept), taken, shortened), chooser)


def _new_from(session: Session, end: int, kept: frozenset[int], taken: Sequence[int], whole: Sequence[int]) -> int:
    """Return the first turn that a fork drops or shortens: the model's cache can hold only the turns before it.

    In a compacted session, this is 0. `taken` has the tokens of each turn in the fork, `whole` those in the session.
    """
    if session.compacted(end):
        return 0
    return next((turn for turn in range(end + 1) if turn not in kept or taken[turn] < whole[turn]), end + 1)


def _gains(evidence: ExchangeEvidence) -> dict[int, float]:
    """Return the score of each exchange with evidence, by index: similarity plus shared words, 0 to 1 each."""
    nearest = max((part.nearest for part in evidence.parts.values()), default=0.0) or 1.0
    words = max((part.words for part in evidence.parts.values()), default=0.0) or 1.0
    return {number: part.nearest / nearest + part.words / words for number, part in evidence.parts.items()}


def _check(parts: Sequence[ExchangeUnit], wanted: Budget) -> None:
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


def _rows(chooser: Chooser, choice: KeptTurns) -> tuple[SelectedExchange, ...]:
    rows = []
    for unit, called in zip(chooser.units, chooser.titles, strict=True):
        of_it = unit.whole & choice.kept
        tokens = sum(chooser.costs.of(turn, full=turn in choice.full) for turn in of_it)
        rows.append(
            SelectedExchange(
                number=unit.number,
                message=unit.start,
                title=called,
                tokens=sum(step.tokens for step in unit.steps),
                kept=_how(unit, of_it, complete=tokens == sum(chooser.costs.turns[turn] for turn in of_it)),
                kept_tokens=tokens,
                why=choice.why.get(unit.number, "") if of_it else "",
            )
        )
    return tuple(rows)


def _how(unit: ExchangeUnit, kept: frozenset[int], *, complete: bool) -> Kept:
    if not kept:
        return "nothing"
    if kept >= unit.whole:
        return "whole" if complete else "shortened"
    return "words" if kept <= unit.words else "part"
