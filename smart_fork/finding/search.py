"""Finds the sessions that answer an intent, by words and by meaning.

Each session gets one score. Of each family (a session and its forks), the best session is a result.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import replace
from typing import NamedTuple

from indexer.embedder import Embedder, ModelUnavailableError, Rerank
from indexer.errors import is_damage
from indexer.masking import mask
from indexer.project import project_of
from indexer.session_export import export_path, is_export
from indexer.store.base import Placement, Scope, SessionRow
from indexer.store.sqlite import Store
from indexer.transcripts.model import AgentName, Session
from smart_fork.display_text import shown
from smart_fork.errors import NotFound, advice
from smart_fork.finding import ranking
from smart_fork.finding.answer import Exchanges, KnownExchange, Mode
from smart_fork.finding.candidates import Candidate, Candidates
from smart_fork.finding.evidence import (
    Gathered,
    admitted,
    beginning_of,
    families,
    family_of,
    gather,
    gather_more,
    known_to,
    without_askers,
)
from smart_fork.finding.query import Query, QueryWords, doubt_of, unnamed, words_of
from smart_fork.finding.ranking import ExchangeEvidence, PointParts, Score
from smart_fork.finding.request import DEFAULT_LIMIT, EngineQuestion, FindRequest, RankedDocument, SearchEngine
from smart_fork.finding.result_snippets import matched_words
from smart_fork.finding.results import UNTRUSTED, title
from smart_fork.finding.session_place import WorkDirectory

log = logging.getLogger(__name__)


def search(store: Store, query: Query, embed: Embed, rerank: Rerank | None = None) -> Candidates:
    """Return the sessions that answer a question best, by words and meaning.

    If that fails, search by meaning only, then by words only. If all fail, return no sessions. An error that shows a
    damaged index is raised, so that the code that opened the index sets it aside.
    """
    if not query.scope.parts:  # there is nothing to search, which is no failure
        return Candidates((), "hybrid")
    error = ""
    modes: tuple[Mode, ...] = ("hybrid", "vector", "lexical")
    for mode in modes:
        try:
            return replace(_search(store, query, embed, mode, rerank), error=error)
        except Exception as failure:
            if is_damage(failure):
                raise
            # Whatever else one way of searching dies of, the next one may live.
            error = f"{mode} search failed: {str(failure) or type(failure).__name__}"
    return Candidates((), "recent", error)


def _search(store: Store, query: Query, embed: Embed, mode: Mode, rerank: Rerank | None) -> Candidates:
    vectors = embed(query.meanings) if mode != "lexical" else None
    found = gather(store, query, vectors, words=mode != "vector")
    family = found.families
    weighed = found.scores(words=mode != "vector")
    among = ranking.rivals(weighed, family)
    asked = query.phrasings[0]
    doubt = query.doubt + (0.0 if query.also else doubt_of(asked, len(query.intent.split()), found.strange))
    score = {row: one.doubted(doubt, query.read) for row, one in ranking.share(weighed, family, among).items()}
    if not query.also and unnamed(asked):
        score = {row: one.at_most(ranking.MAX_UNNAMED_CHANCE) for row, one in score.items()}
    ranked = _best_of_each_family(score, found.sessions, family)
    error = ""
    if rerank:
        chunk_of = {row: found.passages[row].place.chunk for row, _ in ranked[:RERANKED] if row in found.passages}
        texts = store.texts(chunk_of.values())
        passages = {row: texts.get(chunk, "") for row, chunk in chunk_of.items()}
        ranked, error = reranked(rerank, query.intent, ranked, passages)
    shown = {family[row]: found.sessions[row] for row, _ in ranked}
    among = {family_of(shown[name]) if name in shown else name: lead for name, lead in among.items()}
    wanted = [(row, chance) for row, chance in ranked if query.min_score is None or round(chance, 4) >= query.min_score]
    hits = tuple(_hits(store, wanted[: query.limit], found, score, query.phrasings))
    return Candidates(hits, mode, "", found.dropped, error, rivals=among, weighed=found.weighed)


def _best_of_each_family(
    score: Mapping[int, Score], rows: Mapping[int, SessionRow], family: Mapping[int, str]
) -> list[tuple[int, float]]:
    """Return each family's best session and chance. Of equal chances, more points are first, then newer ones."""
    order = sorted(score, key=lambda row: rows[row].session_id)
    order.sort(key=lambda row: (score[row].chance, sum(score[row].points), rows[row].until), reverse=True)
    best: dict[str, tuple[int, float]] = {}
    for row in order:
        best.setdefault(family[row], (row, score[row].chance))
    return list(best.values())


