"""What searching keeps of a session: chunks, their vectors and words. Taken away they are made again by a job."""

from __future__ import annotations

from uuid import UUID

from smart_fork.teamserver.database import Connection


def drop(db: Connection, project_id: int, session_id: UUID | str) -> None:
    """Take away all that is found of a session: chunks that no other has, with their vectors, and words of nobody.

    Whoever withdraws something may not read all that was made of it: the database does it for him.
    """
    db.execute("SELECT unindex(%s, %s)", (project_id, session_id))
