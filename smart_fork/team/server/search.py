"""The search of shared sessions on the server: index a session after a push, and answer questions.

The index is made from the records alone. Clients may send vectors of text passages, since computing vectors takes
longer than all other work. The server computes one vector in 64 as well. If one differs, it uses no vector of the push.
It also computes missing vectors, up to a limit.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import SystemRandom
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

from pgvector import HalfVector
from psycopg.types.json import Jsonb

from indexer.default_embedder import LightEmbedder
from indexer.embedder import Embedder, ModelUnavailableError, packaged_model
from indexer.one_thread_numpy import np
from indexer.session_export import Chunk, PieceRole
from indexer.store.base import Document
from smart_fork.errors import Unshareable
from smart_fork.finding.evidence import gather
from smart_fork.finding.query import Query, plain
from smart_fork.finding.request import further
from smart_fork.team import wire
from smart_fork.team.searchable_session import SearchableSession, passage_hash, searchable_form, vector_space
from smart_fork.team.server import sessions
from smart_fork.team.server.auth import MemberProject, Person
from smart_fork.team.server.database import Connection
from smart_fork.team.server.team_index import WHOLE_PROJECT, TeamIndex, search_words
from smart_fork.team.wire import Vectors

if TYPE_CHECKING:
    from smart_fork.finding.evidence import Gathered, Passage
    from smart_fork.finding.ranking import Parts, Score

#: The user number of the indexing job. It may see all users' searchable text, but no sessions.
INDEXER_USER = -1

log = logging.getLogger(__name__)

#: The most passages for which the server computes vectors after a push, and how many it computes together. The rest of
#: a longer session is found only by its words.
MAX_EMBEDDED, BATCH_SIZE = 2_000, 32
#: One in so many vectors of a client is also computed here. The cosine of the two must be at least the second value.
SAMPLED_ONE_IN, MIN_COSINE = 64, 0.98
#: The most bytes of a session's words for each weight, so that they fit into a PostgreSQL tsvector.
_MAX_WORD_BYTES: Mapping[str, int] = {"A": 4_000, "B": 100_000, "C": 120_000, "D": 80_000, "work": 40_000}
_random = SystemRandom()

Session = UUID | str


@dataclass(frozen=True, slots=True)
class _IndexedSession:
    """The session that is being indexed. `reach` is its owner's number, or 0 if all members may find it.

    `inherited` is the number of the parent's records that are found in the parent instead.
    """

    project_id: int
    session_id: Session
    reach: int
    revision: int
    inherited: int


def index_session(db: Connection, project_id: int, session_id: Session, revision: int) -> None:
    """Bring the search index of a session up to date, in the transaction of `db`.

    Do nothing if the index already has `revision` or a later one: several pushes may have queued this job.
    """
    db.execute("SELECT set_config('smartfork.user', %s, true)", (str(INDEXER_USER),))
    row = _told(db, project_id, session_id)
    there = db.execute(
        "SELECT revision, inherited FROM session_words WHERE project_id = %s AND session_id = %s",
        (project_id, session_id),
    ).fetchone()
    if row is None or (
        there is not None
        and there["revision"] >= max(revision, row["revision"])
        and there["inherited"] == row["inherited"]
    ):
        return
    here = _IndexedSession(project_id, session_id, row["reach"], row["revision"], row["inherited"])
    records = sessions.records(db, project_id, session_id)
    found = searchable_form(records, row["agent"], str(session_id), str(row["root_id"]), inherited=here.inherited)
    chunks = [chunk for chunk in found.document.chunks if chunk.hash not in found.shared] if found else []
    vectors = _vectors(db, here, chunks)
    # What takes long is done. From here on nobody hides the session, or indexes another one, at the same time.
    db.execute("SELECT lock_search(%s)", (project_id,))
    if _told(db, project_id, session_id) != row:
        return  # whoever has changed it has made a job of it
    if found is None:
        db.execute("SELECT unindex(%s, %s)", (project_id, session_id))
        return
    _store_words(db, here, found, row["title"])
    ids = _store_chunks(db, here, found.document, chunks)
    made = {ids[digest]: vector for digest, vector in vectors.items()}
    name = own_space()
    number = space(db, name) if name else 0
    if made and number:
        _store_vectors(db, here, made, number)
    _store_vector_counts(db, here, list(ids.values()), number)


def _told(db: Connection, project_id: int, session_id: Session) -> dict[str, Any] | None:
    return db.execute(
        "SELECT *, inherited(%s, %s) FROM to_index(%s, %s)", (project_id, session_id, project_id, session_id)
    ).fetchone()


def store_offered_vectors(db: Connection, person: Person, project_id: int, session_id: Session, given: Vectors) -> None:
    """Store the vectors that a client sent with a push, for the indexing job. Ignore vectors of another model."""
    known = _embedding_model()
    if known is None or given.space != vector_space(known.model, known.dimensions):
        return
    size = 2 * known.dimensions
    if any(len(one.e) != size for one in given.vectors):
        raise Unshareable(f"A vector of that space has {size} bytes.")
    vectors = [np.frombuffer(one.e, np.float16) for one in given.vectors]
    if not all(np.isfinite(vector).all() for vector in vectors):
        raise Unshareable("A vector has a number that is not finite.")
    db.execute(
        "INSERT INTO offers(project_id, session_id, hash, reach, space, token_id, e)"
        " SELECT %s, %s, u.hash, %s, %s, %s, u.e FROM unnest(%s::bytea[], %s::halfvec[]) AS u(hash, e)"
        " ON CONFLICT (project_id, session_id, hash) DO UPDATE SET e = excluded.e, token_id = excluded.token_id",
        (
            *(project_id, session_id, person.id, space(db, given.space), person.token),
            *([bytes.fromhex(one.chunk) for one in given.vectors], list(map(HalfVector, vectors))),
        ),
    )


def known_space(db: Connection, fingerprint: str) -> int | None:
    """Return the number by which the database knows an embedding model; `None` if it does not know the model."""
    row = db.execute("SELECT id FROM spaces WHERE fingerprint = %s", (fingerprint,)).fetchone()
    return None if row is None else int(row["id"])


def space(db: Connection, fingerprint: str) -> int:
    """Return the number by which the database knows an embedding model. A new model gets the next number."""
    number = known_space(db, fingerprint)
    if number is None:
        db.execute("INSERT INTO spaces(fingerprint) VALUES (%s) ON CONFLICT (fingerprint) DO NOTHING", (fingerprint,))
        number = known_space(db, fingerprint)
    assert number is not None  # noqa: S101 - it was there, or has just been made
    return number


def own_space() -> str | None:
    """Return a name for the server's embedding model and its dimensions; `None` if the model is not installed."""
    known = _embedding_model()
    return vector_space(known.model, known.dimensions) if known else None