def _hits(
    store: Store, ranked: Sequence[tuple[int, float]], found: Gathered, score: Mapping[int, Score], asked: Sequence[str]
) -> Iterator[Candidate]:
    texts = store.texts({found.passages[row].place.chunk for row, _ in ranked if row in found.passages})
    words = tuple(dict.fromkeys(word for phrasing in asked for word in words_of(phrasing)))
    for row, chance in ranked:
        session, passage = found.sessions[row], found.passages.get(row)
        text = texts.get(passage.place.chunk, "") if passage else ""
        yield Candidate(
            session, chance, passage.place if passage else None, text, matched_words(text, words),
            passage.similarity if passage else None, tuple(store.family(session.root_id)), score[row],
            lines_of(store, session, passage.place) if passage else None, words,
            store.voices(passage.place) if passage else None, tuple(asked),
        )  # fmt: skip


def all_in_scope(store: Store, query: Query) -> Candidates:
    """Return all sessions in a query's scope, newest first: the answer to a request with a tag and no intent."""
    rows, dropped = admitted(store.sessions(query.scope.sessions or ()).values(), query)
    here = sorted((row for row in rows.values() if row.part in query.scope.parts), key=lambda row: row.until)
    hits = [
        Candidate(row, 1.0, place, text, (), None, (row,), None)
        for row in reversed(here)
        for place, text, _ in (beginning_of(store, row, 0),)
    ]
    return Candidates(tuple(hits[: query.limit]), "recent", dropped=dropped)


# The lines of a passage in its session's export, if the export exists and is unchanged.


def lines_of(store: Store, session: SessionRow, place: Placement) -> tuple[int, int] | None:
    """Return the first and last line, from 1, of a passage in its session's Markdown export.

    Return `None` if the export is missing or has changed since it was indexed.
    """
    found = store.lines(place)
    if found is None or not is_export(export_path(session.agent, session.session_id), found.export):
        return None
    return found.first, found.last


# The embeddings of a question, made once for everything that is asked at the same time.

#: A function that embeds texts as float32 vectors, or raises an exception that says why not.
Embed = Callable[[Sequence[str]], Sequence[bytes]]


def embedded(embedder: Embedder, texts: Sequence[str]) -> list[bytes]:
    """Return the embeddings of texts as float32 bytes, made in one batch."""
    return [bytes(vector.tobytes()) for vector in embedder.embed(texts)]


class QuestionEmbeddings:
    """The embeddings of a question's texts, computed once in a background thread. A failure is raised by each `of`."""

    def __init__(self, embedder: Embedder, texts: Sequence[str]) -> None:
        self._embedder, self._texts = embedder, tuple(texts)
        self._starting = threading.Lock()
        self._made: Future[list[bytes]] | None = None

    @property
    def model(self) -> str:
        """Return the name of the embedding model."""
        return self._embedder.model

    def of(self) -> list[bytes]:
        """Wait for the embeddings and return them, as float32 bytes. Raise the exception of a failed embedding."""
        return self.begin().result()

    def within(self, seconds: float) -> list[bytes] | None:
        """Return the embeddings, or `None` if they are not ready after `seconds` or failed."""
        try:
            return self.begin().result(seconds)
        except Exception:  # noqa: BLE001 - not yet, or it failed: `of` raises that
            return None

    def settle(self) -> None:
        """Wait until the embedding thread is done: a process that ends while a model works is aborted."""
        if self._made is not None:
            wait([self._made])

    def begin(self) -> Future[list[bytes]]:
        """Begin to embed the texts in a thread, unless that has begun already. Return the future embeddings."""
        with self._starting:
            if self._made is None:
                self._made = Future()
                threading.Thread(target=self._make, args=(self._made,), name="embed a question", daemon=True).start()
            return self._made

    def _make(self, made: Future[list[bytes]]) -> None:
        try:
            made.set_result(embedded(self._embedder, self._texts))
        except BaseException as error:  # noqa: BLE001 - raised again where it is asked for
            made.set_exception(error)


def check_comparable(store: Store, model: str, absent: str) -> None:
    """Raise an error if a question's embeddings cannot be compared with those in the index.

    Raises:
        LookupError: the index has no embeddings of `model`.
        ModelUnavailableError: `absent` says why the model cannot be used.
    """
    why = f": {absent}" if absent else ""
    if not store.meta("model"):
        raise LookupError(f"no session has been embedded yet{why}")
    if store.meta("model") != model:
        raise LookupError(f"the index is embedded with {store.meta('model')}, not with {model}{why}")
    if absent:
        raise ModelUnavailableError(absent)


