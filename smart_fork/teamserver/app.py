"""What the server answers: its addresses, and for each who may ask what of it.

All of one project is below its key; a session is asked for with the key of its project as `project`.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import datetime
from uuid import UUID

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp

from smart_fork.errors import NotFound, Usage
from smart_fork.sharing import replay, wire
from smart_fork.system.release import own_version
from smart_fork.teamserver import (
    admin,
    auth,
    branch,
    guard,
    jobs,
    metrics,
    push,
    question,
    segments,
    sessions,
    withdrawal,
    withdrawn,
)
from smart_fork.teamserver.database import Connection
from smart_fork.teamserver.endpoints import (
    Server,
    asked_project,
    first_post,
    known,
    open_to_all,
    parsed,
    posted,
    project_key,
    session_id,
)
from smart_fork.teamserver.index import own_space
from smart_fork.teamserver.schema import FORM
from smart_fork.text.snippets import printable

#: A monitor is told that the database is away before it stops waiting itself.
HEALTH_SECONDS = 2.0
_SHOWN = 200
#: The addresses of the other rooms.
ROOMS: Sequence[Callable[[Server], Sequence[BaseRoute]]] = (withdrawal.routes, admin.routes, metrics.routes)


def hello(server: Server, _: Request) -> wire.Message:
    """What this server is."""
    limits = server.bounds.limits
    return wire.Hello(
        protocol=wire.PROTOCOL,
        version=own_version(),
        limits=wire.LimitsSaid(**{name: getattr(limits, name) for name in wire.LimitsSaid.model_fields}),
        spaces=(own,) if (own := own_space()) else (),
    )


def login(server: Server, _: Request, body: bytes) -> wire.Message:
    """A token for whoever has an invitation."""
    wanted = parsed(wire.Login, body)
    with server.database.asked_by() as db:
        name, token, scope = auth.login(
            db, wanted.invite, wanted.machine, server.token_expires_at(), token=wanted.token
        )
        expires_at = auth.expires_at(db, token)
    return wire.LoggedIn(user=name, token=token, scope=scope, expires_at=expires_at)


def renew(server: Server, _: Request, person: auth.Person) -> wire.Message:
    """Replace the token of this request."""
    expires_at = server.token_expires_at()
    with server.database.asked_by(person.id) as db:
        token = auth.renewed(db, person, expires_at)
    return wire.LoggedIn(user=person.name, token=token, scope=person.scope, expires_at=expires_at)


def logout(server: Server, _: Request, person: auth.Person) -> Response:
    """End the token with which this is asked."""
    with server.database.asked_by(person.id) as db:
        auth.revoke(db, person.token)
    return Response(status_code=204)


def read(server: Server, request: Request, person: auth.Person) -> wire.Message:
    """A session and its segments. Who `pull`s gets his own alone, and is told later of what is withdrawn."""
    verb = request.query_params.get("verb", "show")
    if verb not in ("show", "pull", "fork"):
        raise Usage("verb is one of show, pull and fork.")

    def asked(db: Connection) -> wire.SessionRead:
        row = sessions.readable(db, asked_project(request), person, session_id(request), own=verb == "pull")
        places = sessions.places(db, row["project_id"], row["id"])
        if verb != "show":
            sessions.note_pull(db, row["project_id"], person, str(row["id"]), row["revision"])
            sessions.note(db, person, verb, row["project_id"], str(row["id"]))
        return wire.SessionRead(session=sessions.told(row), segments=sessions.travelling(places))

    if verb == "show":
        return server.database.read(person.id, asked)
    with server.database.asked_by(person.id) as db:
        return asked(db)


def change(server: Server, request: Request, person: auth.Person, body: bytes) -> wire.Message:
    """Change what is said of a session, or who may read it."""
    person.needs("write")
    wanted = parsed(wire.SessionChange, body)
    with server.database.asked_by(person.id) as db:
        row = sessions.change(db, asked_project(request), person, session_id(request), wanted)
        sessions.note(db, person, wanted.visibility or "describe", row["project_id"], str(row["id"]))
    return sessions.told(row)


def page(server: Server, request: Request, person: auth.Person) -> wire.Message:
    """Sessions of a project, newest first."""
    limit = request.query_params.get("limit", str(wire.PAGE))
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit[:4]) <= wire.PAGE):
        raise Usage(f"limit is a number from 1 to {wire.PAGE}.")
    before = _place(request.query_params.get("page"))
    project = server.project(request, person)
    narrowed = _narrowed(request, person)
    rows = server.database.read(
        person.id, lambda db: sessions.page(db, project, person, before, int(limit) + 1, narrowed)
    )
    shown = rows[: int(limit)]
    bookmark = _bookmark(shown[-1]["last_activity"], shown[-1]["id"]) if len(rows) > len(shown) else None
    return wire.SessionPage(sessions=tuple(map(sessions.told, shown)), next_page=bookmark)


def have(server: Server, request: Request, person: auth.Person, body: bytes) -> wire.Message:
    """Which segments need not be sent. Of a project that is not there, or others', all have to be."""
    wanted = parsed(wire.Have, body)
    try:
        project = server.project(request, person)
    except NotFound:
        return wire.HaveAnswer(present=())
    with server.database.asked_by(person.id) as db:
        return wire.HaveAnswer(present=tuple(segments.have(db, project, person, wanted.segments)))


