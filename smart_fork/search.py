"""Which sessions answer an intent: candidates by words and by meaning, one score a session, one hit a family."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence

from indexer.project import is_within
from indexer.store.base import Placement, Scored, SessionRow, Store
from smart_fork.found import Found, Hit, Mode, Query
from smart_fork.query import fts_query, words_of
from smart_fork.ranking import Evidence, scores
from smart_fork.rerank import RERANKED, Rerank, SecondLook
from smart_fork.snippets import matched_words

#: The intent as a float32 vector, or an exception that says why not.
Embed = Callable[[str], bytes]

NEAREST_CHUNKS = 2000
WORD_CHUNKS = 400
WORD_SESSIONS = 200
#: Sessions looked at for how many of the query's words they have.
COVERED_SESSIONS = 20


def search(store: Store, query: Query, embed: Embed, rerank: Rerank | None = None) -> Found:
    """Hybrid; where that fails vectors alone, then words alone; where all fail nothing, ``recent`` (F-021…F-026)."""
    if not query.scope.parts:  # there is nothing to search, which is no failure
        return Found((), "hybrid")
    error = ""
    embed = _once(embed)
    modes: tuple[Mode, ...] = ("hybrid", "vector", "lexical")
    for mode in modes:
        try:
            look = SecondLook(rerank)
            hits, dropped = _search(store, query, embed, mode, look)
        except Exception as failure:  # noqa: BLE001 - whatever one way of searching dies of, the next one may live
            error = f"{mode} search failed: {str(failure) or type(failure).__name__}"
        else:
            return Found(hits, mode, error, dropped, look.error)
    return Found((), "recent", error)


def _once(embed: Embed) -> Embed:
    """`embed` called once a question, also where it fails: nobody waits for a slow model twice."""
    kept: list[bytes | Exception] = []

    def embed_once(text: str) -> bytes:
        if not kept:
            try:
                kept.append(embed(text))
            except Exception as error:  # noqa: BLE001 - raised again below, each time
                kept.append(error)
        if isinstance(kept[0], Exception):
            raise kept[0]
        return kept[0]

    return embed_once


def _search(store: Store, query: Query, embed: Embed, mode: Mode, look: SecondLook) -> tuple[tuple[Hit, ...], int]:
    near: list[Scored] = []
    if mode != "lexical":
        near = store.nearest(embed(query.intent), query.scope, NEAREST_CHUNKS)
    by_chunk: list[Scored] = []
    by_session: list[Scored] = []
    if mode != "vector":
        words = fts_query(query.intent)
        by_chunk = store.match_words("chunks", words, query.scope, WORD_CHUNKS)
        by_session = store.match_words("sessions", words, query.scope, WORD_SESSIONS)
    own = {place.chunk for place in store.placements_of(query.caller.row)} if query.caller else set[int]()
    places = _by_chunk(store.placements({hit.row for hit in (*near, *by_chunk)} - own))
    rows = store.sessions(
        {place.session for group in places.values() for place in group} | {hit.row for hit in by_session}
    )
    allowed, dropped = _allowed(rows.values(), query)
    evidence, best = _gather(near, by_chunk, by_session, places, allowed, query)
    for row, covered in _coverage(store, query.intent, by_session, evidence).items():
        evidence[row].coverage = covered
    for row, count in store.chunk_counts(evidence).items():
        evidence[row].chunks = count
    ranked = _one_a_family(scores(evidence), allowed)
    if look.rerank:
        chunk_of = {row: best[row][1].chunk for row, _ in ranked[:RERANKED] if row in best}
        texts = store.texts(chunk_of.values())
        ranked = look.at(query.intent, ranked, {row: texts.get(chunk, "") for row, chunk in chunk_of.items()})
    wanted = [(row, score) for row, score in ranked if query.min_score is None or score >= query.min_score]
    return _hits(store, wanted[: query.limit], allowed, best, query.intent), dropped


def _by_chunk(placements: Iterable[Placement]) -> dict[int, list[Placement]]:
    groups: defaultdict[int, list[Placement]] = defaultdict(list)
    for place in placements:
        groups[place.chunk].append(place)
    return groups


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


def _gather(  # noqa: PLR0917 - all that is known
    near: Sequence[Scored], by_chunk: Sequence[Scored], by_session: Sequence[Scored],
    places: dict[int, list[Placement]], allowed: dict[int, SessionRow], query: Query,
) -> tuple[dict[int, Evidence], dict[int, tuple[float, Placement, float | None]]]:  # fmt: skip
    """The evidence for each session, and its best chunk as (strength, place, cosine)."""
    evidence: defaultdict[int, Evidence] = defaultdict(Evidence)
    best: dict[int, tuple[float, Placement, float | None]] = {}
    cosine = {hit.row: hit.score for hit in near}
    strongest = max((hit.score for hit in by_chunk), default=1.0) or 1.0
    word_share = {hit.row: hit.score / strongest for hit in by_chunk}
    for chunk, group in places.items():
        strength = word_share.get(chunk, 0.0) + max(0.0, cosine.get(chunk, 0.0))
        for place in group:
            if place.session not in allowed:
                continue
            one = evidence[place.session]
            if chunk in cosine:
                one.similar[place.position] = cosine[chunk]
            if chunk in word_share:
                one.chunk_words.append(word_share[chunk])
            if place.session not in best or strength > best[place.session][0]:
                best[place.session] = (strength, place, cosine.get(chunk))
    for hit in by_session:
        # The words of a whole session include what a fork shares with its parent, which the caller knows already.
        if hit.row in allowed and not (query.caller and allowed[hit.row].root_id == query.caller.root_id):
            evidence[hit.row].words = hit.score
    return evidence, best


def _coverage(store: Store, intent: str, by_session: Sequence[Scored], evidence: Collection[int]) -> dict[int, float]:
    """How much of the intent's words, rare ones weighing more, the best sessions have."""
    rows = [hit.row for hit in by_session if hit.row in evidence][:COVERED_SESSIONS]
    total = 0.0
    covered = dict.fromkeys(rows, 0.0)
    everything = max(1, store.counts().sessions)
    for word in words_of(intent) if rows else ():
        count, having = store.having_word(f'"{word}"', rows)
        weight = math.log((everything - count + 0.5) / (count + 0.5) + 1)
        total += weight
        for row in having:
            covered[row] += weight
    return {row: value / total for row, value in covered.items()} if total else {}


def _one_a_family(score: dict[int, float], rows: dict[int, SessionRow]) -> list[tuple[int, float]]:
    """Best first, among equals the newest, then by id (F-038); the best member standing for its family."""
    order = sorted(score, key=lambda row: rows[row].session_id)
    order.sort(key=lambda row: (score[row], rows[row].last_activity), reverse=True)
    best: dict[str, tuple[int, float]] = {}
    for row in order:
        best.setdefault(rows[row].root_id or rows[row].session_id, (row, score[row]))
    return list(best.values())


def _hits(
    store: Store, ranked: Sequence[tuple[int, float]], rows: dict[int, SessionRow],
    best: dict[int, tuple[float, Placement, float | None]], intent: str,
) -> tuple[Hit, ...]:  # fmt: skip
    texts = store.texts({best[row][1].chunk for row, _ in ranked if row in best})
    asked = words_of(intent)
    hits = []
    for row, score in ranked:
        _, place, near = best.get(row, (0.0, None, None))
        text = texts.get(place.chunk, "") if place else ""
        family = tuple(store.family(rows[row].root_id))
        hits.append(Hit(rows[row], score, place, text, matched_words(text, asked), near, family))
    return tuple(hits)