# Reranking: a cross-encoder reads the question together with each passage that answers it.
#
# It separates answers from similar texts better than two embeddings do. It reads each passage again for each question,
# so it gets only a few. Nothing is imported or loaded unless a reranker is configured.

#: The number of results that are reranked.
RERANKED = 20
#: The weight of the reranker's score in the final score, in log odds. The rest is the weight of all other evidence.
SHARE = 0.5
#: The closest that a score counts to 0 or 1, so that a surer reranker can overrule it.
SUREST = 1e-3


def reranked(
    rerank: Rerank, intent: str, ranked: Sequence[tuple[int, float]], texts: Mapping[int, str]
) -> tuple[list[tuple[int, float]], str]:
    """Return `ranked` (pairs of session and score) ordered and scored with the reranker too, and an empty text.

    `texts` are the passages that answer, by session. If the reranker fails, return `ranked` unchanged, and the reason.
    """
    looked_at = [row for row, _ in ranked[:RERANKED] if texts.get(row)]
    if not looked_at:
        return list(ranked), ""
    try:
        chance = dict(zip(looked_at, rerank(intent, [texts[row] for row in looked_at]), strict=True))
        if not all(map(math.isfinite, chance.values())):
            raise ValueError("its scores are not finite numbers")  # noqa: TRY301 - handled as whatever else it can fail of
    except Exception as error:  # noqa: BLE001 - the model is the user's choice, and may fail in any way
        why = str(error) or type(error).__name__
        log.warning("not reranked: %s", why)
        return list(ranked), why
    mixed = [(row, _mixed(score, chance[row])) for row, score in ranked if row in chance]
    mixed.sort(key=lambda one: -one[1])
    # What was not looked at stays behind what was.
    return mixed + [(row, min(score, mixed[-1][1])) for row, score in ranked if row not in chance], ""


def _mixed(score: float, chance: float) -> float:
    """Return the mean of two chances on the scale of log odds, where a little doubt in a sure result changes little."""
    return 1 / (1 + math.exp(-(1 - SHARE) * _log_odds(score, SUREST) - SHARE * _log_odds(chance, SUREST**2)))


def _log_odds(chance: float, surest: float) -> float:
    chance = min(1 - surest, max(surest, chance))
    return math.log(chance / (1 - chance))


# The exchanges of one session that answer a question, such as the content of the calling session before a compaction.


def query_of(store: Store, session: Session | SessionRow, asked: FindRequest) -> Query:
    """Return the query for a search inside one session. Its scope is empty if the session is not indexed."""
    there = WorkDirectory(session.cwd).is_there
    row = store.session(session.agent, session.session_id)
    project = project_of(session.cwd) if there else None
    scope = Scope((row.part,), session=row.row, project=project) if row else Scope()
    return asked.query(scope, everywhere=not there)


def exchange_evidence(
    store: Store, query: Query, vectors: Embed, weighed: Sequence[Mapping[str, float]] = ()
) -> ExchangeEvidence:
    """Return the evidence for each exchange (a prompt with its answer) of the session in the query's scope.

    Words and meaning are both used; if one fails, the other alone. `weighed` are the question's terms with their
    weights, if a search has computed them.
    """
    why = ""
    for by_meaning, by_words in ((True, True), (True, False), (False, True)):
        try:
            made = vectors(query.meanings) if by_meaning else None
            if by_words and weighed:
                found = gather_more(store, query, made, QueryWords(store, query, weighed))
            else:
                found = gather(store, query, made, words=by_words)
        except Exception as failure:  # whatever else one way of searching dies of, the next one may live
            if is_damage(failure):
                raise
            why = why or str(failure) or type(failure).__name__
            continue
        chances = ranking.scores(found.phrasings, found.families, words=by_words)
        score = max((one.chance for one in chances.values()), default=0.0)
        nothing = "" if found.exchanges else why or "nothing fits"
        return ExchangeEvidence(found.exchanges, found.point, nothing, score=score)
    return ExchangeEvidence(why_not=why)


