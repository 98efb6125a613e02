"""The routes of the server and their handlers, and the admin requests.

A request about a project has its key in the path. A request about a session has the key in the query, as `project`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp

from smart_fork.display_text import printable
from smart_fork.errors import NotFound, WrongVerb
from smart_fork.sharing import canonical, round_trip
from smart_fork.system.version import own_version
from smart_fork.team import wire
from smart_fork.team.records import unpack
from smart_fork.team.server import auth, endpoints, jobs, metrics, push, sessions, stored_records, withdrawal
from smart_fork.team.server.auth import Person
from smart_fork.team.server.database import FORM, Connection, owner_transaction
from smart_fork.team.server.endpoints import Endpoint, ServerContext, asked, asked_project, project_key, session_id
from smart_fork.team.server.search import answer_search
from smart_fork.team.server.sessions import MAX_COMMIT_BYTES, QueryParameters

#: Seconds after which the health check reports a silent database, before a monitor gives up waiting.
HEALTH_SECONDS = 2.0
_MAX_SHOWN = 200


def hello(_server: ServerContext, _: Request) -> canonical.WireModel:
    """Return the versions of the protocol and of this server."""
    return wire.Hello(protocol=wire.PROTOCOL, version=own_version())


def login(server: ServerContext, _: Request, wanted: wire.LoginRequest) -> canonical.WireModel:
    """Exchange an invitation for a token."""
    with server.database.asked_by() as db:
        name, token, scope = auth.login(
            db, wanted.invite, wanted.machine, server.token_expires_at(), token=wanted.token
        )
        expires_at = auth.expires_at(db, token)
    return wire.LoggedIn(user=name, token=token, scope=scope, expires_at=expires_at)


def renew(server: ServerContext, _: Request, person: auth.Person) -> canonical.WireModel:
    """Replace the token that came with this request by a new one, and return it."""
    expires_at = server.token_expires_at()
    with server.database.asked_by(person.id) as db:
        token = auth.renew_token(db, person, expires_at)
    return wire.LoggedIn(user=person.name, token=token, scope=person.scope, expires_at=expires_at)


def logout(server: ServerContext, _: Request, person: auth.Person) -> Response:
    """Revoke the token that came with this request."""
    with server.database.asked_by(person.id) as db:
        auth.revoke(db, person.token)
    return Response(status_code=204)


class AskedSession(QueryParameters):
    """The query string of a request for a session. `verb` says what the client will do with it."""

    verb: Literal["show", "pull", "fork"] = "show"


def read(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return a session's description and the positions of its segments (blocks of records).

    With the verb `pull`, the session must be the user's own. A pull or fork is recorded, so that the user's machine
    later learns of withdrawals (records that the owner removes).
    """
    verb = asked(AskedSession, request).verb

    def found(db: Connection) -> wire.SessionRead:
        row = sessions.readable(db, asked_project(request), person, session_id(request), own=verb == "pull")
        places = sessions.places(db, row["project_id"], row["id"])
        if verb != "show":
            sessions.store_pull(db, row["project_id"], person, str(row["id"]), row["revision"])
            sessions.add_audit_line(db, person, verb, row["project_id"], str(row["id"]))
        return wire.SessionRead(session=sessions.session_info(row), segments=tuple(places))

    if verb == "show":
        return server.database.read(person.id, found)
    with server.database.asked_by(person.id) as db:
        return found(db)


def change(
    server: ServerContext, request: Request, person: auth.Person, wanted: wire.SessionChange
) -> canonical.WireModel:
    """Change the description or visibility of a session, and return the session."""
    with server.database.asked_by(person.id) as db:
        row = sessions.change(db, asked_project(request), person, session_id(request), wanted)
        sessions.add_audit_line(db, person, wanted.visibility or "describe", row["project_id"], str(row["id"]))
    return sessions.session_info(row)


