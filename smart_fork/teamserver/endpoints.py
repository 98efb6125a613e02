"""What the addresses of all rooms are made of: who asks, what was sent, and how it is answered.

A room has its own `ADDRESSES`, which `app` adds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import anyio.to_thread
from pydantic import BaseModel, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from smart_fork.errors import Usage
from smart_fork.sharing import wire
from smart_fork.sharing.remote import check_key
from smart_fork.teamserver import auth, guard, sessions
from smart_fork.teamserver.database import Database
from smart_fork.teamserver.limits import QUESTION_BYTES
from smart_fork.text.snippets import printable

_SHOWN = 200
V = TypeVar("V", bound=BaseModel)


@dataclass
class Server:
    """What all addresses share."""

    database: Database
    #: Whether whoever first pushes to a project makes it; else admins alone do.
    open_projects: bool = True
    #: The folder of the server's data, whose disk is watched.
    data: Path | None = None
    #: How long a new token is valid; for ever if `None`.
    token_lifetime: timedelta | None = None

    def token_expires_at(self) -> datetime | None:
        """Return when a token made now ends."""
        return None if self.token_lifetime is None else datetime.now(UTC) + self.token_lifetime

    def project(self, request: Request, person: auth.Person) -> auth.Project:
        """The project of an address.

        Raises:
            NotFound: There is none, or others' alone.
        """
        with self.database.asked_by(person.id) as db:
            return auth.project(db, person, project_key(request))


def asked(model: type[V], request: Request) -> V:
    """What stands behind the question mark of an address.

    Raises:
        Usage: It is wrong.
    """
    return _valid(lambda: model.model_validate(dict(request.query_params)))


def _valid(read: Callable[[], V]) -> V:
    """What somebody has sent, if it is that; in a sentence of ours what is wrong with it otherwise."""
    try:
        return read()
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


@dataclass(frozen=True, slots=True)
class Address:
    """An address, and what answers there: with the server, the request, who asks, and what was sent.

    `takes` is what is sent there, `most` of how many bytes; `scope` is what a token has to be for. Without it the
    address is open to all, whom the answer is not given. After so many `seconds` a thread that still waits is left
    to itself.
    """

    method: str
    path: str
    handler: Callable[..., wire.Message | Response]
    takes: type[wire.Message | bytes] | None = None
    most: int = QUESTION_BYTES
    scope: auth.Scope | None = "read"
    seconds: float | None = None

    def route(self, server: Server) -> Route:
        """The same of a server."""

        def answered(request: Request, body: bytes) -> Response:
            given: list[Any] = [server, request]
            if self.scope is not None:
                given.append(request.scope[guard.PERSON])
                given[-1].needs(self.scope)
            if self.takes is not None:
                takes = self.takes
                given.append(_valid(lambda: takes.model_validate_json(body)) if issubclass(takes, BaseModel) else body)
            return _answer(self.handler(*given))

        async def endpoint(request: Request) -> Response:
            body = await guard.body_of(request, self.most) if self.takes is not None else b""
            with anyio.fail_after(self.seconds):
                return await anyio.to_thread.run_sync(
                    answered, request, body, abandon_on_cancel=self.seconds is not None
                )

        return Route(self.path, endpoint, methods=[self.method])
