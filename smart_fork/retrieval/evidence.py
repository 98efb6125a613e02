"""What the index knows of the sessions that may answer an intent."""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from indexer.project import is_within
from indexer.store.base import Placement, Scored, SessionRow, Similarities, Store
from smart_fork.retrieval.found import Query
from smart_fork.retrieval.query import terms_of
from smart_fork.retrieval.ranking import Coverage, Evidence

NEAREST_CHUNKS = 400
WORD_CHUNKS = 400
WORD_SESSIONS = 200
#: The best sessions and chunks by their words, of which is asked how much of the intent they have.
COVERED = 20
#: Sessions of which every chunk is compared with the intent.
COMPARED = 60
NO_COVERAGE = Coverage()
#: An intent of more terms is a sentence, and none of them the beginning of a name; nor is one of fewer letters.
MOST_NAMES, SHORTEST_BEGINNING = 2, 3


@dataclass(frozen=True, slots=True)
class Passage:
    """A chunk that speaks for a session: how much, where it stands, and its cosine where that is known."""

    strength: float
    place: Placement
    similarity: float | None


@dataclass(slots=True)
class Gathered:
    """Sessions that may be shown, by row, with what speaks for each; `dropped` had no id or directory (F-058)."""

    sessions: dict[int, SessionRow] = field(default_factory=dict)
    evidence: dict[int, Evidence] = field(default_factory=dict)
    passages: dict[int, Passage] = field(default_factory=dict)
    coverage: Coverage = NO_COVERAGE
    dropped: int = 0


def gather(store: Store, query: Query, vector: bytes | None, *, words: bool) -> Gathered:
    """Everything that ranking needs, by the words of the intent, by its vector, or by both."""
    similarities = store.similarities(vector, query.scope) if vector is not None else None
    near = similarities.best(NEAREST_CHUNKS) if similarities else []
    terms = _known(store, terms_of(query.intent)) if words else {}
    any_term = " OR ".join(terms)
    by_chunk = store.match_words("chunks", any_term, query.scope, WORD_CHUNKS) if terms else []
    by_session = store.match_words("sessions", any_term, query.scope, WORD_SESSIONS) if terms else []
    own = {place.chunk for place in store.placements_of(query.caller.row)} if query.caller else set[int]()
    places = store.placements({hit.row for hit in (*near, *by_chunk)} - own)
    rows = store.sessions({place.session for place in places} | {hit.row for hit in by_session})
    found = Gathered()
    found.sessions, found.dropped = _allowed(rows.values(), query)
    found.evidence, found.passages = _evidence(places, near, by_chunk, by_session, found.sessions, query)
    for row, count in store.chunk_counts(found.evidence).items():
        found.evidence[row].chunks = count
    if similarities:
        _compare_all(store, similarities, found.evidence, own)
    if terms:
        placed = {place.chunk for place in places if place.session in found.sessions}
        chunks = [hit.row for hit in by_chunk if hit.row in placed]
        found.coverage = _coverage(store, terms, by_session, chunks, found.evidence)
    return found


def _known(store: Store, terms: Sequence[str]) -> dict[str, int]:
    """How many sessions have each term. Of a name typed in part, which none has, those that begin with it."""
    known = {term: store.sessions_with(term) for term in terms}
    if len(known) > MOST_NAMES or any(known.values()):
        return known
    # Without its last letter, which a stem may not have; a term stands between quotes.
    beginnings = [f'{term[:-2]}"*' for term in known if len(term) > SHORTEST_BEGINNING + 2]
    return {beginning: store.sessions_with(beginning) for beginning in beginnings}


def _allowed(rows: Iterable[SessionRow], query: Query) -> tuple[dict[int, SessionRow], int]:
    """Sessions that may be shown, never the caller; and how many had no id or directory (F-058, F-075)."""
    allowed: dict[int, SessionRow] = {}
    dropped = 0
    for row in rows:
        if query.scope.session not in (None, row.row):  # another one with the same beginning
            continue
        if query.scope.within and not (row.resolved_cwd and is_within(row.resolved_cwd, query.scope.within)):
            continue
        if not row.session_id or not (row.cwd or query.everywhere):
            dropped += 1
            continue
        if row.session_id in query.hidden or (query.caller and row.row == query.caller.row):
            continue
        allowed[row.row] = row
    return allowed, dropped