def embed_questions(texts: Sequence[str]) -> list[bytes]:
    """Compute the vectors of questions, in 32-bit floats. Raise `ModelUnavailableError` without a model."""
    known = _embedding_model()
    if known is None:
        raise ModelUnavailableError("the model is not installed")
    return [bytes(vector.tobytes()) for vector in known.embed(texts)]


def _store_words(db: Connection, here: _IndexedSession, found: SearchableSession, title: str) -> None:
    """Store a session's words, weighted by their place (title, prompts …), and the data that search results show."""
    document, said = found.document, found.own
    texts = {
        "A": f"{title}\n{said.title}\n{said.also_called}",
        "B": said.asked,
        "C": said.answered,
        "D": f"{said.symbols}\n{said.actions}",
        "work": said.work,
    }
    *cuts, work = [
        search_words(text).encode()[: _MAX_WORD_BYTES[weight]].decode(errors="ignore") for weight, text in texts.items()
    ]
    session = document.session
    db.execute("SELECT drop_session_words(%s, %s)", (here.project_id, here.session_id))
    db.execute(
        "WITH made AS (INSERT INTO session_words(project_id, session_id, reach, revision, inherited, family, title,"
        " turns, prompts, tokens, compactions, started, last_activity, until, acted, outcome, length, work, words)"
        " SELECT %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, to_tsvector('english', %s),"
        " setweight(to_tsvector('english', %s), 'A') || setweight(to_tsvector('english', %s), 'B')"
        " || setweight(to_tsvector('english', %s), 'C') || setweight(to_tsvector('english', %s), 'D')"
        " RETURNING project_id, reach, words)"
        " INSERT INTO lexemes(project_id, reach, lexeme, sessions)"
        " SELECT m.project_id, m.reach, w, 1 FROM made m, unnest(tsvector_to_array(m.words) || ARRAY['']) w ORDER BY w"
        " ON CONFLICT (project_id, reach, lexeme) DO UPDATE SET sessions = lexemes.sessions + 1",
        (
            *(here.project_id, here.session_id, here.reach, here.revision, here.inherited, found.family),
            title or said.title,
            *(len(session.turns), sum(turn.prompt for turn in session.turns), session.token_estimate),
            *(session.compactions, session.started, session.last_activity, document.until, document.acted),
            *(document.outcome.value, sum(len(one.split()) for one in cuts), work, *cuts),
        ),
    )


