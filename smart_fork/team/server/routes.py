"""The routes of the server, with the functions that handle their requests.

A request about a project has its key in the path. A request about a session has the key in the query, as `project`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from smart_fork.display_text import printable
from smart_fork.errors import NotFound, WrongVerb
from smart_fork.sharing import canonical, round_trip
from smart_fork.system.version import own_version
from smart_fork.team import wire
from smart_fork.team.segments import unpack
from smart_fork.team.server import (
    administration,
    audit_log,
    auth,
    jobs,
    metrics,
    push,
    request_handling,
    segment_store,
    sessions,
    withdrawal,
    withdrawal_log,
)
from smart_fork.team.server.auth import Person
from smart_fork.team.server.database import FORM, Connection
from smart_fork.team.server.request_handling import Endpoint, ServerContext, project_key, queried_project, query_of
from smart_fork.team.server.search import answer_search
from smart_fork.team.server.sessions import MAX_COMMIT_BYTES

#: Seconds after which the health check reports a silent database, before a monitor gives up waiting.
HEALTH_SECONDS = 2.0
_MAX_SHOWN = 200


def hello(_server: ServerContext, _: Request) -> canonical.WireModel:
    """Return the versions of the protocol and of this server."""
    return wire.Hello(protocol=wire.PROTOCOL, version=own_version())


def login(server: ServerContext, _: Request, wanted: wire.LoginRequest) -> canonical.WireModel:
    """Exchange an invitation for a token."""
    with server.database.transaction() as db:
        name, token, scope = auth.login(
            db, wanted.invite, wanted.machine, server.token_expires_at(), token=wanted.token
        )
        expires_at = auth.expires_at(db, token)
    return wire.LoggedIn(user=name, token=token, scope=scope, expires_at=expires_at)


def renew(server: ServerContext, _: Request, person: auth.Person) -> canonical.WireModel:
    """Replace the token that came with this request by a new one, and return it."""
    expires_at = server.token_expires_at()
    with server.database.transaction(person.id) as db:
        token = auth.renew_token(db, person, expires_at)
    return wire.LoggedIn(user=person.name, token=token, scope=person.scope, expires_at=expires_at)


def logout(server: ServerContext, _: Request, person: auth.Person) -> Response:
    """Revoke the token that came with this request."""
    with server.database.transaction(person.id) as db:
        auth.revoke(db, person.token)
    return Response(status_code=204)


class AskedSession(BaseModel, frozen=True):
    """The query string of a request for a session. `verb` says what the client will do with it."""

    verb: Literal["show", "pull", "fork"] = "show"


def read(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return a session's description and the positions of its segments (blocks of records).

    With the verb `pull`, the session must be the user's own. A pull or fork is recorded, so that the user's machine
    later learns of withdrawals (records that the owner removes).
    """
    verb = query_of(AskedSession, request).verb

    def found(db: Connection) -> wire.SessionRead:
        row = sessions.readable(
            db, queried_project(request), person, request_handling.session_id(request), own=verb == "pull"
        )
        places = sessions.places(db, row["project_id"], row["id"])
        if verb != "show":
            sessions.store_pull(db, row["project_id"], person, str(row["id"]), row["revision"])
            audit_log.add_line(db, person, verb, row["project_id"], str(row["id"]))
        return wire.SessionRead(session=sessions.session_info(row), segments=tuple(places))

    if verb == "show":
        return server.database.read(person.id, found)
    with server.database.transaction(person.id) as db:
        return found(db)


def change(
    server: ServerContext, request: Request, person: auth.Person, wanted: wire.SessionChange
) -> canonical.WireModel:
    """Change the description or visibility of a session, and return the session."""
    with server.database.transaction(person.id) as db:
        row = sessions.change(db, queried_project(request), person, request_handling.session_id(request), wanted)
        audit_log.add_line(db, person, wanted.visibility or "describe", row["project_id"], str(row["id"]))
    return sessions.session_info(row)


