"""The addresses at which something is withdrawn, and at which one asks what was done."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from smart_fork.sharing import wire
from smart_fork.teamserver import audit, rewrite, sessions
from smart_fork.teamserver.auth import Person
from smart_fork.teamserver.endpoints import Address, Server, asked, asked_project, session_id
from smart_fork.teamserver.limits import COMMIT_BYTES, Query


def withdraw(server: Server, request: Request, person: Person, wanted: wire.Rewrite) -> wire.Message:
    """Withdraw records of a session, from it and from all that was made of it."""
    return rewrite.rewrite(server.database, asked_project(request), person, session_id(request), wanted)


class AskedDeletion(Query):
    """Whether all that is a session's own is withdrawn, or it is hidden."""

    everywhere: bool = False


def delete(server: Server, request: Request, person: Person) -> wire.Message | Response:
    """Hide a session; with `everywhere` withdraw all that is its own."""
    key, session = asked_project(request), session_id(request)
    if asked(AskedDeletion, request).everywhere:
        return rewrite.delete_everywhere(server.database, key, person, session)
    with server.database.asked_by(person.id) as db:
        if row := sessions.delete(db, key, person, session):
            sessions.note(db, person, "delete", row["project_id"], str(row["id"]))
    return Response(status_code=204)


def seen(server: Server, request: Request, person: Person) -> wire.Message:
    """Who did what, as far as one may see it, newest first."""
    wanted = asked(audit.Question, request)
    with server.database.asked_by(person.id) as db:
        return audit.seen(db, person, wanted)


ADDRESSES = (
    Address("DELETE", "/v1/sessions/{id}", delete, scope="write"),
    Address("POST", "/v1/sessions/{id}/rewrites", withdraw, wire.Rewrite, COMMIT_BYTES, scope="write"),
    Address("GET", "/v1/audit", seen),
)