def _evidence(  # noqa: PLR0917 - all that is known
    places: Sequence[Placement], near: Sequence[Scored], by_chunk: Sequence[Scored], by_session: Sequence[Scored],
    allowed: Mapping[int, SessionRow], query: Query,
) -> tuple[dict[int, Evidence], dict[int, Passage]]:  # fmt: skip
    evidence: defaultdict[int, Evidence] = defaultdict(Evidence)
    best: dict[int, Passage] = {}
    cosine = {hit.row: hit.score for hit in near}
    words = {hit.row: hit.score for hit in by_chunk}
    most = max(words.values(), default=0.0) or 1.0
    for place in places:
        if place.session not in allowed:
            continue
        one = evidence[place.session]
        if place.chunk in cosine:
            one.similar[place.position] = cosine[place.chunk]
        if place.chunk in words:
            one.passages.append(words[place.chunk])
        strength = words.get(place.chunk, 0.0) / most + max(0.0, cosine.get(place.chunk, 0.0))
        if place.session not in best or strength > best[place.session].strength:
            best[place.session] = Passage(strength, place, cosine.get(place.chunk))
    for hit in by_session:
        # The words of a whole session include what a fork shares with its parent, which the caller knows already.
        if hit.row in allowed and not (query.caller and allowed[hit.row].root_id == query.caller.root_id):
            evidence[hit.row].words = hit.score
    return dict(evidence), best


def _compare_all(
    store: Store, similarities: Similarities, evidence: Mapping[int, Evidence], own: Collection[int]
) -> None:
    """The cosines of all chunks of the most promising sessions, not only of those that are among the nearest."""
    nearest = heapq.nlargest(COMPARED, evidence, key=lambda row: max(evidence[row].similar.values(), default=0.0))
    by_words = heapq.nlargest(COVERED, evidence, key=lambda row: evidence[row].words)
    by_passage = heapq.nlargest(COVERED, evidence, key=lambda row: max(evidence[row].passages, default=0.0))
    promising = {*nearest, *by_words, *by_passage}
    unknown = [row for row in promising if len(evidence[row].similar) < evidence[row].chunks]
    missing = {
        (row, place.position): place.chunk
        for row in unknown
        for place in store.placements_of(row)
        if place.position not in evidence[row].similar and place.chunk not in own
    }
    cosine = similarities.of(set(missing.values())) if missing else {}
    for (row, position), chunk in missing.items():
        if chunk in cosine:
            evidence[row].similar[position] = cosine[chunk]


def _coverage(
    store: Store, terms: Mapping[str, int], by_session: Sequence[Scored], chunks: Sequence[int],
    evidence: Mapping[int, Evidence],
) -> Coverage:  # fmt: skip
    """How much of the intent's words the best sessions, the best chunks, and each title have."""
    sessions = [hit.row for hit in by_session if hit.row in evidence]
    everything = store.counts().sessions
    shares: dict[str, defaultdict[int, float]] = {table: defaultdict(float) for table in ("s", "c", "t")}
    total = 0.0
    for term, count in terms.items() if sessions else ():
        weight = math.log((everything - count + 0.5) / (count + 0.5) + 1)
        total += weight
        for table, having in (
            ("s", store.having("sessions", term, sessions[:COVERED])),
            ("c", store.having("chunks", term, chunks[:COVERED])),
            ("t", store.having("titles", term, sessions)),
        ):
            for row in having:
                shares[table][row] += weight
    if not total:
        return NO_COVERAGE
    for row, share in shares["t"].items():
        evidence[row].title = share / total if evidence[row].words else 0.0
    return Coverage(max(shares["s"].values(), default=0.0) / total, max(shares["c"].values(), default=0.0) / total)
