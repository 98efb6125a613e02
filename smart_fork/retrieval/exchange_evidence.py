"""What speaks for each exchange of one session, as a value: made here, or told by another process of ours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from indexer.shapes import dataclass

#: More exchanges than any session has, and more than speaks for one.
MOST = 1_000_000


class PointParts(NamedTuple):
    """What speaks for an exchange: `nearest` is the cosine of its best passages, the next three are beside the most.

    `pending` is 1 where the exchange after it changes files, and speaks against it.
    """

    nearest: float
    words: float
    talk: float
    late: float
    pending: float


@dataclass(frozen=True, slots=True)
class ExchangeEvidence:
    """What speaks for each exchange, by its number; `point` is the one by whose end all is known.

    `why_not` says why there is nothing. `compared` says that its meaning speaks as well as its words. `score` is the
    chance that the session is the one that is meant, where that is known.
    """

    parts: Mapping[int, PointParts] = field(default_factory=dict)
    point: int | None = None
    why_not: str = ""
    compared: bool = False
    score: float | None = None

    def as_json(self) -> dict[str, object]:
        """As JSON values."""
        exchanges = [[number, *parts] for number, parts in self.parts.items()]
        return {"point": self.point, "score": self.score, "exchanges": exchanges}


def told(given: object) -> ExchangeEvidence:
    """The evidence that another process tells as JSON values, complete as it must be to be told.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(given, dict) or not isinstance(rows := given.get("exchanges"), list) or not rows:
        raise ValueError("no evidence")
    parts = {}
    for row in rows:
        if not isinstance(row, list) or len(row) != 1 + len(PointParts._fields):
            raise ValueError("no exchange")
        number, *values = row
        if not _is_number(number) or number in parts:
            raise ValueError("no exchange's number")
        if not all(isinstance(value, float | int) and -MOST < value < MOST for value in values):
            raise ValueError("no evidence for an exchange")
        parts[number] = PointParts(*values)
    point = given.get("point")
    if point is not None and not _is_number(point):
        raise ValueError("no point")
    score = given.get("score")
    if score is not None and not (isinstance(score, float | int) and 0 <= score <= 1):
        raise ValueError("no score")
    return ExchangeEvidence(parts, point, compared=True, score=score)


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < MOST
