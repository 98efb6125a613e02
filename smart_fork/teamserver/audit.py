"""Who did what with sessions: written with each request, and never changed or taken away by the server.

One sees what he did himself and what was done with his sessions; a maintainer all of his project; an admin everything,
if he asks for it.
"""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from pydantic import AwareDatetime, Field

from smart_fork.sharing import wire
from smart_fork.teamserver.auth import ON_ITS_MACHINE, Person
from smart_fork.teamserver.database import Connection
from smart_fork.teamserver.sessions import Query

PAGE = 200


class Question(Query):
    """Which lines are meant: of a session, since a time, one's own alone, those before a bookmark."""

    session: UUID | None = None
    since: AwareDatetime | None = None
    mine: bool = False
    page: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None


def seen(db: Connection, person: Person, asked: Question) -> wire.Audit:
    """What that person may see, newest first."""
    rows = db.execute(
        "SELECT a.id, a.at, coalesce(u.name, %(server)s) AS name, a.verb, p.key, a.session_id, a.details"
        " FROM audit_seen(%(all)s) a LEFT JOIN users u ON u.id = a.actor LEFT JOIN projects p ON p.id = a.project_id"
        " WHERE (%(session)s::uuid IS NULL OR a.session_id = %(session)s::uuid)"
        " AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s::timestamptz)"
        " AND (NOT %(mine)s OR a.actor = %(me)s) AND (%(page)s::bigint IS NULL OR a.id < %(page)s::bigint)"
        " ORDER BY a.id DESC LIMIT %(most)s",
        {"all": person.admin, "server": ON_ITS_MACHINE, "me": person.id, "most": PAGE + 1} | asked.model_dump(),
    ).fetchall()
    lines = tuple(
        wire.AuditLine(
            at=row["at"],
            actor=row["name"],
            verb=row["verb"],
            project=row["key"],
            session_id=str(row["session_id"]) if row["session_id"] else None,
            details=row["details"],
        )
        for row in rows[:PAGE]
    )
    return wire.Audit(lines=lines, next_page=str(rows[PAGE - 1]["id"]) if len(rows) > PAGE else None)