def _store_chunks(
    db: Connection, here: _IndexedSession, document: Document, chunks: Sequence[Chunk]
) -> dict[bytes, int]:
    """Store the session's passages and their positions in it. Return the passages' database ids by hash.

    A passage that another session of the project has too is stored only once.
    """
    had = db.execute(
        "WITH gone AS (DELETE FROM placements WHERE project_id = %s AND session_id = %s RETURNING chunk_id)"
        " SELECT DISTINCT chunk_id FROM gone",
        (here.project_id, here.session_id),
    ).fetchall()
    texts = {chunk.hash: chunk.text for chunk in chunks}
    db.execute(
        "WITH made AS (INSERT INTO chunks(project_id, reach, hash, text, length, words)"
        " SELECT %s, %s, u.hash, u.text, length(u.text), to_tsvector('english', u.cut)"
        " FROM unnest(%s::bytea[], %s::text[], %s::text[]) AS u(hash, text, cut)"
        " ON CONFLICT (project_id, reach, hash) DO NOTHING RETURNING project_id, reach, words)"
        " INSERT INTO lexemes(project_id, reach, lexeme, chunks)"
        " SELECT m.project_id, m.reach, w, count(*) FROM made m, unnest(tsvector_to_array(m.words) || ARRAY['']) w"
        " GROUP BY 1, 2, 3 ORDER BY w"
        " ON CONFLICT (project_id, reach, lexeme) DO UPDATE SET chunks = lexemes.chunks + excluded.chunks",
        (here.project_id, here.reach, list(texts), list(texts.values()), list(map(search_words, texts.values()))),
    )
    rows = db.execute(
        "SELECT id, hash FROM chunks WHERE project_id = %s AND reach = %s AND hash = ANY(%s)",
        (here.project_id, here.reach, list(texts)),
    ).fetchall()
    ids = {bytes(row["hash"]): int(row["id"]) for row in rows}
    _place(db, here, document, ids)
    left = [row["chunk_id"] for row in had if row["chunk_id"] not in set(ids.values())]
    db.execute("SELECT drop_unplaced(%s, %s)", (here.project_id, left))
    return ids


def _place(db: Connection, here: _IndexedSession, document: Document, ids: Mapping[bytes, int]) -> None:
    ends, loads = document.session.ends(), document.session.loads()
    rows = [
        (
            *(position, ids[chunk.hash], chunk.turn, chunk.message_id, chunk.role, chunk.exchange),
            *(ends[chunk.turn], loads[-1 if ends[chunk.turn] is None else ends[chunk.turn] or 0]),
        )
        for position, chunk in enumerate(document.chunks)
        if chunk.hash in ids
    ]
    if not rows:
        return
    db.execute(
        "INSERT INTO placements(project_id, session_id, reach, position, chunk_id, turn, message_id, role, exchange,"
        " ends, tokens) SELECT %s, %s, %s, * FROM unnest(%s::int[], %s::bigint[], %s::int[], %s::text[], %s::text[],"
        " %s::int[], %s::int[], %s::bigint[])",
        (here.project_id, here.session_id, here.reach, *map(list, zip(*rows, strict=True))),
    )


def _vectors(db: Connection, here: _IndexedSession, chunks: Sequence[Chunk]) -> dict[bytes, HalfVector]:
    """Return vectors by hash for passages that have none stored: the client's if correct, else computed ones."""
    rows = db.execute(
        "SELECT c.hash FROM chunks c JOIN vectors v ON v.project_id = c.project_id AND v.chunk_id = c.id"
        " WHERE c.project_id = %s AND c.reach = %s AND c.hash = ANY(%s)",
        (here.project_id, here.reach, [chunk.hash for chunk in chunks]),
    )
    there = {bytes(row["hash"]) for row in rows}
    waiting = {chunk.hash: chunk.text for chunk in chunks if chunk.hash not in there}
    offered = _offered(db, here)
    model = _embedding_model()
    if not waiting or model is None:
        return {}
    try:
        made = _checked_vectors(db, here, waiting, offered, model)
        lacking = [digest for digest in waiting if digest not in made][:MAX_EMBEDDED]
        return made | dict(zip(lacking, _made(model, [waiting[digest] for digest in lacking]), strict=True))
    except ModelUnavailableError as error:
        log.warning("passages have no vectors: %s", error)
        return {}


