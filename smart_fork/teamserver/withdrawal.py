"""The addresses at which something is withdrawn, and at which one asks what was done."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from smart_fork.errors import Usage
from smart_fork.sharing import wire
from smart_fork.teamserver import audit, rewrite, sessions
from smart_fork.teamserver.auth import Person
from smart_fork.teamserver.endpoints import Server, asked_project, known, parsed, posted, session_id


def withdraw(server: Server, request: Request, person: Person, body: bytes) -> wire.Message:
    """Withdraw records of a session, from it and from all that was made of it."""
    person.needs("write")
    wanted = parsed(wire.Rewrite, body)
    done = rewrite.rewrite(
        server.database,
        asked_project(request),
        person,
        session_id(request),
        wanted,
        limits=server.bounds.limits,
    )
    return wire.Rewritten(session=sessions.told(done.row), descendants=done.descendants)


def delete(server: Server, request: Request, person: Person) -> wire.Message | Response:
    """Hide a session; with `everywhere` withdraw all that is its own."""
    person.needs("write")
    everywhere = request.query_params.get("everywhere", "0")
    if everywhere not in ("0", "1"):
        raise Usage("everywhere is 0 or 1.")
    key, session = asked_project(request), session_id(request)
    if everywhere == "1":
        done = rewrite.delete_everywhere(server.database, key, person, session, limits=server.bounds.limits)
        return wire.Rewritten(session=sessions.told(done.row), descendants=done.descendants)
    with server.database.asked_by(person.id) as db:
        if row := sessions.delete(db, key, person, session):
            sessions.note(db, person, "delete", row["project_id"], str(row["id"]))
    return Response(status_code=204)


def seen(server: Server, request: Request, person: Person) -> wire.Message:
    """Who did what, as far as one may see it, newest first."""
    asked = request.query_params
    question = audit.Question(
        session_id=_session(asked.get("session")),
        since=_time(asked.get("since")),
        mine=asked.get("mine") == "1",
        before=asked.get("page"),
    )
    with server.database.asked_by(person.id) as db:
        return audit.seen(db, person, question)


def routes(server: Server) -> Sequence[BaseRoute]:
    """The addresses of this room."""
    return (
        Route("/v1/sessions/{id}", known(server, delete), methods=["DELETE"]),
        Route("/v1/sessions/{id}/rewrites", posted(server, withdraw, server.bounds.commit_bytes), methods=["POST"]),
        Route("/v1/audit", known(server, seen), methods=["GET"]),
    )


def _session(given: str | None) -> str | None:
    if given is None:
        return None
    try:
        return str(UUID(given))
    except ValueError:
        raise Usage("session is not an id.") from None


def _time(given: str | None) -> datetime | None:
    if given is None:
        return None
    try:
        at = datetime.fromisoformat(given)
    except ValueError:
        raise Usage("since is not a time.") from None
    if at.tzinfo is None:
        raise Usage("since needs a time with its zone.")
    return at
