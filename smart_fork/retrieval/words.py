"""The words of a question in all its phrasings: each is looked for once, and speaks for every phrasing that has it."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain

from indexer.shapes import dataclass
from indexer.store.base import HavingTable, Scored, Searchable, WordTable
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.query import names_of, quoted_names, terms_of

#: A phrasing of more terms is a sentence, and none of them the beginning of a name; nor is one of fewer letters.
MOST_NAMES, SHORTEST_BEGINNING = 2, 3

#: What the words find of sessions and passages, and of how many first exchanges of each: together about one batch.
FOUND_SESSIONS, FOUND_CHUNKS, BEGINNINGS = 10, 48, 8


@dataclass(frozen=True, slots=True)
class Matches:
    """The best rows of a table by all words, and the BM25 that each phrasing gives them."""

    rows: frozenset[int]
    scores: tuple[Mapping[int, float], ...]


class QueryWords:
    """The known terms of each phrasing, rarer ones weighing more, and what they find in the scope of a question."""

    def __init__(self, store: Searchable, query: Query) -> None:
        self._store, self._scope = store, query.scope
        everything = store.session_count()
        asked = [terms_of(text) for text in query.phrasings]
        counts = store.sessions_with(list(dict.fromkeys(term for terms in asked for term in terms)))
        self._phrasings = [
            {term: _weight(count, everything) for term, count in _known(terms, counts, store.sessions_with).items()}
            for terms in asked
        ]
        self._terms = list(dict.fromkeys(term for terms in self._phrasings for term in terms))
        self._names = [*(names_of(text) for text in query.phrasings), quoted_names(query.in_play)]
        self._having: dict[HavingTable, dict[str, Collection[int]]] = {}

    def matches(self, table: WordTable, limit: int) -> Matches:
        """The best rows of a table."""
        best = self._store.match_words(table, self._terms, self._scope, limit)
        return Matches(frozenset(hit.row for hit in best), self._shared(table, best))

    def _shared(self, table: WordTable, best: Sequence[Scored]) -> tuple[Mapping[int, float], ...]:
        """BM25 adds up term by term, so the score of each phrasing is the sum of those of its own terms."""
        if len(self._phrasings) == 1:
            return (dict(best),)
        rows = [hit.row for hit in best]
        scores = tuple(defaultdict[int, float](float) for _ in self._phrasings)
        by_term = self._store.word_scores(table, self._terms, self._scope, rows) if rows else {}
        self._having[table] = dict(by_term)
        for term, found in by_term.items():
            for terms, score in zip(self._phrasings, scores, strict=True):
                if term in terms:
                    for row, points in found.items():
                        score[row] += points
        return scores

    def coverage(self, table: HavingTable, scores: Sequence[Mapping[int, float]], most: int) -> list[dict[int, float]]:
        """By phrasing, how much of its words (0…1, rare ones weighing more) each of its `most` best rows has."""
        best = [heapq.nlargest(most, score, key=score.__getitem__) for score in scores]
        asked = {row for rows in best for row in rows}
        having = self._having.get(table) or self._store.having(table, self._terms, asked)
        return [_shares(terms, rows, having) for terms, rows in zip(self._phrasings, best, strict=True)]

    def worked_on(self, sessions: Collection[int]) -> list[dict[int, float]]:
        """By phrasing, how much of the files and names of code in it (0…1, rare ones weighing more) each of these
        sessions has edited or written; last, how much of the files in play. What none of them has is not counted.
        """
        names = list(dict.fromkeys(chain.from_iterable(self._names)))
        having = self._store.having("work", names, sessions) if names else {}
        weights = {name: _weight(len(rows), len(sessions)) for name, rows in having.items() if rows}
        return [
            _shares({name: weights[name] for name in of_phrasing if name in weights}, list(sessions), having)
            for of_phrasing in self._names
        ]


def found_by_words(store: Searchable, query: Query) -> frozenset[int]:
    """The passages that answer best by their words, and what the exchanges of the best sessions begin with."""
    words = QueryWords(store, query)
    begin: list[int] = []
    for row in words.matches("sessions", FOUND_SESSIONS).rows:
        exchanges = {place.exchange: place.chunk for place in reversed(store.placements_of(row))}
        begin += list(exchanges.values())[-BEGINNINGS:]
    return words.matches("chunks", FOUND_CHUNKS).rows.union(begin)


def _shares(terms: Mapping[str, float], rows: Sequence[int], having: Mapping[str, Collection[int]]) -> dict[int, float]:
    shares = dict.fromkeys(rows, 0.0)
    total = sum(terms.values())
    for term, weight in terms.items() if rows and total else ():
        for row in shares.keys() & having[term]:
            shares[row] += weight / total
    return shares


def _weight(count: int, everything: int) -> float:
    return math.log((everything - count + 0.5) / (count + 0.5) + 1)


def _known(
    terms: Sequence[str], counts: Mapping[str, int], count: Callable[[Sequence[str]], Mapping[str, int]]
) -> Mapping[str, int]:
    """How many sessions have each term. Of a name typed in part, which none has, those that begin with it."""
    known = {term: counts[term] for term in terms}
    if len(known) > MOST_NAMES or any(known.values()):
        return known
    # Without its last letter, which a stem may not have; a term stands between quotes.
    return count([f'{term[:-2]}"*' for term in known if len(term) > SHORTEST_BEGINNING + 2])
