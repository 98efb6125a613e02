"""From documents that a search program has ranked to sessions: scope, families, and the passage that was meant.

Of what the program says only the order is believed: whose a document is says our export, who may see it our index.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple

from indexer.masking import mask
from indexer.store.base import Placement, SessionRow, Store
from indexer.transcripts.model import AgentName
from smart_fork.finding.engine import EngineQuestion, RankedDocument, SearchEngine
from smart_fork.finding.evidence import admitted, families, known_to, without_askers
from smart_fork.finding.query import Candidate, Candidates, Query, words_of
from smart_fork.finding.quotations import matched_words
from smart_fork.finding.search import lines_of

log = logging.getLogger(__name__)

#: Who speaks in what only the engine quotes is not known.
_NOBODY = ((0, None),)


class _Passage(NamedTuple):
    """A passage of a session, and whether it is the one that the engine quotes."""

    place: Placement
    text: str
    quoted: bool


def search_documents(store: Store, query: Query, engine: SearchEngine, agents: tuple[AgentName, ...]) -> Candidates:
    """Return the engine's results that may be shown."""
    words = words_of(query.intent)
    known = known_to(store, query.caller, query.relatives) if query.caller else set[int]()
    if not query.scope.parts:  # there is nothing to search, which is no failure
        return Candidates((), "hybrid", engine=engine.name)

    def enough(documents: Sequence[RankedDocument]) -> bool:
        return len(_best(store, query, known, documents)[0]) >= query.limit

    ranking = engine.ask(EngineQuestion(query.intent, words, agents, enough=enough))
    best, unknown = _best(store, query, known, ranking.documents)
    if ranking.way is None:
        log.warning("%s could not be searched: %s", engine.name, ranking.error)
    return Candidates(
        tuple(_hit(store, query, known, session, document) for session, document in best[: query.limit]),
        ranking.way or "recent", ranking.error, ranking.dropped + unknown, engine=engine.name, said=ranking.said,
    )  # fmt: skip


def _best(
    store: Store, query: Query, known: Collection[int], documents: Iterable[RankedDocument]
) -> tuple[list[tuple[SessionRow, RankedDocument]], int]:
    """The best document of each family that may be shown, best first; and how many are of no session that we know."""
    found: dict[int, tuple[SessionRow, RankedDocument]] = {}
    unknown = 0
    for document in documents:
        row = store.session(document.agent, document.session_id)
        if row is None:
            unknown += 1
        elif row.part in query.scope.parts and (row.row not in found or _order(document) > _order(found[row.row][1])):
            found[row.row] = (row, document)
    shown, dropped = admitted((row for row, _ in found.values()), query)
    shown = without_askers(store, shown, (query.intent, *query.also))
    ranked = [found[row] for row in shown if _fits(found[row][1], query.min_score)]
    ranked.sort(key=lambda one: one[0].session_id)
    ranked.sort(key=lambda one: (_order(one[1]), one[0].until), reverse=True)
    best: dict[str, tuple[SessionRow, RankedDocument]] = {}
    family = families(row for row, _ in ranked)
    for row, document in ranked:
        if not query.is_kin(row) or _passage(store, query, known, row, document):
            best.setdefault(family[row.row], (row, document))
    return list(best.values()), unknown + dropped


def _order(document: RankedDocument) -> float:
    """Those without a score come last."""
    return -1.0 if document.score is None else document.score


def _fits(document: RankedDocument, min_score: float | None) -> bool:
    """Return True if the document's score is high enough. One without a score always passes."""
    return min_score is None or (document.score is not None and document.score >= min_score)


def _hit(
    store: Store, query: Query, known: Collection[int], session: SessionRow, document: RankedDocument
) -> Candidate:
    words = words_of(query.intent)
    passage = _passage(store, query, known, session, document)
    place = passage.place if passage else None
    own = passage is not None and (passage.quoted or query.is_kin(session) or not document.snippet.strip())
    text = passage.text if passage and own else mask(document.snippet)
    return Candidate(
        session, document.score or 0.0, place, text, matched_words(text, words), None,
        tuple(store.family(session.root_id)), None,
        lines_of(store, session, place) if place else None, words,
        store.voices(place) if place and own else _NOBODY,
    )  # fmt: skip


def _passage(
    store: Store, query: Query, known: Collection[int], session: SessionRow, document: RankedDocument
) -> _Passage | None:
    """The passage that a snippet is of: that with most of its lines, else that with most of the intent's words.

    None is what the caller has (`known`), in a session that has a part of it.
    """
    old = known if query.is_kin(session) else ()
    places = [place for place in store.placements_of(session.row) if place.chunk not in old]
    texts = store.texts({place.chunk for place in places})
    words = words_of(query.intent)
    lines = {stripped for line in document.snippet.splitlines() if len(stripped := line.strip()) > 1}
    best: tuple[int, int] = (0, 0)
    found: _Passage | None = None
    for place in places:
        text = texts.get(place.chunk, "")
        fit = (sum(len(line) for line in lines if line in text), len(matched_words(text, words)))
        if fit > best:
            best, found = fit, _Passage(place, text, quoted=fit[0] > 0)
    return found
