"""Which turns of a session a budget is spent on.

First what was said and done in each exchange that answers or is near, with what that needs and its long results
shortened; then all of what answers, and in full; then all of what is near; and last, of what answers and did not fit as
a whole, what was run, and for a budget of tokens also what was looked at.

Pure: what speaks for each exchange is given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace

from indexer.shapes import dataclass
from indexer.transcripts.model import Session
from smart_fork.budget.costs import Costs
from smart_fork.budget.left_out import Lines
from smart_fork.budget.needs import Needs
from smart_fork.budget.units import Step, Unit

#: Where as little is wanted as answers, so many exchanges are kept; otherwise this many in what was asked and answered.
ANSWERS, NEAREST = 3, 8
#: Beyond what was said and done, exchanges are filled up to this share of a session: a fork of much of it saves little.
FILLED = 0.25
#: As little as answers is at most this share of a session, or so many tokens, beside what is always kept.
LEAST_SHARE, LEAST_TOKENS = 0.12, 6_000
#: What stands around a line on what is left out, in tokens.
AROUND = 25
OPENING, ANSWER, LAST, NEEDED, NEAR, WANTED = "opening", "answers", "last", "needed", "near", "asked for"


@dataclass(frozen=True, slots=True)
class Gains:
    """What speaks for each exchange, by its number; `point` is the one by whose end all that is asked is known."""

    of: Mapping[int, float] = field(default_factory=dict)
    point: int | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """What is kept so far, with long results shortened where it is not kept in `full`; and why each exchange is."""

    kept: frozenset[int] = frozenset()
    full: frozenset[int] = frozenset()
    why: Mapping[int, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Addition:
    """What would be kept of the exchange in a place, and of what it needs: these turns, those of them in `full`."""

    place: int
    turns: frozenset[int]
    why: str
    full: frozenset[int] = frozenset()


class Chooser:
    """Chooses among the exchanges of one session."""

    def __init__(self, units: Sequence[Unit], costs: Costs, end: int, session: Session, gains: Gains) -> None:
        self.units, self.costs, self.end = units, costs, end
        self.lines = Lines(session.session_id, session.cwd)
        self.needs = Needs(units)
        self._gain = [_gain(gains, unit.number, _next(units, place)) for place, unit in enumerate(units)]
        self._point = _place_of(units, gains.point)

    def smallest(self, drop: Collection[int] = ()) -> Choice:
        """What is always kept: what was asked first, what answers, and what was said last, each in its words."""
        choice = Choice()
        for place, why in self._always():
            if self.units[place].number not in drop:
                choice = self._with(choice, Addition(place, self.units[place].words, why))
        return choice

    def within(self, most: int | None, keep: Collection[int] = (), drop: Collection[int] = ()) -> Choice:
        """What fits into `most` tokens, or where that is `None`, as little as answers.

        What is to be kept or dropped is, whatever it takes.
        """
        choice = self.smallest(drop)
        for place, unit in enumerate(self.units):
            if unit.number in keep:
                choice = self._with(choice, Addition(place, self.needs.whole(place), WANTED, unit.whole))
        gone = frozenset(turn for unit in self.units if unit.number in drop for turn in unit.whole)
        whole = sum(self.costs.turns[: self.end + 1])
        bound = max(LEAST_TOKENS, int(LEAST_SHARE * whole)) if most is None else most
        for added in self._first(ANSWERS if most is None else NEAREST):
            choice = self._added(choice, added, bound, gone)
        bound = min(bound, max(LEAST_TOKENS, int(FILLED * whole)))
        for added in self._then() if most is not None else ():
            choice = self._added(choice, added, bound, gone)
        room = min(bound, int((LEAST_SHARE if most is None else FILLED) * whole))
        for place in self._ranked()[0]:
            choice = self._with_runs(choice, place, room, gone, looked=most is not None)
        return choice

    def tokens(self, choice: Choice) -> int:
        """What all of it takes, with what is told of the rest and what a compaction has left."""
        own = sum(self.costs.of(turn, full=turn in choice.full) for turn in choice.kept)
        told = sum(self.costs.of_text(text) + AROUND for text in self.told(choice.kept).values())
        return own + told + self.costs.summary(self.end)

    def told(self, kept: frozenset[int]) -> dict[int, str]:
        """What is told of what is left out, by the turn before which it stands."""
        found: dict[int, str] = {}
        exchanges: list[Unit] = []
        steps: list[Step] = []
        for unit in self.units:
            if not unit.whole & kept:
                exchanges.append(unit)
                continue
            for step in unit.steps:
                if kept.isdisjoint(step.turns):
                    if step.calls or step.text:
                        steps.append(step)
                    continue
                if exchanges or steps:
                    found[step.turns[0]] = self.lines.line(exchanges, steps)
                exchanges, steps = [], []
        return found

    def _added(self, choice: Choice, added: Addition, bound: int, gone: frozenset[int]) -> Choice:
        """The choice with what is added, as far as that fits: of what was done, the last that does."""
        if gone & self.units[added.place].whole:
            return choice

        def with_last(edits: int | None) -> Choice:
            turns = added.turns if edits is None else self.needs.done(added.place, edits)
            return self._with(choice, replace(added, turns=turns - gone, full=added.full - gone))

        if self.tokens(more := with_last(None)) <= bound:
            return more
        if added.turns != self.needs.done(added.place):
            return choice
        fitting = range(1, len(self.needs.edits(added.place)))
        count = bisect_right(fitting, bound, key=lambda edits: self.tokens(with_last(edits)))
        return with_last(fitting[count - 1]) if count else choice

    def _with_runs(self, choice: Choice, place: int, room: int, gone: frozenset[int], *, looked: bool) -> Choice:
        """The choice with what was run in an exchange, results shortened, and what was only `looked` at.

        As much of each as there is room for, the shortest first: what a run has printed is nowhere else.
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
        for some in ([one for one in left if one.runs], [one for one in left if looked and not one.runs]):

            def with_first(count: int, some: Sequence[Step] = some, before: Choice = choice) -> Choice:
                turns = frozenset(turn for step in some[:count] for turn in step.turns)
                return self._with(before, Addition(place, self.needs.closed(turns) - gone, ANSWER))

            counts = range(1, len(some) + 1)
            count = bisect_right(counts, room, key=lambda one: self.tokens(with_first(one)))
            choice = with_first(count) if count else choice
        return choice

    def _with(self, choice: Choice, added: Addition) -> Choice:
        new, why = added.turns - choice.kept, dict(choice.why)
        for unit in self.units:
            if new & unit.whole:
                why.setdefault(unit.number, NEEDED)
        own = self.units[added.place].number
        if why.get(own, NEEDED) == NEEDED and added.turns & self.units[added.place].whole:
            why[own] = added.why
        return Choice(choice.kept | added.turns, choice.full | added.full, why)

    def _always(self) -> Iterator[tuple[int, str]]:
        best = self._best()
        yield 0, OPENING
        if best:
            yield best[0], ANSWER
        yield len(self.units) - 1, LAST

    def _best(self) -> list[int]:
        """The places of exchanges that anything speaks for, the best first; the last ones, where nothing does."""
        if not any(self._gain):
            return sorted(range(len(self.units)), reverse=True)
        ranked = sorted(range(len(self.units)), key=lambda place: (-self._gain[place], -place))
        return [place for place in ranked if self._gain[place] > 0]

    def _ranked(self) -> tuple[list[int], list[int]]:
        """The places of what answers, and of what else is near, the best first."""
        best = self._best()
        answers = list(dict.fromkeys([*best[:1], *([self._point] if self._point is not None else [])]))
        return answers, [place for place in best if place not in answers]

    def _first(self, nearest: int) -> Iterator[Addition]:
        """What was said and done in what answers, and then in what is near, the best first; and what the last words are
        on, where these are only that it is to go on.
        """
        answers, near = self._ranked()
        best = [(place, ANSWER) for place in answers] + [(place, NEAR) for place in near[:nearest]]
        yield from (Addition(place, self.needs.said(place), why) for place, why in best)
        yield from (Addition(place, self.needs.done(place), why) for place, why in best)
        yield Addition(len(self.units) - 1, self.needs.said(len(self.units) - 1), LAST)

    def _then(self) -> Iterator[Addition]:
        """All of what answers, first with its results shortened; what was done last; and all of what is near."""
        answers, near = self._ranked()
        yield from (Addition(place, self.needs.whole(place), ANSWER) for place in answers)
        yield from (Addition(place, self.needs.whole(place), ANSWER, self.units[place].whole) for place in answers)
        yield Addition(len(self.units) - 1, self.needs.done(len(self.units) - 1), LAST)
        yield from (Addition(place, self.needs.whole(place), NEAR) for place in near[: NEAREST - 1])


def _gain(gains: Gains, number: int, following: int | None) -> float:
    """What speaks for an exchange, or for those that are one with it."""
    own = [gain for at, gain in gains.of.items() if at >= number and (following is None or at < following)]
    return max(own, default=0.0)


def _next(units: Sequence[Unit], place: int) -> int | None:
    return units[place + 1].number if place + 1 < len(units) else None


def _place_of(units: Sequence[Unit], number: int | None) -> int | None:
    if number is None:
        return None
    return max((place for place, unit in enumerate(units) if unit.number <= number), default=0)
