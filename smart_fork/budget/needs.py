"""What goes with what is kept: an edit needs its file's reading, a decision needs its question."""

from __future__ import annotations

from collections.abc import Sequence

from smart_fork.budget.units import Step, Unit

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
