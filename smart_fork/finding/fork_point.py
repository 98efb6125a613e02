"""The exchange of one session at whose end a fork knows all that is asked. Pure.

Where a question has two parts, or a first answer was wrong, the passage that answers best is too early: what is asked
is known where the talk about it ends. So each exchange is weighed by its words, by its meaning, by what the exchanges
before it have said of the question (`talk`), and by how late it is. What was asked, planned or reviewed and is done or
mended in the next exchange (`pending`) is known only there. Fitted on labelled questions, as the ranking is:
docs/explanation/searching.md.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from itertools import pairwise
from typing import NamedTuple

from indexer.shapes import dataclass
from indexer.store.base import Placement
from smart_fork.finding.ranking import best_of


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


#: How much of what was said of the question an exchange takes over from the one before.
KEPT = 0.6
#: The line of an action that changes files.
_EDITS = re.compile(r"^edit \S", re.MULTILINE)


WORTH = PointParts(1.3, 1.8, 3.4, 1.5, -1.3)


def edited(places: Sequence[Placement], texts: Mapping[int, str]) -> set[int]:
    """The exchanges that change files, by the `texts` of all their chunks."""
    return {place.exchange for place in places if _EDITS.search(texts.get(place.chunk, ""))}


def fork_point(
    places: Sequence[Placement], words: Sequence[Mapping[int, float]], similar: Sequence[Mapping[int, float]],
    changing: Collection[int],
) -> Placement | None:  # fmt: skip
    """The passage at the end of whose exchange to fork: of all that a session has, in order; `None` where it has none.

    For each phrasing of the question `words` has the scores of chunks by their words; for each that was embedded
    `similar` has the cosines of passages by their position; `changing` are the exchanges that change files.
    """
    if not places:
        return None
    points = {
        exchange: sum(worth * value for worth, value in zip(WORTH, speaking, strict=True))
        for exchange, speaking in parts(places, words, similar, changing).items()
    }
    chosen = max(points, key=lambda exchange: (points[exchange], exchange))
    own = [place for place in places if place.exchange == chosen]
    return max(own, key=lambda place: _by_words(place, words) + _by_meaning(place, similar))


def parts(
    places: Sequence[Placement], words: Sequence[Mapping[int, float]], similar: Sequence[Mapping[int, float]],
    changing: Collection[int],
) -> dict[int, PointParts]:  # fmt: skip
    """What speaks for each exchange, in the mean of all phrasings."""
    of_exchange: defaultdict[int, list[Placement]] = defaultdict(list)
    for place in places:
        of_exchange[place.exchange].append(place)
    count, last = len(words), max(of_exchange) or 1
    nearest = {
        exchange: sum(max(0.0, best_of([one.get(place.position, 0.0) for place in own])) for one in similar)
        / len(similar)
        for exchange, own in of_exchange.items()
    }
    most = [max(scores.values(), default=0.0) or 1.0 for scores in words]
    by_words = {
        exchange: sum(
            max(one.get(place.chunk, 0.0) for place in own) / top for one, top in zip(words, most, strict=True)
        )
        / count
        for exchange, own in of_exchange.items()
    }
    most_near, most_words = max(nearest.values()) or 1.0, max(by_words.values()) or 1.0
    talk: dict[int, float] = {}
    kept = 0.0
    for exchange in sorted(of_exchange):
        kept = KEPT * kept + nearest[exchange] / most_near + by_words[exchange] / most_words
        talk[exchange] = kept
    most_talk = max(talk.values()) or 1.0
    pending = {exchange for exchange, following in pairwise(sorted(of_exchange)) if following in changing}
    return {
        exchange: PointParts(
            nearest[exchange], by_words[exchange], talk[exchange] / most_talk, exchange / last, exchange in pending
        )
        for exchange in of_exchange
    }


def lost(turn: int, ends: int | None, forgotten: int, gap: int = 0) -> str:
    """Return why the agent's own fork of all of a session does not know a passage: "compaction", "gap", or nothing.

    Its last compaction has `forgotten` so many turns. A passage whose exchange `ends` later is in what was left of it.
    """
    if ends is not None and ends < forgotten:
        return "compaction"
    return "gap" if turn < gap else ""


def _by_words(place: Placement, words: Sequence[Mapping[int, float]]) -> float:
    most = [max(one.values(), default=0.0) or 1.0 for one in words]
    return sum(one.get(place.chunk, 0.0) / top for one, top in zip(words, most, strict=True)) / len(words)


def _by_meaning(place: Placement, similar: Sequence[Mapping[int, float]]) -> float:
    return sum(one.get(place.position, 0.0) for one in similar) / len(similar)