def put_segment(server: Server, request: Request, person: auth.Person, body: bytes) -> Response:
    """Take a segment; to send it again changes nothing."""
    person.needs("write")
    digest = _digest(request)
    lines = segments.checked(body, digest, server.bounds)
    with server.database.asked_by(person.id) as db:
        project = auth.project_to_push(db, person, project_key(request), anybody=server.open_projects)
        project.needs("writer")
        raw = sum(map(len, lines)) + len(lines)
        segments.take(db, project, person, digest, body=body, records=len(lines), raw=raw)
    return Response(status_code=204)


def get_segment(server: Server, request: Request, person: auth.Person) -> Response:
    """The compressed records of a segment."""
    digest = _digest(request)
    project = server.project(request, person)
    body = server.database.read(person.id, lambda db: segments.content(db, project, person, digest))
    return Response(body, media_type="application/zstd")


def commit(server: Server, request: Request, person: auth.Person, body: bytes) -> wire.Message:
    """Append to a session, or make it."""
    person.needs("write")
    wanted = push.check_bodies(parsed(wire.Push, body), server.bounds)
    with server.database.asked_by(person.id) as db:
        project = auth.project_to_push(db, person, project_key(request), anybody=server.open_projects)
    return _pushed(push.push(server.database, project, person, wanted, server.bounds, readable=replay.check))


def branches(server: Server, request: Request, person: auth.Person, body: bytes) -> wire.Message:
    """Make a session with the first records of another."""
    person.needs("write")
    wanted = parsed(wire.Branch, body)
    project = server.project(request, person)
    return _pushed(branch.branch(server.database, project, person, wanted, server.bounds))


def search(server: Server, request: Request, person: auth.Person, body: bytes) -> wire.Message:
    """What the sessions of a project that somebody may read know about a question."""
    wanted = parsed(wire.Search, body)
    project = server.project(request, person)
    found = server.database.read(person.id, lambda db: question.answer(db, project, person, wanted))
    with server.database.asked_by(person.id) as db:
        sessions.note(db, person, "search", project.id, None)
    return found


def changes(server: Server, request: Request, person: auth.Person) -> wire.Message:
    """What was withdrawn since somebody asked last, of what he has."""
    with server.database.asked_by(person.id) as db:
        return withdrawn.changes(db, person, request.query_params.get("since"))


