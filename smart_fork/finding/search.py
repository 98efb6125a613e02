"""Which sessions answer an intent: evidence by words and by meaning, one score a session, one hit a family."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from indexer.failures import is_damage
from indexer.markdown import export_path, is_export
from indexer.store.base import Placement, SessionRow, Store
from smart_fork.finding.answer import Mode
from smart_fork.finding.evidence import Gathered, gather
from smart_fork.finding.found import Candidate, Candidates, Query
from smart_fork.finding.kinship import family_of
from smart_fork.finding.meaning import Embed
from smart_fork.finding.query import words_of
from smart_fork.finding.ranking import Score, rivals, share, weigh
from smart_fork.finding.rerank import RERANKED, Rerank, SecondLook
from smart_fork.text.snippets import matched_words


def search(store: Store, query: Query, embed: Embed, rerank: Rerank | None = None) -> Candidates:
    """Hybrid; where that fails vectors alone, then words alone; where all fail nothing, ``recent``.

    Damage of the index is not searched around: whoever opened it sets it aside.
    """
    if not query.scope.parts:  # there is nothing to search, which is no failure
        return Candidates((), "hybrid")
    error = ""
    modes: tuple[Mode, ...] = ("hybrid", "vector", "lexical")
    for mode in modes:
        try:
            return replace(_search(store, query, embed, mode, SecondLook(rerank)), error=error)
        except Exception as failure:
            if is_damage(failure):
                raise
            # Whatever else one way of searching dies of, the next one may live.
            error = f"{mode} search failed: {str(failure) or type(failure).__name__}"
    return Candidates((), "recent", error)


def _search(store: Store, query: Query, embed: Embed, mode: Mode, look: SecondLook) -> Candidates:
    vectors = embed(query.meanings) if mode != "lexical" else None
    found = gather(store, query, vectors, words=mode != "vector")
    family = found.families
    weighed = weigh(found.phrasings, words=mode != "vector")
    among = rivals(weighed, family)
    score = {row: one.doubted(query.doubt, query.read) for row, one in share(weighed, family, among).items()}
    ranked = _one_a_family(score, found.sessions, family)
    if look.rerank:
        chunk_of = {row: found.passages[row].place.chunk for row, _ in ranked[:RERANKED] if row in found.passages}
        texts = store.texts(chunk_of.values())
        ranked = look.at(query.intent, ranked, {row: texts.get(chunk, "") for row, chunk in chunk_of.items()})
    shown = {family[row]: found.sessions[row] for row, _ in ranked}
    among = {family_of(shown[name]) if name in shown else name: lead for name, lead in among.items()}
    wanted = [(row, chance) for row, chance in ranked if query.min_score is None or round(chance, 4) >= query.min_score]
    hits = _hits(store, wanted[: query.limit], found, score, query.phrasings)
    return Candidates(hits, mode, "", found.dropped, look.error, rivals=among, weighed=found.weighed)


def _one_a_family(
    score: Mapping[int, Score], rows: Mapping[int, SessionRow], family: Mapping[int, str]
) -> list[tuple[int, float]]:
    """Best first, among equals what more speaks for, the newest, then by id; the best member stands for its family."""
    order = sorted(score, key=lambda row: rows[row].session_id)
    order.sort(key=lambda row: (score[row].chance, sum(score[row].points), rows[row].until), reverse=True)
    best: dict[str, tuple[int, float]] = {}
    for row in order:
        best.setdefault(family[row], (row, score[row].chance))
    return list(best.values())


def _hits(
    store: Store, ranked: Sequence[tuple[int, float]], found: Gathered, score: Mapping[int, Score], asked: Sequence[str]
) -> tuple[Candidate, ...]:
    texts = store.texts({found.passages[row].place.chunk for row, _ in ranked if row in found.passages})
    words = tuple(dict.fromkeys(word for phrasing in asked for word in words_of(phrasing)))
    hits = []
    for row, chance in ranked:
        session, passage = found.sessions[row], found.passages.get(row)
        text = texts.get(passage.place.chunk, "") if passage else ""
        hits.append(
            Candidate(
                session, chance, passage.place if passage else None, text, matched_words(text, words),
                passage.similarity if passage else None, tuple(store.family(session.root_id)), score[row],
                lines_of(store, session, passage.place) if passage else None, words,
                store.voices(passage.place) if passage else None, tuple(asked),
            )
        )  # fmt: skip
    return tuple(hits)


# On which lines of a session's export a passage stands: said only of the file that is really there.


def lines_of(store: Store, session: SessionRow, place: Placement) -> tuple[int, int] | None:
    """The first and the last, from 1; `None` where the export is missing, or not as it was when it was indexed."""
    found = store.lines(place)
    if found is None or not is_export(export_path(session.agent, session.session_id), found.export):
        return None
    return found.first, found.last
