"""What the addresses of all rooms are made of: who asks, what was sent, and how it is answered.

A room has a function `routes(server)` with its own addresses, which `app` adds.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

import anyio.to_thread
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response

from smart_fork.errors import Usage
from smart_fork.sharing import wire
from smart_fork.sharing.remote import check_key
from smart_fork.teamserver import auth, guard, sessions
from smart_fork.teamserver.database import Database
from smart_fork.teamserver.limits import Bounds
from smart_fork.text.snippets import printable

_SHOWN = 200


@dataclass
class Server:
    """What all addresses share."""

    database: Database
    bounds: Bounds = field(default_factory=Bounds)
    #: Whether whoever first pushes to a project makes it; else admins alone do.
    open_projects: bool = True
    #: The folder of the server's data, whose disk is watched.
    data: Path | None = None
    #: How long a new token is valid; for ever if `None`.
    token_lifetime: timedelta | None = None

    def token_expires_at(self) -> datetime | None:
        """Return when a token made now ends."""
        return None if self.token_lifetime is None else datetime.now(UTC) + self.token_lifetime

    def person(self, request: Request) -> auth.Person:
        """Whose token came with a request.

        Raises:
            NotAuthenticated: Nobody's.
        """
        person: auth.Person = request.scope[guard.PERSON]
        return person

    def project(self, request: Request, person: auth.Person) -> auth.Project:
        """The project of an address.

        Raises:
            NotFound: There is none, or others' alone.
        """
        with self.database.asked_by(person.id) as db:
            return auth.project(db, person, project_key(request))


Handler = Callable[[Server, Request, auth.Person], wire.Message | Response]
Posted = Callable[[Server, Request, auth.Person, bytes], wire.Message | Response]
Endpoint = Callable[[Request], Awaitable[Response]]


def parsed(model: type[wire.M], body: bytes) -> wire.M:
    """What somebody has sent, if it is that; in a sentence of ours what is wrong with it otherwise.

    Raises:
        Usage: It is not.
    """
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise wire.refused(error) from None


def project_key(request: Request) -> str:
    """The key of the project in an address.

    Raises:
        Usage: It is none.
    """
    return check_key(request.path_params["project"])


def asked_project(request: Request) -> str:
    """The key of the project that a question names.

    Raises:
        Usage: It names none.
    """
    key = request.query_params.get("project")
    if key is None:
        raise Usage("project is missing: the key of the session's project.")
    return check_key(key)


def session_id(request: Request) -> str:
    """The id of the session in an address.

    Raises:
        NotFound: It is none.
    """
    given = request.path_params["id"]
    try:
        if str(UUID(given)) == given:
            return str(given)
    except ValueError:
        pass
    raise sessions.missing(printable(given)[:_SHOWN])


def _answer(said: wire.Message | Response) -> Response:
    if isinstance(said, BaseModel):
        status = 201 if isinstance(said, wire.Pushed) and said.created else 200
        return Response(said.model_dump_json(), status, media_type="application/json")
    return said


def open_to_all(
    server: Server, handler: Callable[[Server, Request], wire.Message | Response], seconds: float | None = None
) -> Endpoint:
    """An address for everybody, which is answered in so many seconds: a thread that still waits is left to itself."""

    async def endpoint(request: Request) -> Response:
        with anyio.fail_after(seconds):
            return _answer(await anyio.to_thread.run_sync(handler, server, request, abandon_on_cancel=True))

    return endpoint


def first_post(server: Server, handler: Callable[[Server, Request, bytes], wire.Message | Response]) -> Endpoint:
    """An address for everybody, who sends a little."""

    async def endpoint(request: Request) -> Response:
        body = await guard.body_of(request, guard.STRANGERS_BYTES, server.bounds.limits)
        return _answer(await run_in_threadpool(handler, server, request, body))

    return endpoint


def known(server: Server, handler: Handler) -> Endpoint:
    """An address for who has a token."""

    async def endpoint(request: Request) -> Response:
        return _answer(await run_in_threadpool(handler, server, request, server.person(request)))

    return endpoint


def posted(server: Server, handler: Posted, most: int) -> Endpoint:
    """An address for who has a token, and sends so many bytes at most."""

    async def endpoint(request: Request) -> Response:
        body = await guard.body_of(request, most, server.bounds.limits)
        return _answer(await run_in_threadpool(handler, server, request, server.person(request), body))

    return endpoint