def page(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return a page of a project's sessions that the user may read, newest first."""
    project, wanted = server.project(request, person), query_of(sessions.SessionFilters, request)
    return server.database.read(person.id, lambda db: sessions.page(db, project, person, wanted))


def have(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Have) -> canonical.WireModel:
    """Return which of the requested segments (blocks of records) the server has, so that they need not be sent.

    The answer is empty if the user may not read the project.
    """
    try:
        project = server.project(request, person)
    except NotFound:
        return wire.HaveAnswer(present=())
    with server.database.transaction(person.id) as db:
        return wire.HaveAnswer(present=tuple(segment_store.known_segments(db, project, person, wanted.segments)))


def put_segment(server: ServerContext, request: Request, person: auth.Person, body: bytes) -> Response:
    """Store a segment (a compressed block of records) that a client sends. Sending it again changes nothing."""
    digest = _digest(request)
    lines = unpack(body, digest)
    with server.database.transaction(person.id) as db:
        project = auth.project_to_push(db, person, project_key(request), anybody=server.open_projects)
        project.needs("writer")
        segment_store.store_upload(db, project, person, digest, body, lines)
    return Response(status_code=204)


def get_segment(server: ServerContext, request: Request, person: auth.Person) -> Response:
    """Return the bytes of a segment (a compressed block of records)."""
    digest = _digest(request)
    project = server.project(request, person)
    body = server.database.read(person.id, lambda db: segment_store.readable_body(db, project, person, digest))
    return Response(body, media_type="application/zstd")


def commit(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Push) -> canonical.WireModel:
    """Carry out a push: append records to a session, or create the session."""
    checked = push.check_bodies(wanted)
    with server.database.transaction(person.id) as db:
        project = auth.project_to_push(db, person, project_key(request), anybody=server.open_projects)
    return push.push(server.database, project, person, checked, readable=round_trip.read_back)


def branches(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Branch) -> canonical.WireModel:
    """Create a session with the first records of another session: a branch or a fork."""
    project = server.project(request, person)
    return sessions.branch(server.database, project, person, wanted)


def search(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Search) -> canonical.WireModel:
    """Search the sessions of a project that the user may read."""
    project = server.project(request, person)
    found = server.database.read(person.id, lambda db: answer_search(db, project, person, wanted))
    with server.database.transaction(person.id) as db:
        audit_log.add_line(db, person, "search", project.id, None)
    return found


class AskedChanges(BaseModel, frozen=True):
    """The query string of a request for withdrawals. `since` is the number of the last one that the client knows."""

    since: Annotated[int, Field(ge=0, lt=1 << 63)] = 0


def changes(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return the withdrawals (records removed by their owners) that the client does not know yet.

    They concern the user's own sessions, and sessions of which the user has a copy.
    """
    since = query_of(AskedChanges, request).since
    with server.database.transaction(person.id) as db:
        return withdrawal_log.withdrawals_since(db, person, since)


def withdraw(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Rewrite) -> canonical.WireModel:
    """Withdraw records (remove or replace them) from a session and from all sessions made from it."""
    return withdrawal.rewrite(
        server.database, queried_project(request), person, request_handling.session_id(request), wanted
    )


class AskedDeletion(BaseModel, frozen=True):
    """The query string of a request to delete a session. `everywhere` asks to remove its records too."""

    everywhere: bool = False


def delete(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel | Response:
    """Hide a session.

    With `everywhere`, also remove its own records from the session and from all sessions made from it.
    """
    key, session = queried_project(request), request_handling.session_id(request)
    if query_of(AskedDeletion, request).everywhere:
        return withdrawal.delete_everywhere(server.database, key, person, session)
    with server.database.transaction(person.id) as db:
        if row := sessions.delete(db, key, person, session):
            audit_log.add_line(db, person, "delete", row["project_id"], str(row["id"]))
    return Response(status_code=204)


def audit(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return the lines of the audit log (who did what) that the user may see, newest first."""
    wanted = query_of(audit_log.AuditFilters, request)
    with server.database.transaction(person.id) as db:
        return audit_log.page(db, person, wanted)


def health(server: ServerContext, _: Request) -> Response:
    """Answer a health check: the database must answer, be writable, and have this version's tables."""
    with server.database.transaction() as db:
        row = db.execute(
            "SELECT number, oldest, pg_is_in_recovery() AS copy FROM form ORDER BY number DESC LIMIT 1"
        ).fetchone()
        failed = len(jobs.failed_jobs(db))
    if row is None or row["copy"] or not row["oldest"] <= FORM <= row["number"]:
        return Response("the database is not ready\n", 503, media_type="text/plain")
    more = f"failed jobs: {failed} (smart-fork team jobs)\n" if failed else ""
    if low := metrics.disk_warning(server.data):
        more += f"{low}\n"
    return Response(f"ok\n{more}", media_type="text/plain")


def _digest(request: Request) -> str:
    given = request.path_params["digest"]
    if len(given) != 64 or set(given) - set("0123456789abcdef"):
        raise NotFound(f"Segment not found: {printable(given)[:_MAX_SHOWN]}")
    return str(given)


def administer(server: ServerContext, _: Request, person: Person, wanted: wire.Administer) -> canonical.WireModel:
    """Carry out an admin request from a client. The request's token must belong to an admin."""
    if not person.admin:
        raise WrongVerb("This token is not an admin's.")
    with server.database.transaction(person.id) as db:
        return wire.Administered(told=administration.carry_out(db, wanted, person))


_SESSION, _PROJECT = "/v1/sessions/{id}", "/v1/projects/{project:path}"
_SEGMENT = f"{_PROJECT}/segments/{{digest}}"
ENDPOINTS = (
    Endpoint("GET", "/healthz", health, scope=None, seconds=HEALTH_SECONDS),
    Endpoint("GET", "/v1/hello", hello, scope=None),
    Endpoint("POST", "/v1/login", login, wire.LoginRequest, request_handling.MAX_LOGIN_BYTES, scope=None),
    Endpoint("POST", "/v1/logout", logout),
    Endpoint("POST", "/v1/token", renew),
    Endpoint("GET", "/v1/changes", changes),
    Endpoint("GET", _SESSION, read),
    Endpoint("PATCH", _SESSION, change, wire.SessionChange, scope="write"),
    Endpoint("GET", f"{_PROJECT}/sessions", page),
    Endpoint("POST", f"{_PROJECT}/have", have, wire.Have),
    Endpoint("PUT", _SEGMENT, put_segment, bytes, canonical.LIMITS.segment_body_bytes, scope="write"),
    Endpoint("GET", _SEGMENT, get_segment),
    Endpoint("POST", f"{_PROJECT}/search", search, wire.Search),
    Endpoint("POST", f"{_PROJECT}/push", commit, wire.Push, MAX_COMMIT_BYTES, scope="write"),
    Endpoint("POST", f"{_PROJECT}/branches", branches, wire.Branch, scope="write"),
    Endpoint("DELETE", _SESSION, delete, scope="write"),
    Endpoint("POST", f"{_SESSION}/rewrites", withdraw, wire.Rewrite, MAX_COMMIT_BYTES, scope="write"),
    Endpoint("GET", "/v1/audit", audit),
    Endpoint("POST", "/v1/admin", administer, wire.Administer, scope="admin"),
    *metrics.ENDPOINTS,
)


def application(server: ServerContext) -> ASGIApp:
    """Return the server's ASGI app, which counts each request, checks its token, and calls the route's handler."""
    app = Starlette(routes=[one.route(server) for one in ENDPOINTS], exception_handlers=request_handling.ERROR_HANDLERS)
    app.router.redirect_slashes = False
    return metrics.RequestMetrics(request_handling.TokenGuard(app, server.database))
