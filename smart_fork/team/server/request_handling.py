"""The handling of requests that all routes share: check of tokens, parsing, responses to errors, and limits."""

from __future__ import annotations

import errno
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

import anyio
import anyio.to_thread
import psycopg
from psycopg_pool import PoolTimeout
from pydantic import BaseModel, ValidationError
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_fork import errors
from smart_fork.display_text import printable
from smart_fork.errors import Usage
from smart_fork.sharing import canonical
from smart_fork.system.http_limits import TokenBucket
from smart_fork.team import wire
from smart_fork.team.server import auth, sessions
from smart_fork.team.server.database import Database
from smart_fork.team.server.sessions import MAX_QUESTION_BYTES, OverQuota
from smart_fork.team.wire import PROTOCOL, PROTOCOL_HEADER, Failure

#: The keys in a request's ASGI scope for the user, and for the remaining requests and bytes of the token.
PERSON_KEY, COUNTED_KEY = "smart_fork.person", "smart_fork.counted"
#: The paths that need no token.
OPEN_PATHS = ("/healthz", "/v1/hello", "/v1/login")
MAX_LOGIN_BYTES = 4096
#: The limit for requests without a valid token, of all clients together: at one time, and per second.
MAX_UNAUTHENTICATED, UNAUTHENTICATED_PER_SECOND = 200.0, 20.0
#: The most tokens whose requests are counted at the same time.
MAX_COUNTED_TOKENS = 10_000
_MAX_TEXT = 200

log = logging.getLogger(__name__)


class TooOften(errors.SmartForkError):
    """The client has sent more requests in a minute, or more bytes in an hour, than allowed."""

    code = "too_often"
    http_status = 429


class TooSlow(errors.SmartForkError):
    """The request did not arrive in time."""

    code = "too_slow"
    http_status = 408


class OtherProtocol(errors.SmartForkError):
    """The client speaks another version of the protocol."""

    code = "protocol"
    http_status = 426


#: The errors that clients get with their own code. All others have the code `failed`.
REPORTED_ERRORS = (
    errors.Unshareable,
    errors.Conflict,
    errors.NotAuthenticated,
    errors.WrongVerb,
    errors.NotFound,
    errors.Usage,
    TooOften,
    TooSlow,
    OtherProtocol,
)


def failure(error: errors.SmartForkError) -> Response:
    """Return the HTTP response for an error, with its message and hint in JSON."""
    code = error.code if isinstance(error, REPORTED_ERRORS) else "failed"
    more: dict[str, Any] = {}
    if isinstance(error, errors.Conflict):
        more = {"count": error.count, "digest": error.digest}
    elif isinstance(error, OverQuota):
        more = {"used": error.used, "limit": error.limit}
    said = Failure(
        error=code, message=printable(error.message)[:_MAX_TEXT], hint=printable(error.hint)[:_MAX_TEXT], **more
    )
    headers = {"WWW-Authenticate": "Bearer"} if error.http_status == 401 else {}
    return Response(said.model_dump_json(exclude_none=True), error.http_status, headers, media_type="application/json")


def _said(status: int, code: str, message: str) -> Response:
    said = Failure(error=code, message=message).model_dump_json(exclude_none=True)
    return Response(said, status, media_type="application/json")


async def _ours(_: Request, error: Exception) -> Response:
    assert isinstance(error, errors.SmartForkError)  # noqa: S101 - it is registered for these
    return failure(error)