def _offered(db: Connection, here: _IndexedSession) -> dict[bytes, tuple[HalfVector, int]]:
    rows = db.execute(
        "DELETE FROM offers WHERE project_id = %s AND session_id = %s RETURNING hash, e, token_id",
        (here.project_id, here.session_id),
    )
    return {bytes(row["hash"]): (row["e"], row["token_id"]) for row in rows}


def _checked_vectors(
    db: Connection,
    here: _IndexedSession,
    waiting: Mapping[bytes, str],
    offered: Mapping[bytes, tuple[HalfVector, int]],
    model: Embedder,
) -> dict[bytes, HalfVector]:
    """Return the vectors that the client sent (`offered`) for the passages in `waiting`.

    The server computes a sample of them. If one differs, return none, and note this in the audit log.
    """
    fitting = {digest: offered[name] for digest, text in waiting.items() if (name := passage_hash(text)) in offered}
    if not fitting:
        return {}
    tried = _random.sample(list(fitting), min(len(fitting), int(len(fitting) / SAMPLED_ONE_IN + _random.random())))
    own = model.embed([waiting[digest] for digest in tried]) if tried else ()
    if all(_cosine(fitting[digest][0], vector) >= MIN_COSINE for digest, vector in zip(tried, own, strict=True)):
        return {digest: vector for digest, (vector, _) in fitting.items()}
    token = next(token for _, token in fitting.values())
    db.execute(
        "INSERT INTO audit(token, verb, project_id, session_id, details) VALUES (%s, 'vectors_dropped', %s, %s, %s)",
        (token, here.project_id, here.session_id, Jsonb({"vectors": len(offered)})),
    )
    return {}


def _made(model: Embedder, texts: Sequence[str]) -> list[HalfVector]:
    return [
        HalfVector(vector)
        for start in range(0, len(texts), BATCH_SIZE)
        for vector in model.embed(texts[start : start + BATCH_SIZE])
    ]


def _store_vectors(db: Connection, here: _IndexedSession, made: Mapping[int, HalfVector], number: int) -> None:
    db.execute(
        "INSERT INTO vectors(project_id, space, chunk_id, reach, e)"
        " SELECT %s, %s, u.id, %s, u.e FROM unnest(%s::bigint[], %s::halfvec[]) AS u(id, e)"
        " ON CONFLICT (project_id, space, chunk_id) DO NOTHING",
        (here.project_id, number, here.reach, list(made), list(made.values())),
    )


def _store_vector_counts(db: Connection, here: _IndexedSession, chunks: Sequence[int], number: int) -> None:
    # Asked by themselves: how many they are is not known to who would plan both in one.
    sharing = db.execute(
        "SELECT DISTINCT session_id FROM placements WHERE project_id = %s AND chunk_id = ANY(%s)",
        (here.project_id, list(chunks)),
    ).fetchall()
    db.execute(
        "UPDATE session_words s SET passages = n.passages, embedded = n.embedded,"
        " space = CASE WHEN n.embedded > 0 THEN %s ELSE 0 END"
        " FROM (SELECT p.session_id, count(*) AS passages, count(v.chunk_id) AS embedded FROM placements p"
        " LEFT JOIN vectors v ON v.project_id = p.project_id AND v.space = %s AND v.chunk_id = p.chunk_id"
        " WHERE p.project_id = %s AND p.session_id = ANY(%s) GROUP BY 1) n"
        " WHERE s.project_id = %s AND s.session_id = n.session_id"
        " AND (s.passages, s.embedded) <> (n.passages, n.embedded)",
        (number, number, here.project_id, [row["session_id"] for row in sharing], here.project_id),
    )


def _cosine(one: HalfVector, vector: Any) -> float:
    given = one.to_numpy().astype(np.float32)
    length = float(np.linalg.norm(given) * np.linalg.norm(vector))
    return float(given @ vector) / length if length else 0.0


@cache
def _embedding_model() -> LightEmbedder | None:
    try:
        packaged_model()
    except ModelUnavailableError as error:
        log.warning("sessions are found by their words alone: %s", error)
        return None
    return LightEmbedder()


_MAX_TEXT, _MAX_PASSAGE = 200, 10_000


