"""The evidence for each exchange of one session: values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import NamedTuple

from indexer.shapes import dataclass


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
    """The evidence by exchange number, from 0; `point` is the exchange at whose end a fork knows all that is asked.

    `why_not` says why there is none, or why only words were compared. `score` is the chance that the session is the one
    that is meant, where that is known.
    """

    parts: Mapping[int, PointParts] = field(default_factory=dict)
    point: int | None = None
    why_not: str = ""
    score: float | None = None