def page(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return a page of a project's sessions that the user may read, newest first."""
    project, wanted = server.project(request, person), asked(sessions.AskedPage, request)
    return server.database.read(person.id, lambda db: sessions.page(db, project, person, wanted))


def have(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Have) -> canonical.WireModel:
    """Return those segments (blocks of records) of the request that the server has, so that they need not be sent.

    The answer is empty if the user may not read the project.
    """
    try:
        project = server.project(request, person)
    except NotFound:
        return wire.HaveAnswer(present=())
    with server.database.asked_by(person.id) as db:
        return wire.HaveAnswer(present=tuple(stored_records.known_segments(db, project, person, wanted.segments)))


def put_segment(server: ServerContext, request: Request, person: auth.Person, body: bytes) -> Response:
    """Store a segment (a compressed block of records) that a client sends. Sending it again changes nothing."""
    digest = _digest(request)
    lines = unpack(body, digest)
    with server.database.asked_by(person.id) as db:
        project = auth.project_to_push(db, person, project_key(request), anybody=server.open_projects)
        project.needs("writer")
        stored_records.store_upload(db, project, person, digest, body, lines)
    return Response(status_code=204)


def get_segment(server: ServerContext, request: Request, person: auth.Person) -> Response:
    """Return the bytes of a segment (a compressed block of records)."""
    digest = _digest(request)
    project = server.project(request, person)
    body = server.database.read(person.id, lambda db: stored_records.content(db, project, person, digest))
    return Response(body, media_type="application/zstd")


def commit(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Push) -> canonical.WireModel:
    """Carry out a push: append records to a session, or create the session."""
    checked = push.check_bodies(wanted)
    with server.database.asked_by(person.id) as db:
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
    with server.database.asked_by(person.id) as db:
        sessions.add_audit_line(db, person, "search", project.id, None)
    return found


class AskedChanges(QueryParameters):
    """The query string of a request for withdrawals. `since` is the number of the last one that the client knows."""

    since: Annotated[int, Field(ge=0, lt=1 << 63)] = 0


def changes(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return the withdrawals (records removed by their owners) that the client does not know yet.

    They concern the user's own sessions, and sessions of which the user has a copy.
    """
    since = asked(AskedChanges, request).since
    with server.database.asked_by(person.id) as db:
        return stored_records.changes(db, person, since)


def withdraw(server: ServerContext, request: Request, person: auth.Person, wanted: wire.Rewrite) -> canonical.WireModel:
    """Withdraw records (remove or replace them) from a session and from all sessions made from it."""
    return withdrawal.rewrite(server.database, asked_project(request), person, session_id(request), wanted)


class AskedDeletion(QueryParameters):
    """The query string of a request to delete a session, or `everywhere` also its records."""

    everywhere: bool = False


def delete(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel | Response:
    """Hide a session.

    With `everywhere`, also remove its own records from the session and from all sessions made from it.
    """
    key, session = asked_project(request), session_id(request)
    if asked(AskedDeletion, request).everywhere:
        return withdrawal.delete_everywhere(server.database, key, person, session)
    with server.database.asked_by(person.id) as db:
        if row := sessions.delete(db, key, person, session):
            sessions.add_audit_line(db, person, "delete", row["project_id"], str(row["id"]))
    return Response(status_code=204)


def seen(server: ServerContext, request: Request, person: auth.Person) -> canonical.WireModel:
    """Return the lines of the audit log (who did what) that the user may see, newest first."""
    wanted = asked(sessions.AuditQuestion, request)
    with server.database.asked_by(person.id) as db:
        return sessions.audit_page(db, person, wanted)


def health(server: ServerContext, _: Request) -> Response:
    """Answer a health check: the database must answer, be writable, and have this version's tables."""
    with server.database.asked_by() as db:
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


AdminAnswer = dict[str, Any]


def carry_out(db: Connection, wanted: wire.Administer, person: Person | None = None) -> AdminAnswer:
    """Carry out an admin request, such as adding a user, and write changes to the audit log.

    `person` is the admin, or `None` for a request on the server's own machine.
    """
    told = _ADMIN_ACTIONS[wanted.verb](db, wanted)
    if wanted.verb not in _READING_VERBS:
        about = {name: value for name in ("name", "project", "role", "token") if (value := getattr(wanted, name))}
        if wanted.verb != "member":
            about.pop("role", None)
        sessions.add_audit_line(db, person, f"admin_{wanted.verb}", None, None, **about)
    return told


def carry_out_locally(folder: Path, dsn: str | None, wanted: wire.Administer) -> AdminAnswer:
    """Carry out an admin request in the database `dsn`, or in that of the server that runs in `folder`."""
    with owner_transaction(folder, dsn) as db:
        return carry_out(db, wanted)


def _member(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    key = canonical.check_key(wanted.project)
    if wanted.make:
        auth.make_project(db, key)
    auth.set_member(db, key, wanted.name, None if wanted.role == "none" else wanted.role)
    return {"user": wanted.name, "project": wanted.project, "role": wanted.role}


def _disable(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    auth.disable_user(db, wanted.name)
    return {"user": wanted.name, "disabled": True}


def _enable(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    auth.enable_user(db, wanted.name)
    return {"user": wanted.name, "disabled": False}


def _revoke(db: Connection, wanted: wire.Administer) -> AdminAnswer:
    auth.revoke(db, wanted.token)
    return {"token": wanted.token, "revoked": True}


_READING_VERBS = ("users", "tokens", "jobs")


_ADMIN_ACTIONS: Mapping[str, Callable[[Connection, wire.Administer], AdminAnswer]] = {
    "add": lambda db, wanted: add(db, wanted.name, admin=wanted.admin, project=wanted.project or None),
    "invite": lambda db, wanted: invited(db, wanted.name),
    "users": lambda db, _: {"users": users(db)},
    "tokens": lambda db, _: {"tokens": tokens(db)},
    "jobs": lambda db, _: {"jobs": jobs.failed_jobs(db)},
    "retry": lambda db, _: {"retried": jobs.retry(db)},
    "member": _member,
    "disable": _disable,
    "enable": _enable,
    "revoke": _revoke,
}


def administer(server: ServerContext, _: Request, person: Person, wanted: wire.Administer) -> canonical.WireModel:
    """Carry out an admin request from a client. The request's token must belong to an admin."""
    if not person.admin:
        raise WrongVerb("This token is not an admin's.")
    with server.database.asked_by(person.id) as db:
        return wire.Administered(told=carry_out(db, wanted, person))


def add(db: Connection, name: str, *, admin: bool, project: str | None = None) -> dict[str, Any]:
    """Create a user, and return an answer with an invitation. Its text is not stored and cannot be shown again.

    With a `project`, the user becomes a writer of the project, or its maintainer if the project is new.
    """
    key = None if project is None else canonical.check_key(project)
    auth.add_user(db, name, admin=admin)
    told = invited(db, name, admin=admin)
    if key is None:
        return told
    role: auth.Role = "maintainer" if auth.make_project(db, key) else "writer"
    auth.set_member(db, key, name, role)
    return told | {"project": key, "project_role": role}


def invited(db: Connection, name: str, *, admin: bool = False) -> dict[str, Any]:
    """Return an answer with another invitation for an existing user, to log in on another machine."""
    invitation = auth.invite(db, name, "admin" if admin else "write")
    return {
        "user": name,
        "role": "admin" if admin else "member",
        "invite": invitation,
        "days": auth.INVITATION_LIFETIME.days,
    }


def users(db: Connection) -> list[dict[str, Any]]:
    """Return all users, with their roles in projects and the time of their last request."""
    rows = db.execute(
        "SELECT u.name, u.role, u.disabled_at IS NOT NULL AS disabled, u.bytes,"
        " (SELECT max(t.used_at) FROM tokens t WHERE t.user_id = u.id) AS seen,"
        " (SELECT coalesce(jsonb_object_agg(p.key, m.role), '{}') FROM members m"
        " JOIN projects p ON p.id = m.project_id WHERE m.user_id = u.id) AS projects"
        " FROM users u ORDER BY u.name"
    )
    return [row | {"seen": _time(row["seen"])} for row in rows]


def tokens(db: Connection) -> list[dict[str, Any]]:
    """Return all tokens (logins of machines): number, user, machine and times, but not the token's secret text."""
    rows = db.execute(
        "SELECT t.id, u.name AS user, t.machine, t.scope, t.created_at AS created, t.used_at AS used,"
        " t.expires_at AS expires, t.revoked_at IS NOT NULL AS revoked"
        " FROM tokens t JOIN users u ON u.id = t.user_id ORDER BY t.id"
    )
    return [row | {name: _time(row[name]) for name in ("created", "used", "expires")} for row in rows]


def _time(value: Any) -> str | None:
    return None if value is None else value.isoformat(timespec="seconds")


_SESSION, _PROJECT = "/v1/sessions/{id}", "/v1/projects/{project:path}"
_SEGMENT = f"{_PROJECT}/segments/{{digest}}"
ENDPOINTS = (
    Endpoint("GET", "/healthz", health, scope=None, seconds=HEALTH_SECONDS),
    Endpoint("GET", "/v1/hello", hello, scope=None),
    Endpoint("POST", "/v1/login", login, wire.LoginRequest, endpoints.MAX_LOGIN_BYTES, scope=None),
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
    Endpoint("GET", "/v1/audit", seen),
    Endpoint("POST", "/v1/admin", administer, wire.Administer, scope="admin"),
    *metrics.ENDPOINTS,
)


def application(server: ServerContext) -> ASGIApp:
    """Return the server's ASGI app, which counts each request, checks its token, and calls the route's handler."""
    app = Starlette(routes=[one.route(server) for one in ENDPOINTS], exception_handlers=endpoints.ERROR_HANDLERS)
    app.router.redirect_slashes = False
    return metrics.RequestMetrics(endpoints.TokenGuard(app, server.database))
