"""The guard in front of the service: it checks each request before the service sees it.

It accepts the same user on the Unix socket, and over TCP clients with the token. Any web page can make a browser send
requests to this machine, and a host name that an attacker controls can point to it (DNS rebinding). So the Host header
must name the service, and an Origin header must be the page's own. A browser's cookie opens the page, but no route for
programs.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from indexer.lazy_compilation import dataclass
from smart_fork.cli.service.token import Token
from smart_fork.page.sign_in import SignIn
from smart_fork.system.http_limits import Connection, TokenBucket
from smart_fork.system.peers import SERVICE

if TYPE_CHECKING:
    from smart_fork.system.http_limits import Peer

#: The most bytes of a body: enough for the longest prompt of a client, and for a stranger's sign-in code.
MAX_BODY, MAX_STRANGERS_BODY = 1024 * 1024, 4096
MAX_LENGTH_DIGITS = 20
#: How long a client may take to send a request's body.
BODY_SECONDS = 10.0
#: Accepted requests with a wrong token: in a burst, and per second.
WRONG_BURST, WRONG_RATE = 20.0, 1.0
#: Accepted requests without the token: in a burst, and per second. Requests with the token have no limit.
STRANGERS_BURST, STRANGERS_RATE = 200.0, 100.0
#: Refusals that are logged, in a burst and per second: clients without the token must not fill the log.
LOGGED_BURST, LOGGED_RATE = 50.0, 0.1
#: Values of the Origin header when a browser sends a form of a file.
FILE_ORIGINS = (["null"], ["file://"])
#: The key in a request's scope for the credentials that it came with (see `Key`).
WITH = "smart_fork.with"

log = logging.getLogger(__name__)


class Key(Enum):
    """The credentials of a request: the token (or the Unix socket, which needs none), a cookie, or nothing."""

    TOKEN = "the token, or our socket"  # noqa: S105 - the name of it
    COOKIE = "a browser's cookie"
    NONE = "nothing"


@dataclass(frozen=True, slots=True)
class Doors:
    """The paths that each kind of client may use. All other paths need the token or a cookie.

    `public` and `always` paths need neither. `always` paths have no rate limit either, because a refusal would cost as
    much as an answer. Routes for `programs` need the token. An HTML file that signs a browser in sends its code to
    `way_in`. Responses of `streams` stay open.
    """

    always: Collection[str] = ()
    public: Collection[str] = ()
    programs: Sequence[BaseRoute] = ()
    way_in: str = ""
    streams: Collection[str] = ()

    def are_open(self, path: str) -> bool:
        """Return True if `path` needs neither token nor cookie."""
        return path in self.always or path in self.public

    def for_programs(self, scope: Scope) -> bool:
        """Return True if the request's path belongs to a route for programs, whatever its HTTP method."""
        return any(route.matches(scope)[0] is not Match.NONE for route in self.programs)


