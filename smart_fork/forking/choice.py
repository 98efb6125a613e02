"""Which turns of a session a budget is spent on: those that gain most a token.

What speaks for an exchange says how likely it is the one that answers. What is gained by keeping it grows with how much
of it is kept: what was asked and answered, then its edits with what they need, then every call with its result, long
ones shortened, and last all of it in full. What is cheap or likely so comes before what is neither.

Pure: what speaks for each exchange is given.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from math import exp

from indexer.masking import Masked
from indexer.shapes import dataclass
from indexer.transcripts.model import Session
from smart_fork.forking.costs import Costs
from smart_fork.forking.units import Step, Unit, marker, plain, title

#: An answer to a question of this length says by itself what it decides.
SAYS_IT = 240


class Needs:
    """What the turns of a session need of each other."""

    def __init__(self, units: Sequence[Unit]) -> None:
        self._units = units
        self._steps = [step for unit in units for step in unit.steps]
        self._place = {turn: place for place, step in enumerate(self._steps) for turn in step.turns}
        self._readings: dict[tuple[int, str], int | None] = {}

    def said(self, place: int) -> frozenset[int]:
        """Of the exchange in that place what was asked and answered, with what it was asked for."""
        return self._units[place].words | self.question(place)

    def done(self, place: int, last: int | None = None) -> frozenset[int]:
        """The same, and all its edits and decisions, or the `last` of them, with all that they need."""
        edits = self.edits(place)
        some = edits[max(0, len(edits) - last) :] if last is not None else edits
        return self.said(place) | self.closed(self._units[place].words | {turn for step in some for turn in step.turns})

    def edits(self, place: int) -> list[Step]:
        """The steps of it that change files, or have the person decide."""
        return [step for step in self._units[place].steps if (step.edits or step.asks) and not step.broken]

    def whole(self, place: int) -> frozenset[int]:
        """All of an exchange, with what that needs."""
        return self.closed(self._units[place].whole) | self.question(place)

    def question(self, place: int) -> frozenset[int]:
        """What the person was asked, or had said before, where that is what an exchange begins with."""
        found = frozenset[int]()
        while place > 0:
            unit, before = self._units[place], self._units[place - 1]
            if not (unit.is_short or (before.asks_back and len(unit.prompt) <= SAYS_IT)):
                break
            place -= 1
            found |= before.words
        return found

    def closed(self, turns: frozenset[int]) -> frozenset[int]:
        """These turns, and where the files that they edit were looked at last, or made where nobody has looked."""
        places = {self._place[turn] for turn in turns if turn in self._place}
        found = set(turns)
        for place in places:
            for path in self._steps[place].edits:
                reading = self._reading(place, path)
                if reading is not None and reading not in places:
                    found.update(self._steps[reading].turns)
        return frozenset(found)

    def _reading(self, place: int, path: str) -> int | None:
        key = (place, path)
        if key not in self._readings:
            earlier = [(at, step) for at, step in enumerate(self._steps[:place]) if not step.broken]
            looked = next((at for at, step in reversed(earlier) if step.shows(path)), None)
            if looked is None:
                looked = next((at for at, step in reversed(earlier) if step.names(path)), None)
            made = next((at for at, step in earlier if step.changes(path)), None)
            self._readings[key] = made if looked is None else looked
        return self._readings[key]


#: What it is worth to keep of what answers what was asked and answered; all its edits beside that, with what they need;
#: every call beside these; and all of it in full. Where as little is wanted as answers, so many of these are kept.
WORTH, LEAST_LEVELS = (1.0, 4.0, 0.3, 0.02), 3
#: How much likelier an exchange is the one that answers by as much as speaks for the best, in words or in meaning: this
#: power of e, as labelled questions have it. Where nothing is known, each is half as likely as the one after it.
SHARPNESS, BEFORE = 3.0, 0.5
#: The words of what is as likely as this come first. Its edits, and those of what a session begins with, for the rest
#: builds on that, are kept beyond the share that is filled.
LIKELY = 0.03
#: Exchanges are filled up to this share of a session: a fork of much of it saves little.
FILLED = 0.25
#: As little as answers is at most this share of a session, or so many tokens, beside what is always kept.
LEAST_SHARE, LEAST_TOKENS = 0.12, 6_000
#: What stands around a line on what is left out, in tokens.
AROUND = 25
OPENING, ANSWER, LAST, NEEDED, NEAR, WANTED = "opening", "answers", "last", "needed", "near", "asked for"


@dataclass(frozen=True, slots=True)
class Gains:
    """The worth of each exchange, by number; `point` is the one at whose end all that is asked is known.

    `unknown` says why there is none.
    """

    of: Mapping[int, float] = field(default_factory=dict)
    point: int | None = None
    unknown: str = ""


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


@dataclass(frozen=True, slots=True)
class Piece:
    """What may be added: what it gains, and about how many tokens it takes."""

    gain: float
    tokens: int
    added: Addition


class Chooser:
    """Chooses among the exchanges of one session."""

    def __init__(self, units: Sequence[Unit], costs: Costs, end: int, session: Session, gains: Gains) -> None:
        self.units, self.costs, self.end, self.session, self.unknown = units, costs, end, session, gains.unknown
        self._name = plain(session.session_id)
        self.needs = Needs(units)
        self._gain = [_gain(gains, unit.number, _next(units, place)) for place, unit in enumerate(units)]
        self._point = _place_of(units, gains.point)

    def smallest(self, drop: Collection[int] = ()) -> Choice:
        """What is always kept: what was asked first, what answers, and what was said last, each in its words."""
        choice, best = Choice(), [(place, ANSWER) for place in self._best()[:1]]
        for place, why in ((0, OPENING), *best, (len(self.units) - 1, LAST)):
            if self.units[place].number not in drop:
                choice = self._with(choice, Addition(place, self.units[place].words, why))
        return choice

    def all_but(self, drop: Collection[int], keep: Collection[int] = ()) -> Choice:
        """Everything but what is to be dropped."""
        kept = frozenset(turn for unit in self.units if unit.number not in drop for turn in unit.whole)
        return Choice(kept, kept, {unit.number: WANTED for unit in self.units if unit.number in keep})

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
        share = LEAST_SHARE if most is None else FILLED
        bound = max(LEAST_TOKENS, int(share * whole))
        most, bound, least = (bound, bound, True) if most is None else (most, min(most, bound), False)
        sure = (0, *self._answers, *(() if least else self._mended()))
        likely = [place for place in self._ranked() if self._chances[place] >= LIKELY or place in sure]
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
            choice = self._with_last(choice, self._addition(place, self.needs.done(place)), most, gone)
        for place in self._answers:
            choice = self._with_runs(choice, place, min(bound, int(share * whole)), gone, looked=not least)
        return choice if least else self._with_beginning(choice, most, gone)

    @cached_property
    def titles(self) -> list[Masked]:
        """The title of each exchange."""
        return [title(unit) for unit in self.units]

    def tokens(self, choice: Choice) -> int:
        """What all of it takes, with what is told of the rest and what a compaction has left."""
        told = sum(self.costs.of_text(text) + AROUND for text in self.told(choice.kept).values())
        return self._own(choice) + told

    def _own(self, choice: Choice) -> int:
        """What is kept of it takes, with what a compaction has left: all but what is told of the rest."""
        own = sum(self.costs.of(turn, full=turn in choice.full) for turn in choice.kept)
        return own + self.costs.summary(self.end)

    def told(self, kept: frozenset[int]) -> dict[int, str]:
        """What is told of what is left out, by the turn before which it stands."""
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

    def _added(self, choice: Choice, added: Addition, bound: int, gone: frozenset[int]) -> Choice:
        """The choice with what is added, where that fits."""
        turns, full = added.turns - gone, added.full - gone
        if gone & self.units[added.place].whole or (turns <= choice.kept and full <= choice.full):
            return choice
        if sum(self.costs.of(turn, full=turn in full) for turn in turns) > bound:
            return choice
        more = self._with(choice, replace(added, turns=turns, full=full))
        return more if self._own(more) <= bound and self.tokens(more) <= bound else choice

    def _with_beginning(self, choice: Choice, bound: int, gone: frozenset[int]) -> Choice:
        """The choice with as much of the session's beginning as fits: a cache that has it reads it for little."""
        for place, unit in enumerate(self.units):
            choice = self._added(choice, Addition(place, unit.whole, OPENING, unit.whole), bound, gone)
            if not (unit.whole <= choice.kept and unit.whole <= choice.full):
                break
        return choice

    def _with_last(self, choice: Choice, added: Addition, bound: int, gone: frozenset[int]) -> Choice:
        """The choice with the last edits of an exchange that fit."""
        if choice.kept >= added.turns or gone & self.units[added.place].whole:
            return choice

        def with_last(edits: int) -> Choice:
            return self._with(choice, replace(added, turns=self.needs.done(added.place, edits) - gone))

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

    def _best(self) -> list[int]:
        """The places of exchanges that anything speaks for, the best first; the last ones, where nothing does."""
        if not any(self._gain):
            return sorted(range(len(self.units)), reverse=True)
        ranked = sorted(range(len(self.units)), key=lambda place: (-self._gain[place], -place))
        return [place for place in ranked if self._gain[place] > 0]

    @cached_property
    def _answers(self) -> list[int]:
        """The places of what answers: the best, and that by whose end all is known."""
        return list(dict.fromkeys([*self._best()[:1], *([self._point] if self._point is not None else [])]))

    def _mended(self) -> list[int]:
        """The place after the best, where files are changed there: what answers is often mended in what follows it."""
        after = [place + 1 for place in self._best()[:1] if place + 1 < len(self.units)]
        return [place for place in after if self.needs.edits(place)]

    def _ranked(self) -> list[int]:
        """The places of all exchanges, the likeliest first."""
        return sorted(range(len(self.units)), key=lambda place: (-self._chances[place], -place))

    @cached_property
    def _chances(self) -> list[float]:
        """How likely each exchange is the one that answers."""
        most, last = max(self._gain), len(self.units) - 1
        odds = [exp(SHARPNESS * (gain - most)) if gain else 0.0 for gain in self._gain]
        if not most:
            odds = [BEFORE ** (last - place) for place in range(len(self.units))]
        return [one / sum(odds) for one in odds]

    def _by_gain(self, places: Iterable[int], levels: int) -> list[Addition]:
        """What may be kept of the exchanges in these places, up to so many `levels` of each, by the gain a token."""
        pieces = [piece for place in places for piece in self._pieces(place, levels)]
        return [piece.added for piece in sorted(pieces, key=lambda piece: -piece.gain / piece.tokens)]

    def _pieces(self, place: int, levels: int) -> list[Piece]:
        """One exchange piece by piece: each gains less a token than the one before, with which it is kept else."""
        found: list[Piece] = []
        before = 0
        for worth, (turns, full) in zip(WORTH[:levels], self._levels(place), strict=False):
            tokens = sum(self.costs.of(turn, full=turn in full) for turn in turns)
            piece = Piece(self._chances[place] * worth, max(1, tokens - before), self._addition(place, turns, full))
            before = max(before, tokens)
            while found and piece.gain * found[-1].tokens >= found[-1].gain * piece.tokens:
                less = found.pop()
                piece = replace(piece, gain=piece.gain + less.gain, tokens=piece.tokens + less.tokens)
            found.append(piece)
        return found if self._chances[place] else []

    def _levels(self, place: int) -> Iterator[tuple[frozenset[int], frozenset[int]]]:
        """How much of an exchange may be kept, from little to all: which turns, and which of them in full."""
        yield self.needs.said(place), frozenset()
        yield self.needs.done(place), frozenset()
        yield self.needs.whole(place), frozenset()
        yield self.needs.whole(place), self.units[place].whole

    def _addition(self, place: int, turns: frozenset[int], full: frozenset[int] = frozenset()) -> Addition:
        return Addition(place, turns, ANSWER if place in self._answers else NEAR, full)


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
