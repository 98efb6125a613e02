"""``POST projects/{p}/search``: what the sessions of a project that somebody may read know about a question."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from indexer.embedder import ModelUnavailableError
from indexer.export import PieceRole
from smart_fork.finding.evidence import Gathered, Passage, gather
from smart_fork.finding.query import Query, plain
from smart_fork.finding.ranking import Parts, Score, weigh
from smart_fork.finding.request import further
from smart_fork.team import wire
from smart_fork.team.server import sessions
from smart_fork.team.server.auth import Person, Project
from smart_fork.team.server.database import Connection
from smart_fork.team.server.index import embedded, known_space, own_space
from smart_fork.team.server.team_index import EVERYTHING, TeamIndex

_TEXT, _PASSAGE = 200, 10_000


def answer(db: Connection, project: Project, person: Person, wanted: wire.Search) -> wire.SearchAnswer:
    """The best session of each family, best first, with what speaks for each: the chances are the asker's to share.

    Raises:
        Usage: The question says nothing.
    """
    intent = plain(wanted.question)
    known = own_space()
    index = TeamIndex(db, project.id, person.id, known_space(db, known) if known else None)
    also = further(intent, wanted.also)
    query = Query(intent or wanted.question, EVERYTHING, wanted.limit, everywhere=True, also=also)
    vectors = _vectors(query, wanted, known)
    found = gather(index, query, vectors, words=True)
    return wire.SearchAnswer(
        hits=tuple(_hits(index, project, person, found, weigh(found.phrasings), wanted.limit)),
        embedded=vectors is not None,
        sessions=index.session_count(),
        by_words_only=index.without_vectors(),
    )


def _vectors(query: Query, wanted: wire.Search, known: str | None) -> Sequence[bytes] | None:
    """The question's vectors as float32: the asker's if they are of the space here, else made here."""
    from indexer.arrays import np

    if known is None:
        return None
    size = 2 * int(known.rpartition("/")[2])
    if wanted.space == known and len(wanted.e) == len(query.meanings) and all(len(e) == size for e in wanted.e):
        given = [np.frombuffer(e, np.float16).astype(np.float32) for e in wanted.e]
        if all(np.isfinite(one).all() and one.any() for one in given):
            return [one.tobytes() for one in given]
    try:
        return embedded(query.meanings)
    except ModelUnavailableError:
        return None


def _best(found: Gathered, weighed: dict[int, Score]) -> list[int]:
    """The best member of each family, best first, among equals the newest."""
    order = sorted(weighed, key=lambda row: found.sessions[row].session_id)
    order.sort(key=lambda row: (weighed[row].lead, found.sessions[row].until), reverse=True)
    best: dict[str, int] = {}
    for row in order:
        best.setdefault(found.sessions[row].root_id, row)
    return list(best.values())


def _hits(  # noqa: PLR0917 - what was found for whom
    index: TeamIndex, project: Project, person: Person, found: Gathered, weighed: dict[int, Score], limit: int
) -> list[wire.SearchHit]:
    rows = _best(found, weighed)[:limit]
    told = index.db.execute(
        "SELECT s.*, u.name AS owner, %s AS key, w.family FROM sessions s JOIN users u ON u.id = s.owner_id"
        " JOIN session_words w ON w.project_id = s.project_id AND w.session_id = s.id"
        " WHERE s.project_id = %s AND s.id = ANY(%s) AND may_read(s, %s)",
        (project.key, project.id, [index.id_of(row) for row in rows], person.id),
    ).fetchall()
    of_row = {index.number(row["id"]): row for row in told}
    texts = index.texts({found.passages[row].place.chunk for row in rows if row in found.passages})
    similar = {row for phrased in found.phrasings for row, evidence in phrased.evidence.items() if evidence.similar}
    return [
        wire.SearchHit(
            session=sessions.told(of_row[row]),
            family=of_row[row]["family"][:_TEXT],
            speaking=tuple(map(_speaking, weighed[row].speaking)),
            similar=row in similar,
            passage=_passage(found.passages[row], texts) if row in found.passages else None,
            outcome=found.sessions[row].outcome.value,
            turns=found.sessions[row].turns,
            tokens=found.sessions[row].tokens,
            started=found.sessions[row].started[:_TEXT],
            last_activity=found.sessions[row].last_activity[:_TEXT],
        )
        for row in rows
        if row in of_row
    ]


def _speaking(parts: Parts) -> wire.Speaking:
    """Return the points for a session, clamped to their bounds: rounding may exceed the sum of shares."""
    return wire.Speaking(
        **{
            name: max(-1.0 if name == "whole" else 0.0, min(1.0, getattr(parts, name)))
            for name in wire.Speaking.model_fields
        }
    )


def _passage(one: Passage, texts: dict[int, str]) -> wire.SearchPassage:
    place = one.place
    return wire.SearchPassage(
        text=texts.get(place.chunk, "")[:_PASSAGE],
        turn=place.turn,
        message_id=place.message_id[:_TEXT],
        role=cast("PieceRole", place.role),
        exchange=place.exchange,
        ends=place.ends,
        tokens=place.tokens,
        similarity=None if one.similarity is None else max(-1.0, min(1.0, one.similarity)),
    )