def answer_search(db: Connection, project: MemberProject, person: Person, wanted: wire.Search) -> wire.SearchAnswer:
    """Return the best session of each family (a session and its forks), best first, with the evidence for each.

    The evidence is numbers, such as how many words match. From these and its local results, the client computes how
    likely each session is.
    """
    intent = plain(wanted.question)
    known = own_space()
    index = TeamIndex(db, project.id, person.id, known_space(db, known) if known else None)
    also = further(intent, wanted.also)
    query = Query(intent or wanted.question, WHOLE_PROJECT, wanted.limit, everywhere=True, also=also)
    vectors = _question_vectors(query, wanted, known)
    found = gather(index, query, vectors, words=True)
    return wire.SearchAnswer(
        hits=tuple(_hits(index, project, person, found, found.scores(), wanted.limit)),
        embedded=vectors is not None,
        sessions=index.session_count(),
        by_words_only=index.without_vectors(),
    )


def _question_vectors(query: Query, wanted: wire.Search, known: str | None) -> Sequence[bytes] | None:
    """Return a question's vectors: the client's if the server's model made them, else computed ones, or `None`."""
    if known is None:
        return None
    size = 2 * int(known.rpartition("/")[2])
    if wanted.space == known and len(wanted.e) == len(query.meanings) and all(len(e) == size for e in wanted.e):
        given = [np.frombuffer(e, np.float16).astype(np.float32) for e in wanted.e]
        if all(np.isfinite(one).all() and one.any() for one in given):
            return [one.tobytes() for one in given]
    try:
        return embed_questions(query.meanings)
    except ModelUnavailableError:
        return None


def _best(found: Gathered, weighed: dict[int, Score]) -> list[int]:
    """Return the row numbers of each family's best session, best first. Of equal sessions, the newest is best."""
    order = sorted(weighed, key=lambda row: found.sessions[row].session_id)
    order.sort(key=lambda row: (weighed[row].lead, found.sessions[row].until), reverse=True)
    best: dict[str, int] = {}
    for row in order:
        best.setdefault(found.sessions[row].root_id, row)
    return list(best.values())


def _hits(  # noqa: PLR0917 - what was found for whom
    index: TeamIndex, project: MemberProject, person: Person, found: Gathered, weighed: dict[int, Score], limit: int
) -> list[wire.SearchHit]:
    rows = _best(found, weighed)[:limit]
    told = index.db.execute(
        "SELECT s.*, u.name AS owner, %s AS key, w.family FROM sessions s JOIN users u ON u.id = s.owner_id"
        " JOIN session_words w ON w.project_id = s.project_id AND w.session_id = s.id"
        " WHERE s.project_id = %s AND s.id = ANY(%s) AND may_read(s, %s)",
        (project.key, project.id, [found.sessions[row].session_id for row in rows], person.id),
    ).fetchall()
    of_row = {index.number(row["id"]): row for row in told}
    texts = index.texts({found.passages[row].place.chunk for row in rows if row in found.passages})
    similar = {row for phrased in found.phrasings for row, evidence in phrased.evidence.items() if evidence.similar}
    return [
        wire.SearchHit(
            session=sessions.session_info(of_row[row]),
            family=of_row[row]["family"][:_MAX_TEXT],
            speaking=tuple(map(_phrasing_evidence, weighed[row].speaking)),
            similar=row in similar,
            passage=_passage(found.passages[row], texts) if row in found.passages else None,
            outcome=found.sessions[row].outcome.value,
            turns=found.sessions[row].turns,
            tokens=found.sessions[row].tokens,
            started=found.sessions[row].started[:_MAX_TEXT],
            last_activity=found.sessions[row].last_activity[:_MAX_TEXT],
        )
        for row in rows
        if row in of_row
    ]


def _phrasing_evidence(parts: Parts) -> wire.PhrasingEvidence:
    """Return the evidence for a session as a message. Numbers slightly out of range from rounding are corrected."""
    return wire.PhrasingEvidence(
        **{
            name: max(-1.0 if name == "whole" else 0.0, min(1.0, getattr(parts, name)))
            for name in wire.PhrasingEvidence.model_fields
        }
    )


def _passage(one: Passage, texts: dict[int, str]) -> wire.SearchPassage:
    place = one.place
    return wire.SearchPassage(
        text=texts.get(place.chunk, "")[:_MAX_PASSAGE],
        turn=place.turn,
        message_id=place.message_id[:_MAX_TEXT],
        role=cast("PieceRole", place.role),
        exchange=place.exchange,
        ends=place.ends,
        tokens=place.tokens,
        similarity=None if one.similarity is None else max(-1.0, min(1.0, one.similarity)),
    )
