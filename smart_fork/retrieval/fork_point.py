"""The exchange of one session at whose end a fork knows all that is asked. Pure.

Where a question has two parts, or a first answer was wrong, the passage that answers best is too early: what is asked
is known where the talk about it ends. So each exchange is weighed by its words, by its meaning, by what the exchanges
before it have said of the question (`talk`), and by how late it is. Fitted on labelled questions, as the ranking is:
docs/searching.md.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from indexer.store.base import Placement
from smart_fork.retrieval.ranking import best_of

#: How much of what was said of the question an exchange takes over from the one before.
KEPT = 0.6


class Parts(NamedTuple):
    """What speaks for an exchange: `nearest` is the cosine of its best passages, the others are beside the most."""

    nearest: float
    words: float
    talk: float
    late: float


WORTH = Parts(2.0, 2.9, 4.9, 2.9)


def fork_point(
    places: Sequence[Placement], words: Sequence[Mapping[int, float]], similar: Sequence[Mapping[int, float]]
) -> Placement | None:
    """The passage at the end of whose exchange to fork: of all that a session has, in order; `None` where it has none.

    For each phrasing of the question `words` has the scores of chunks by their words, `similar` the cosines of passages
    by their position.
    """
    if not places:
        return None
    points = {
        exchange: sum(worth * value for worth, value in zip(WORTH, speaking, strict=True))
        for exchange, speaking in parts(places, words, similar).items()
    }
    chosen = max(points, key=lambda exchange: (points[exchange], exchange))
    own = [place for place in places if place.exchange == chosen]
    return max(own, key=lambda place: sum(_strength(place, *both) for both in zip(words, similar, strict=True)))


def parts(
    places: Sequence[Placement], words: Sequence[Mapping[int, float]], similar: Sequence[Mapping[int, float]]
) -> dict[int, Parts]:
    """What speaks for each exchange, in the mean of all phrasings."""
    of_exchange: defaultdict[int, list[Placement]] = defaultdict(list)
    for place in places:
        of_exchange[place.exchange].append(place)
    count, last = len(words), max(of_exchange) or 1
    nearest = {
        exchange: sum(max(0.0, best_of([one.get(place.position, 0.0) for place in own])) for one in similar) / count
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
    return {
        exchange: Parts(nearest[exchange], by_words[exchange], talk[exchange] / most_talk, exchange / last)
        for exchange in of_exchange
    }


def _strength(place: Placement, words: Mapping[int, float], similar: Mapping[int, float]) -> float:
    return words.get(place.chunk, 0.0) / (max(words.values(), default=0.0) or 1.0) + similar.get(place.position, 0.0)
