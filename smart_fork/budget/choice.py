"""Which turns of a session a budget is spent on: what answers first, with what it needs, then what gains most a token.

Pure: what speaks for each exchange is given.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from indexer.transcripts.model import Session
from smart_fork.budget.costs import Costs
from smart_fork.budget.left_out import line
from smart_fork.budget.needs import Needs
from smart_fork.budget.units import Step, Unit

#: So many exchanges that answer best are kept before others are filled up.
ANSWERS = 3
#: And so many in what was asked and answered.
NEAREST = 8
#: What only is near is kept, beside its words, up to this share of a session: a fork of much of it saves little.
FILLED = 0.25
#: As little as answers is at most this share of a session, or so many tokens, beside what is always kept.
LEAST_SHARE, LEAST_TOKENS = 0.12, 6_000
#: An exchange for which less than this share of the best one's evidence speaks is not worth its tokens.
WORTH = 0.5
#: What stands around a line on what is left out, in tokens.
AROUND = 25
OPENING, ANSWER, LAST, NEEDED, NEAR, WANTED = "opening", "answers", "last", "needed", "near", "asked for"


@dataclass(frozen=True, slots=True)
class Gains:
    """What speaks for each exchange, by its number; `point` is the one by whose end all that is asked is known."""

    of: Mapping[int, float] = field(default_factory=dict)
    point: int | None = None


@dataclass(slots=True)
class Choice:
    """What is kept so far, and why each exchange is."""

    kept: frozenset[int] = frozenset()
    why: dict[int, str] = field(default_factory=dict)


class Chooser:
    """Chooses among the exchanges of one session."""

    def __init__(self, units: Sequence[Unit], costs: Costs, end: int, session: Session, gains: Gains) -> None:
        self.units, self.costs, self.end, self.session = units, costs, end, session
        self.needs = Needs(units)
        self._gain = [_gain(gains, unit.number, _next(units, place)) for place, unit in enumerate(units)]
        self._point = _place_of(units, gains.point)

    def smallest(self, drop: Collection[int] = ()) -> Choice:
        """What is always kept: what was asked first, what answers, and what was said last, each in its words."""
        choice = Choice()
        for place, why in self._always():
            if self.units[place].number not in drop:
                choice = self._with(choice, place, self.units[place].words, why)
        return choice

    def within(self, most: int | None, keep: Collection[int] = (), drop: Collection[int] = ()) -> Choice:
        """What fits into `most` tokens, or where that is `None`, as little as answers.

        What is to be kept or dropped is, whatever it takes.
        """
        choice = self.smallest(drop)
        for place, unit in enumerate(self.units):
            if unit.number in keep:
                choice = self._with(choice, place, self.needs.whole(place), WANTED)
        gone = frozenset(turn for unit in self.units if unit.number in drop for turn in unit.whole)
        whole = sum(self.costs.turns[: self.end + 1])
        least = max(LEAST_TOKENS, int(LEAST_SHARE * whole))
        for steps, bound in (
            (self._answers(ANSWERS if most is None else NEAREST), least if most is None else most),
            (self._further() if most is not None else (), min(most or 0, max(LEAST_TOKENS, int(FILLED * whole)))),
        ):
            for place, turns, why in steps:
                if self.units[place].number in drop or turns <= choice.kept:
                    continue
                more = self._with(choice, place, turns - gone, why)
                if self.tokens(more.kept) <= bound:
                    choice = more
        return choice

    def tokens(self, kept: frozenset[int]) -> int:
        """What all of it takes, with what is told of the rest and what a compaction has left."""
        own = sum(self.costs.turns[turn] for turn in kept)
        told = sum(self.costs.of_text(text) + AROUND for text in self.told(kept).values())
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
                    found[step.turns[0]] = line(exchanges, steps, self.session.session_id, self.session.cwd)
                exchanges, steps = [], []
        return found

    def _with(self, choice: Choice, place: int, turns: frozenset[int], why: str) -> Choice:
        added = turns - choice.kept
        told = dict(choice.why)
        for unit in self.units:
            if added & unit.whole:
                told.setdefault(unit.number, why if unit is self.units[place] else NEEDED)
        if self.units[place].number in told and told[self.units[place].number] == NEEDED:
            told[self.units[place].number] = why
        return Choice(choice.kept | turns, told)

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

    def _answers(self, nearest: int) -> Iterator[tuple[int, frozenset[int], str]]:
        """What answers and what is near, in words, and then what was done in what answers."""
        answers, near = self._ranked()
        for place in answers + near[:nearest]:
            yield place, self.units[place].words | self.needs.question(place), ANSWER if place in answers else NEAR
        for place in answers:
            yield from ((place, turns, ANSWER) for turns in self.needs.cores(place))

    def _further(self) -> Iterator[tuple[int, frozenset[int], str]]:
        """What was done in what is near, and last, and all of what answers."""
        answers, near = self._ranked()
        most = max(self._gain)
        near = [place for place in near if self._gain[place] >= WORTH * most]
        for place in near[: ANSWERS - 1]:
            yield from ((place, turns, NEAR) for turns in self.needs.cores(place))
        yield len(self.units) - 1, self.needs.core(len(self.units) - 1), LAST
        for place in sorted(near[ANSWERS - 1 :], key=self._worth, reverse=True):
            yield place, self.needs.core(place), NEAR
        for place in answers:
            yield place, self.needs.whole(place), ANSWER

    def _worth(self, place: int) -> float:
        return self._gain[place] / max(1, sum(self.costs.turns[turn] for turn in self.needs.core(place)))


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
