"""Who did what with sessions: written with each request, and never changed or taken away by the server.

One sees what he did himself and what was done with his sessions; a maintainer all of his project; an admin everything,
if he asks for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from smart_fork.errors import Usage
from smart_fork.sharing import wire
from smart_fork.teamserver.auth import ON_ITS_MACHINE, Person
from smart_fork.teamserver.database import Connection

PAGE = 200


@dataclass(frozen=True, slots=True)
class Question:
    """Which lines are meant: of a session, since a time, one's own alone, those before a bookmark."""

    session_id: str | None = None
    since: datetime | None = None
    mine: bool = False
    before: str | None = None


def seen(db: Connection, person: Person, asked: Question) -> wire.Audit:
    """What that person may see, newest first.

    Raises:
        Usage: The bookmark is none of this server's.
    """
    if asked.before is not None and not (asked.before.isascii() and asked.before.isdigit() and len(asked.before) < 19):
        raise Usage("page is not from this server.")
    rows = db.execute(
        "SELECT a.id, a.at, coalesce(u.name, %(server)s) AS name, a.verb, p.key, a.session_id, a.details"
        " FROM audit_seen(%(all)s) a LEFT JOIN users u ON u.id = a.actor LEFT JOIN projects p ON p.id = a.project_id"
        " WHERE (%(session)s::uuid IS NULL OR a.session_id = %(session)s::uuid)"
        " AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s::timestamptz)"
        " AND (NOT %(mine)s OR a.actor = %(me)s) AND (%(before)s::bigint IS NULL OR a.id < %(before)s::bigint)"
        " ORDER BY a.id DESC LIMIT %(page)s",
        {
            "all": person.admin,
            "server": ON_ITS_MACHINE,
            "session": asked.session_id,
            "since": asked.since,
            "mine": asked.mine,
            "me": person.id,
            "before": asked.before,
            "page": PAGE + 1,
        },
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
