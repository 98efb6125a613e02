"""A family of sessions on a time line: where each begins and ends, and where its forks leave it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from datetime import UTC, datetime

from indexer.shapes import dataclass
from smart_fork.families.told import Relative
from smart_fork.page.phrases import time_of

#: All is in hundredths of the width. So that a session of a minute can be seen in a family of months.
WIDTH, MIN_LENGTH = 100.0, 1.5
#: Moments that are named below the lines.
TICKS = 4


@dataclass(slots=True)
class TimelineRow:
    """One session, from `start` to `end`. `above` is where the line from its parent comes in at its height.

    `passing` are lines from parents to forks that go through; `below` is where lines to its own forks go out, `until`
    the last of them that does so after its end.
    """

    start: float
    end: float
    above: float | None = None
    passing: list[float] = field(default_factory=list)
    below: list[float] = field(default_factory=list)

    @property
    def until(self) -> float | None:
        """Up to where it has to be drawn on, to reach a fork that was made after its end."""
        last = max(self.below, default=0.0)
        return last if last > self.end else None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The rows in the order of the sessions, and moments at equal distances, the first and the last among them."""

    rows: list[TimelineRow]
    ticks: list[str]


def timeline(sessions: Sequence[Relative]) -> Timeline:
    """The rows of a family as `lineage` gives it. A session whose times are not known is as long as all of them."""
    spans = [(_seconds(one.begun or one.started), _seconds(one.last_activity)) for one in sessions]
    known = [moment for span in spans for moment in span if moment is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    scale = (WIDTH - MIN_LENGTH) / (high - low) if high > low else 0.0
    rows = []
    for begun, ended in spans:
        start = ((begun if begun is not None else low) - low) * scale
        end = ((ended if ended is not None else high) - low) * scale + MIN_LENGTH
        rows.append(TimelineRow(round(start, 2), round(max(end, start + MIN_LENGTH), 2)))
    _join(rows, sessions)
    steps = [low + (high - low) * number / (TICKS - 1) for number in range(TICKS)] if high > low else known[:1]
    return Timeline(rows, [datetime.fromtimestamp(moment, UTC).isoformat() for moment in steps])


def _join(rows: Sequence[TimelineRow], sessions: Sequence[Relative]) -> None:
    """Draw the line from each parent down to its fork, through the rows between."""
    place = {one.session_id: number for number, one in enumerate(sessions)}
    for number, one in enumerate(sessions):
        parent = place.get(one.parent or "")
        if parent is None or parent >= number:
            continue
        at = rows[number].start
        rows[number].above = at
        rows[parent].below.append(at)
        for between in rows[parent + 1 : number]:
            between.passing.append(at)


def _seconds(moment: str | None) -> float | None:
    then = time_of(moment)
    return then.timestamp() if then else None