class Guard:
    """A web application that passes allowed requests on to `app`, and refuses all others with a line of text.

    A browser that has not signed in gets a page with instructions. Refusals are logged, up to a limited rate.
    """

    def __init__(
        self, app: ASGIApp, *, token: Token, hosts: Collection[str], doors: Doors, sign_in: SignIn | None = None
    ) -> None:
        self._app = app
        self._token = token
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)
        self._doors = doors
        self._sign_in = sign_in
        self._strangers = TokenBucket(STRANGERS_BURST, STRANGERS_RATE)
        self._wrong = TokenBucket(WRONG_BURST, WRONG_RATE)
        self._logged = TokenBucket(LOGGED_BURST, LOGGED_RATE)
        self._listening: set[Callable[[], None]] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            return
        headers = Headers(scope=scope)
        secret = self._token()
        peer = Connection.peer_of(scope)
        key = scope[WITH] = self._key(headers, peer, secret)
        peer.known |= key is not Key.NONE
        refusal = self._refusal(scope, headers, peer, key)
        if refusal is not None:
            status, why = refusal
            if self._logged.take():
                log.warning("refused: %s", why, extra={"path": scope["path"], "status": status})
            await self._said(status, why, headers)(scope, receive, _ending(peer, send))
            return
        with self._listens(peer, scope, key):
            await self._app(scope, _Limited(receive, self._most(scope["path"], key)).receive, _ending(peer, send))

    def hang_up(self) -> None:
        """Close all response streams that clients keep open, because their credentials are no longer valid."""
        for close in tuple(self._listening):
            close()

    @contextmanager
    def _listens(self, peer: Peer, scope: Scope, key: Key) -> Iterator[None]:
        if key is Key.NONE or scope["method"] != "GET" or scope["path"] not in self._doors.streams:
            yield
            return
        self._listening.add(peer.close)
        try:
            yield
        finally:
            self._listening.discard(peer.close)

    def _said(self, status: int, why: str, headers: Headers) -> Response:
        if status != 401:
            return PlainTextResponse(f"{why}\n", status)
        looks = "text/html" in headers.get("accept", "")
        answer = self._sign_in.sign_in_page() if self._sign_in and looks else PlainTextResponse(f"{why}\n", status)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    def _refusal(self, scope: Scope, headers: Headers, peer: Peer, key: Key) -> tuple[int, str] | None:
        path = scope["path"]
        if key is Key.NONE and path not in self._doors.always and not self._strangers.take():
            return 429, "too many requests"
        # A browser that reaches our socket, as over ssh, names another host.
        if (headers.get("host") or "").lower() not in ((SERVICE,) if peer.local else self._hosts):
            return 421, "unknown host name"
        if not self._from_us(scope, headers):
            return 403, "not for other pages"
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return 400, "what length?"
        if len(length) > MAX_LENGTH_DIGITS or int(length) > self._most(path, key):
            return 413, "too large"
        opens = self._doors.are_open(path) or key is Key.TOKEN
        if not opens and key is Key.COOKIE and self._doors.for_programs(scope):
            return 403, "a browser's cookie opens only the page"
        if opens or key is Key.COOKIE:
            return None
        if not self._wrong.take():
            return 429, "too many wrong tokens"
        return 401, "the token is missing or wrong (to open the page: smart-fork open)"

    def _from_us(self, scope: Scope, headers: Headers) -> bool:
        """Return True if no foreign web page sent the request. The HTML file that sends a sign-in code is allowed."""
        foreign = [origin.lower() for origin in headers.getlist("origin") if origin.lower() not in self._origins]
        elsewhere = headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
        if (scope["method"], scope["path"]) == ("POST", self._doors.way_in) and foreign in FILE_ORIGINS:
            return headers.get("sec-fetch-dest", "document") == "document"
        return not foreign and not elsewhere

    def _most(self, path: str, key: Key) -> int:
        return MAX_STRANGERS_BODY if key is Key.NONE and self._doors.are_open(path) else MAX_BODY

    def _key(self, headers: Headers, peer: Peer, secret: str) -> Key:
        if peer.local:
            return Key.TOKEN
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            # How long it takes tells nothing of the token.
            good = hmac.compare_digest(given.strip().encode("utf-8", "replace"), secret.encode())
            return Key.TOKEN if good else Key.NONE
        visits = self._sign_in.visits if self._sign_in is not None else None
        values = _cookies(headers, visits.name) if visits is not None else []
        return Key.COOKIE if visits is not None and values and visits.good(values) else Key.NONE


def _ending(peer: Peer, send: Send) -> Send:
    """Return a `send` function that ends the connection after one answer if the client has no valid credentials.

    Such a client must connect again, and queue, for each request, so that it cannot keep the others waiting.
    """

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and not peer.known:
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close")]
        await send(message)

    return sent


def _cookies(headers: Headers, name: str) -> list[str]:
    """Return all values of the cookie `name`: a program at another port can set one of this name, too."""
    pairs = (one.strip().partition("=") for line in headers.getlist("cookie") for one in line.split(";"))
    return [value for key, _, value in pairs if key == name]


class _Limited:
    """The body of a request. Reading it raises an HTTP error if it is too large or arrives too slowly."""

    def __init__(self, receive: Receive, most: int) -> None:
        self._receive = receive
        self._most = most
        self._bytes = 0
        self._deadline = anyio.current_time() + BODY_SECONDS
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:  # now only the end of the connection is waited for
            return await self._receive()
        try:
            with anyio.fail_after(max(0.0, self._deadline - anyio.current_time())):
                message = await self._receive()
        except TimeoutError as error:
            raise HTTPException(408, "too slow") from error
        if message["type"] == "http.disconnect":
            raise HTTPException(400, "gone")  # which nobody hears, and which is no fault of ours
        self._bytes += len(message.get("body", b""))
        self._whole = not message.get("more_body", False)
        if self._bytes > self._most:
            raise HTTPException(413, "too large")
        return message
