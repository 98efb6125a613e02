"""A family of sessions as lines on a time line: where each begins, from whose line it leaves, where it ends. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

WIDTH, ROW, MARGIN = 640.0, 28.0, 8.0
#: So that a session of a minute can be seen in a family of months.
MIN_LENGTH = 6.0


@dataclass(frozen=True, slots=True)
class Line:
    """One session: from `start` to `end` at height `y`; `above` is the height of its parent's line."""

    start: float
    end: float
    y: float
    above: float | None


@dataclass(frozen=True, slots=True)
class Timeline:
    """The lines in the order of the sessions, and how large the drawing is. `first` and `last` are days."""

    lines: list[Line]
    width: float
    height: float
    first: str
    last: str


def timeline(sessions: Sequence[dict[str, Any]]) -> Timeline:
    """The lines of a family as `lineage` gives it. A session whose times are not known is as long as all of them."""
    spans = [(_seconds(one["begun"] or one["started"]), _seconds(one["last_activity"])) for one in sessions]
    known = [moment for span in spans for moment in span if moment is not None]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    scale = (WIDTH - 2 * MARGIN - MIN_LENGTH) / (high - low) if high > low else 0.0
    rows = {one["session_id"]: number for number, one in enumerate(sessions)}
    lines = []
    for number, (one, (begun, ended)) in enumerate(zip(sessions, spans, strict=True)):
        start = MARGIN + ((begun if begun is not None else low) - low) * scale
        end = MARGIN + ((ended if ended is not None else high) - low) * scale
        parent = rows.get(one["parent"])
        lines.append(
            Line(start, max(end, start + MIN_LENGTH), _height(number), _height(parent) if parent is not None else None)
        )
    days = sorted(moment[:10] for one in sessions for moment in (one["begun"], one["last_activity"]) if moment)
    return Timeline(lines, WIDTH, _height(len(sessions)), days[0] if days else "", days[-1] if days else "")


def _height(row: int) -> float:
    return ROW * row + ROW / 2


def _seconds(moment: str | None) -> float | None:
    try:
        return datetime.fromisoformat(moment or "").timestamp()
    except (ValueError, OverflowError):
        return None