def health(server: Server, _: Request) -> Response:
    """Whether the database answers, has the tables that this version needs, and takes what is written."""
    with server.database.asked_by() as db:
        row = db.execute(
            "SELECT number, oldest, pg_is_in_recovery() AS copy FROM form ORDER BY number DESC LIMIT 1"
        ).fetchone()
        failed = len(jobs.given_up(db))
    if row is None or row["copy"] or not row["oldest"] <= FORM <= row["number"]:
        return Response("the database is not ready\n", 503, media_type="text/plain")
    more = f"failed jobs: {failed} (smart-fork team jobs)\n" if failed else ""
    if low := metrics.disk_warning(server.data):
        more += f"{low}\n"
    return Response(f"ok\n{more}", media_type="text/plain")


def application(server: Server) -> ASGIApp:
    """The whole server, behind its guard."""
    sizes = server.bounds
    routes: list[BaseRoute] = [
        Route("/healthz", open_to_all(server, health, HEALTH_SECONDS)),
        Route("/v1/hello", open_to_all(server, hello)),
        Route("/v1/login", first_post(server, login), methods=["POST"]),
        Route("/v1/logout", known(server, logout), methods=["POST"]),
        Route("/v1/token", known(server, renew), methods=["POST"]),
        Route("/v1/changes", known(server, changes), methods=["GET"]),
        Route("/v1/sessions/{id}", known(server, read), methods=["GET"]),
        Route("/v1/sessions/{id}", posted(server, change, sizes.question_bytes), methods=["PATCH"]),
        Route("/v1/projects/{project:path}/sessions", known(server, page), methods=["GET"]),
        Route("/v1/projects/{project:path}/have", posted(server, have, sizes.question_bytes), methods=["POST"]),
        Route(
            "/v1/projects/{project:path}/segments/{digest}",
            posted(server, put_segment, sizes.limits.segment_body_bytes),
            methods=["PUT"],
        ),
        Route("/v1/projects/{project:path}/segments/{digest}", known(server, get_segment), methods=["GET"]),
        Route("/v1/projects/{project:path}/search", posted(server, search, sizes.question_bytes), methods=["POST"]),
        Route("/v1/projects/{project:path}/push", posted(server, commit, sizes.commit_bytes), methods=["POST"]),
        Route("/v1/projects/{project:path}/branches", posted(server, branches, sizes.question_bytes), methods=["POST"]),
    ]
    routes += [route for room in ROOMS for route in room(server)]
    app = Starlette(routes=routes, exception_handlers=guard.HANDLERS)
    app.router.redirect_slashes = False
    return metrics.Watched(guard.Guard(app, server.database, server.bounds.limits))


def _pushed(outcome: push.Outcome) -> wire.Pushed:
    return wire.Pushed(
        session=sessions.told(outcome.row),
        created=outcome.created,
        up_to_date=outcome.up_to_date,
        vectors_dropped=outcome.vectors_dropped,
    )


def _digest(request: Request) -> str:
    given = request.path_params["digest"]
    if len(given) != 64 or set(given) - set("0123456789abcdef"):
        raise NotFound(f"Segment not found: {printable(given)[:_SHOWN]}")
    return str(given)


def _bookmark(at: datetime, session: UUID) -> str:
    return base64.urlsafe_b64encode(f"{at.isoformat()} {session}".encode()).decode()


def _narrowed(request: Request, person: auth.Person) -> sessions.Narrowed:
    """Which sessions are asked for; `mine` are one's own, whatever one is called."""
    asked = {name: request.query_params.get(name) for name in ("owner", "tag", "agent", "root", "id")}
    if any("\0" in value for value in asked.values() if value):
        raise Usage("No such text.")
    if request.query_params.get("mine") == "true":
        asked["owner"] = person.name
    return sessions.Narrowed(**asked)


def _place(bookmark: str | None) -> tuple[str, str] | None:
    """Where a page begins. It is no secret and no right: each row is looked at by itself."""
    if bookmark is None:
        return None
    try:
        at, _, session = base64.b64decode(bookmark, altchars=b"-_", validate=True).decode("ascii").partition(" ")
        return datetime.fromisoformat(at).isoformat(), str(UUID(session))
    except (binascii.Error, ValueError):
        raise Usage("page is not from this server.") from None