def best_exchanges(store: Store, row: SessionRow, evidence: ExchangeEvidence, asked: FindRequest) -> Exchanges:
    """Return the exchanges (prompts with their answers) of the session `row` that answer a request, best first."""
    speaking = {number: _answer_points(parts) for number, parts in evidence.parts.items() if _answer_points(parts) > 0}
    best = sorted(speaking, key=lambda number: (-speaking[number], -number))[: int(asked.limit or DEFAULT_LIMIT)]
    told = tuple(_told(store, row, number) for number in best)
    return Exchanges(
        title(asked.intent), row.session_id, row.agent, UNTRUSTED, len(evidence.parts), told, evidence.why_not
    )


def only_one(rows: Sequence[SessionRow], wanted: str) -> SessionRow:
    """Return the only session in `rows`, found by the id `wanted`; raise `NotFound` for none or several."""
    if len(rows) == 1:
        return rows[0]
    raise NotFound(
        f"{len(rows)} sessions of the index begin with {shown(wanted)}" if rows else
        f"The index has no session {shown(wanted)}",
        advice("`smart-fork list` lists sessions.", tool="list_sessions lists sessions."),
    )  # fmt: skip


def _answer_points(parts: PointParts) -> float:
    """Return how well an exchange (prompt and answer) answers the question, wherever it is in the session."""
    return ranking.WORTH.nearest * parts.nearest + ranking.WORTH.words * parts.words


def _told(store: Store, row: SessionRow, number: int) -> KnownExchange:
    place, _, asked = beginning_of(store, row, number)
    return KnownExchange(number + 1, place.turn if place else None, asked)


# From the documents that an external search program ranks to sessions: scope, families, and the quoted passage.
#
# Only the program's order is trusted. The export says which session a document belongs to, and the index says who may
# see it.

#: The speaker is unknown in a text that only the engine quotes.
_NOBODY = ((0, None),)


class _Passage(NamedTuple):
    """A passage of a session: its text and place. `quoted` is true if the external search program quotes from it."""

    place: Placement
    text: str
    quoted: bool


def search_documents(store: Store, query: Query, engine: SearchEngine, agents: tuple[AgentName, ...]) -> Candidates:
    """Return the sessions whose exports (Markdown files) an external search program finds, if they may be shown."""
    words = words_of(query.intent)
    known = known_to(store, query)
    if not query.scope.parts:  # there is nothing to search, which is no failure
        return Candidates((), "hybrid", engine=engine.name)

    def enough(documents: Sequence[RankedDocument]) -> bool:
        return len(_best(store, query, known, documents)[0]) >= query.limit

    answer = engine.ask(EngineQuestion(query.intent, words, agents, enough=enough))
    best, unknown = _best(store, query, known, answer.documents)
    if answer.way is None:
        log.warning("%s could not be searched: %s", engine.name, answer.error)
    return Candidates(
        tuple(_hit(store, query, known, session, document) for session, document in best[: query.limit]),
        answer.way or "recent", answer.error, answer.dropped + unknown, engine=engine.name, said=answer.said,
    )  # fmt: skip


def _best(
    store: Store, query: Query, known: Collection[int], documents: Iterable[RankedDocument]
) -> tuple[list[tuple[SessionRow, RankedDocument]], int]:
    """Return the best export (Markdown file) of each family (session and forks), and the number of unusable ones."""
    found: dict[int, tuple[SessionRow, RankedDocument]] = {}
    unknown = 0
    for document in documents:
        row = store.session(document.agent, document.session_id)
        if row is None:
            unknown += 1
        elif row.part in query.scope.parts and (
            row.row not in found or _score_or_last(document) > _score_or_last(found[row.row][1])
        ):
            found[row.row] = (row, document)
    shown, dropped = admitted((row for row, _ in found.values()), query)
    shown = without_askers(store, shown, query)
    least = query.min_score
    ranked = [found[row] for row in shown if least is None or _score_or_last(found[row][1]) >= least]
    ranked.sort(key=lambda one: one[0].session_id)
    ranked.sort(key=lambda one: (_score_or_last(one[1]), one[0].until), reverse=True)
    best: dict[str, tuple[SessionRow, RankedDocument]] = {}
    family = families(row for row, _ in ranked)
    for row, document in ranked:
        if not query.is_kin(row) or _passage(store, query, known, row, document):
            best.setdefault(family[row.row], (row, document))
    return list(best.values()), unknown + dropped


def _score_or_last(document: RankedDocument) -> float:
    return -1.0 if document.score is None else document.score


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
    """Return the passage that the search program quotes; else the one with most of the question's words.

    If the session shares content with the calling one, its passages in `known` are left out.
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
