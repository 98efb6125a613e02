"""What searching keeps of a session: chunks, their vectors and words. Taken away they are made again by a job."""

from __future__ import annotations

from uuid import UUID

from smart_fork.teamserver.database import Connection


def drop(db: Connection, project_id: int, session_id: UUID | str) -> None:
    """Take away all that is found of a session: chunks that no other has, with their vectors, and words of nobody."""
    gone = (project_id, session_id)
    words = {
        row["lexeme"]
        for row in db.execute(
            "SELECT l.lexeme FROM placements p JOIN chunks c ON c.project_id = p.project_id AND c.id = p.chunk_id,"
            " unnest(c.words) l WHERE p.project_id = %s AND p.session_id = %s"
            " UNION SELECT l.lexeme FROM session_words w, unnest(w.words) l"
            " WHERE w.project_id = %s AND w.session_id = %s",
            (*gone, *gone),
        )
    }
    chunks = [
        row["chunk_id"]
        for row in db.execute(
            "DELETE FROM placements WHERE project_id = %s AND session_id = %s RETURNING chunk_id", gone
        )
    ]
    unused = [
        row["id"]
        for row in db.execute(
            "DELETE FROM chunks c WHERE c.project_id = %s AND c.id = ANY(%s)"
            " AND NOT EXISTS (SELECT FROM placements p WHERE p.project_id = c.project_id AND p.chunk_id = c.id)"
            " RETURNING id",
            (project_id, list(set(chunks))),
        )
    ]
    db.execute("DELETE FROM vectors WHERE project_id = %s AND chunk_id = ANY(%s)", (project_id, unused))
    db.execute("DELETE FROM session_words WHERE project_id = %s AND session_id = %s", gone)
    _forget(db, project_id, words)


def _forget(db: Connection, project_id: int, words: set[str]) -> None:
    """Words that nothing has any more: one may be what was to be taken out."""
    db.execute(
        "DELETE FROM lexemes l WHERE l.project_id = %s AND l.lexeme = ANY(%s)"
        " AND NOT EXISTS (SELECT FROM chunks c WHERE c.project_id = l.project_id"
        " AND c.words @@ quote_literal(l.lexeme)::tsquery)"
        " AND NOT EXISTS (SELECT FROM session_words w WHERE w.project_id = l.project_id"
        " AND w.words @@ quote_literal(l.lexeme)::tsquery)",
        (project_id, sorted(words)),
    )
