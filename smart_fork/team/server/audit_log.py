"""The audit log: who did what, when, and to which session. It contains no text of sessions."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

from psycopg.types.json import Jsonb
from pydantic import AwareDatetime, BaseModel, Field

from smart_fork.team import wire
from smart_fork.team.server.auth import LOCAL_ADMIN, Person
from smart_fork.team.server.database import Connection


def add_line(
    db: Connection, person: Person | None, verb: str, project_id: int | None, session_id: str | None, **about: object
) -> None:
    """Add a line to the audit log. `about` must not contain text of a session."""
    db.execute(
        "INSERT INTO audit(actor, token, verb, project_id, session_id, details) VALUES (%s, %s, %s, %s, %s, %s)",
        (person and person.id, person and person.token, verb, project_id, session_id, Jsonb(about)),
    )


PAGE_LINES = 200


class AuditFilters(BaseModel, frozen=True):
    """The query string of a request for audit lines."""

    session: UUID | None = None
    since: AwareDatetime | None = None
    mine: bool = False
    page: Annotated[int, Field(ge=0, lt=1 << 63)] | None = None


def page(db: Connection, person: Person, asked: AuditFilters) -> wire.Audit:
    """Return a page of the lines that the user may see and that match `asked`, newest first."""
    rows = db.execute(
        "SELECT a.id, a.at, coalesce(u.name, %(server)s) AS actor, a.verb, p.key AS project,"
        " a.session_id::text AS session_id, a.details"
        " FROM audit_seen(%(all)s) a LEFT JOIN users u ON u.id = a.actor LEFT JOIN projects p ON p.id = a.project_id"
        " WHERE (%(session)s::uuid IS NULL OR a.session_id = %(session)s::uuid)"
        " AND (%(since)s::timestamptz IS NULL OR a.at >= %(since)s::timestamptz)"
        " AND (NOT %(mine)s OR a.actor = %(me)s) AND (%(page)s::bigint IS NULL OR a.id < %(page)s::bigint)"
        " ORDER BY a.id DESC LIMIT %(most)s",
        {"all": person.admin, "server": LOCAL_ADMIN, "me": person.id, "most": PAGE_LINES + 1} | asked.model_dump(),
    ).fetchall()
    shown = ({name: row[name] for name in wire.AuditLine.model_fields} for row in rows[:PAGE_LINES])
    lines = tuple(wire.AuditLine(**one) for one in shown)
    return wire.Audit(lines=lines, next_page=str(rows[PAGE_LINES - 1]["id"]) if len(rows) > PAGE_LINES else None)