async def _starlettes(_: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    return _said(status, "no_such_address", "Unknown address.")


async def _away(_: Request, error: Exception) -> Response:
    log.warning("the database does not answer", exc_info=error)
    return _said(503, "unavailable", "The server's database does not answer now. Try again.")


async def _full(_: Request, error: Exception) -> Response:
    log.error("there is no room", exc_info=error)
    return _said(507, "no_room", "The disk of the server is full: nothing was changed.")


async def _disk(request: Request, error: Exception) -> Response:
    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
    return await (_full if full else _broken)(request, error)


async def _data(_: Request, error: Exception) -> Response:
    log.warning("the database refuses a value", exc_info=error)
    return _said(400, "usage", "The request has a character that cannot be stored.")


async def _broken(_: Request, error: Exception) -> Response:
    log.error("a request failed", exc_info=error)
    return _said(500, "failed", "The server failed. Its log has the reason.")


ERROR_HANDLERS: Mapping[Any, Any] = {
    errors.SmartForkError: _ours,
    HTTPException: _starlettes,
    psycopg.OperationalError: _away,
    TimeoutError: _away,
    psycopg.errors.DiskFull: _full,
    OSError: _disk,
    PoolTimeout: _away,
    psycopg.DataError: _data,
    Exception: _broken,
}


@dataclass
class TokenLimits:
    """The numbers of requests and bytes that may still be sent with one token. They refill over time."""

    requests: TokenBucket
    bytes: TokenBucket


@dataclass
class TokenGuard:
    """An ASGI app that checks the token of each request before its route, and limits the requests of a token.

    Only the paths in `OPEN_PATHS` need no token.
    """

    app: ASGIApp
    database: Database
    wrong: TokenBucket = field(default_factory=lambda: TokenBucket(MAX_UNAUTHENTICATED, UNAUTHENTICATED_PER_SECOND))
    _counted: OrderedDict[int, TokenLimits] = field(default_factory=OrderedDict)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self.app(scope, receive, send)
            return
        if scope["type"] != "http":
            return
        try:
            await self._let_in(scope)
        except errors.SmartForkError as error:
            await failure(error)(scope, receive, _with_protocol_version(send))
            return
        except (psycopg.OperationalError, PoolTimeout) as error:
            said = _full if isinstance(error, psycopg.errors.DiskFull) else _away
            await (await said(Request(scope), error))(scope, receive, _with_protocol_version(send))
            return
        await self.app(scope, receive, _with_protocol_version(send))

    async def _let_in(self, scope: Scope) -> None:
        headers = Headers(scope=scope)
        spoken = headers.get(PROTOCOL_HEADER)
        if spoken is not None and spoken != str(PROTOCOL):
            raise OtherProtocol(
                f"This server speaks version {PROTOCOL} of the protocol.", "Install the same version of smart-fork."
            )
        if scope["path"] in OPEN_PATHS:
            self._count_unauthenticated()
            return
        kind, _, token = headers.get("authorization", "").partition(" ")
        try:
            person = await run_in_threadpool(self._known, token.strip() if kind.lower() == "bearer" else "")
        except errors.NotAuthenticated:
            self._count_unauthenticated()
            raise
        counted = self._of(person.token)
        if not counted.requests.take():
            raise TooOften(f"More than {canonical.LIMITS.requests_a_minute} requests a minute. Try again in a minute.")
        scope[PERSON_KEY], scope[COUNTED_KEY] = person, counted

    def _count_unauthenticated(self) -> None:
        if not self.wrong.take():
            raise TooOften("Too many requests without a token. Try again in a minute.")

    def _known(self, token: str) -> auth.Person:
        with self.database.transaction() as db:
            return auth.token_owner(db, token)

    def _of(self, token: int) -> TokenLimits:
        found = self._counted.pop(token, None)
        if found is None:
            often, much = float(canonical.LIMITS.requests_a_minute), float(canonical.LIMITS.bytes_an_hour)
            found = TokenLimits(TokenBucket(often, often / 60), TokenBucket(much, much / 3600))
        self._counted[token] = found
        while len(self._counted) > MAX_COUNTED_TOKENS:
            self._counted.popitem(last=False)
        return found


def _with_protocol_version(send: Send) -> Send:

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start":
            said = (PROTOCOL_HEADER.lower().encode(), str(PROTOCOL).encode())
            message["headers"] = [*message.get("headers", ()), said, (b"cache-control", b"no-store")]
        await send(message)

    return sent


async def body_of(request: Request, most: int) -> bytes:
    """Read the body of a request. `most` is its maximal size in bytes.

    Raises:
        TooLarge: it is larger.
        TooSlow: it arrives too slowly.
        TooOften: too many bytes were sent with this token in an hour.
    """
    parts: list[bytes] = []
    size = 0
    try:
        with anyio.fail_after(canonical.LIMITS.body_seconds):
            async for part in request.stream():
                size += len(part)
                if size > most:
                    raise errors.TooLarge(f"The request is larger than {most} bytes.")
                parts.append(part)
    except TimeoutError:
        raise TooSlow(f"The request took longer than {canonical.LIMITS.body_seconds:g} seconds.") from None
    except ClientDisconnect:
        raise errors.Usage("The request ended early.") from None
    counted = request.scope.get(COUNTED_KEY)
    if counted is not None and not counted.bytes.take(size):
        raise TooOften(f"More than {canonical.LIMITS.bytes_an_hour} bytes were sent in an hour. Try again later.")
    return b"".join(parts)


_MAX_SHOWN = 200
V = TypeVar("V", bound=BaseModel)


@dataclass
class ServerContext:
    """The values that all request handlers use: the database and the server's options."""

    database: Database
    #: True if the first push to a project creates it; otherwise only admins create projects.
    open_projects: bool = True
    #: The folder of the server's data. Its free disk space is watched.
    data: Path | None = None
    #: How long a new token is valid; `None` if it does not expire.
    token_lifetime: timedelta | None = None

    def token_expires_at(self) -> datetime | None:
        """Return the time at which a token that is made now will expire; `None` if never."""
        return None if self.token_lifetime is None else datetime.now(UTC) + self.token_lifetime

    def project(self, request: Request, person: auth.Person) -> auth.MemberProject:
        """Return the project that a request's path names, with the user's role in it."""
        with self.database.transaction(person.id) as db:
            return auth.project(db, person, project_key(request))


def query_of(model: type[V], request: Request) -> V:
    """Parse the query string of a request into a `model`. Raise `Usage` if a value is not valid."""
    return _valid(lambda: model.model_validate(dict(request.query_params)))


def _valid(parse: Callable[[], V]) -> V:
    try:
        return parse()
    except ValidationError as error:
        raise canonical.invalid_message(error) from None


def project_key(request: Request) -> str:
    """Return the key of the project in a request's path."""
    return canonical.check_key(request.path_params["project"])


def queried_project(request: Request) -> str:
    """Return the key of the project in a request's query string."""
    key = request.query_params.get("project")
    if key is None:
        raise Usage("project is missing: the key of the session's project.")
    return canonical.check_key(key)


def session_id(request: Request) -> str:
    """Return the id of the session in a request's path. Raise `NotFound` if the text is not an id."""
    given = request.path_params["id"]
    try:
        if str(UUID(given)) == given:
            return str(given)
    except ValueError:
        pass
    raise sessions.session_not_found(printable(given)[:_MAX_SHOWN])


def _answer(said: canonical.WireModel | Response) -> Response:
    if isinstance(said, BaseModel):
        status = 201 if isinstance(said, wire.Pushed) and said.created else 200
        return Response(said.model_dump_json(), status, media_type="application/json")
    return said


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A route and its handler. The handler gets the server, the request, the user and the parsed body.

    `takes` is the type of the body, and `most` its maximal size in bytes. The user's token must allow `scope`; if that
    is `None`, the route needs no token, and the handler gets no user. After `seconds`, the request fails, while the
    handler's thread continues.
    """

    method: str
    path: str
    handler: Callable[..., canonical.WireModel | Response]
    takes: type[canonical.WireModel | bytes] | None = None
    most: int = MAX_QUESTION_BYTES
    scope: auth.Scope | None = "read"
    seconds: float | None = None

    def route(self, server: ServerContext) -> Route:
        """Return this endpoint as a route of the server's ASGI app."""

        def answered(request: Request, body: bytes) -> Response:
            given: list[Any] = [server, request]
            if self.scope is not None:
                given.append(request.scope[PERSON_KEY])
                given[-1].needs(self.scope)
            if self.takes is not None:
                takes = self.takes
                given.append(_valid(lambda: takes.model_validate_json(body)) if issubclass(takes, BaseModel) else body)
            return _answer(self.handler(*given))

        async def endpoint(request: Request) -> Response:
            body = await body_of(request, self.most) if self.takes is not None else b""
            with anyio.fail_after(self.seconds):
                return await anyio.to_thread.run_sync(
                    answered, request, body, abandon_on_cancel=self.seconds is not None
                )

        return Route(self.path, endpoint, methods=[self.method])
