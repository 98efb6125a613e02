"""Who may talk to the service: this machine's own programs, with the token, in requests of a reasonable size and speed.

A page in a browser can send requests to loopback, and a name that it controls can be made to point there (DNS
rebinding): the Host must be ours, an Origin must be our own page's, and nothing but the public paths works without the
token.
"""

from __future__ import annotations

import hmac
import logging
import time
from collections.abc import Callable, Collection

import anyio
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import cookie_parser
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_fork.caller import AROUND
from smart_fork.service.address import cookie_value
from smart_fork.service.introduction import HEADER, ForgedError, OtherSettingsError, introduced

#: Enough for the longest question and for what a hook says.
MAX_BODY = 1024 * 1024
MAX_LENGTH_DIGITS = 20
#: A client has so long to send its request.
BODY_SECONDS = 10.0
#: Wrong tokens: so many at once, and so many a second. Requests with the right one are far more than that.
WRONG_BURST, WRONG_RATE = 20.0, 1.0
BURST, RATE = 2_000.0, 1_000.0
#: The same for whoever has no token, counted apart: nobody can be kept out by strangers.
STRANGERS_BURST, STRANGERS_RATE = 200.0, 100.0
#: Refusals that are logged: what somebody without the token does must not push out what the log is for.
LOGGED_BURST, LOGGED_RATE = 50.0, 0.1
COOKIE = "smart-fork"

log = logging.getLogger(__name__)


class Bucket:
    """A limit on how often something may happen: `burst` at once, `rate` a second."""

    def __init__(self, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        self._at = time.monotonic()

    def take(self) -> bool:
        """Whether it may happen once more now."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < 1:
            return False
        self._left -= 1
        return True


class Guard:
    """Lets through what may pass; answers everything else itself, with one line, and logs it, if it is not too often.

    A browser without the token is shown `stranger` instead of that line.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        secret: str,
        hosts: Collection[str],
        public: Collection[str],
        stranger: Callable[[], Response] | None = None,
    ) -> None:
        self._app = app
        self._secret = secret
        self._cookie = cookie_value(secret).encode()
        self._hosts = frozenset(host.lower() for host in hosts)
        self._origins = frozenset(f"http://{host}" for host in self._hosts)
        self._public = frozenset(public)
        self._known = Bucket(BURST, RATE)
        self._strangers = Bucket(STRANGERS_BURST, STRANGERS_RATE)
        self._stranger = stranger
        self._wrong = Bucket(WRONG_BURST, WRONG_RATE)
        self._logged = Bucket(LOGGED_BURST, LOGGED_RATE)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] == "lifespan":
            await self._app(scope, receive, send)
            return
        if scope["type"] != "http":  # no web sockets here
            return
        headers = Headers(scope=scope)
        refusal = self._refusal(scope["path"], headers) or self._introduced(scope, headers)
        if refusal is not None:
            status, why = refusal
            if self._logged.take():
                log.warning("refused: %s", why, extra={"path": scope["path"][:200], "status": status})
            await self._said(status, why, headers)(scope, receive, send)
            return
        await self._app(scope, _Limited(receive).receive, send)

    def _said(self, status: int, why: str, headers: Headers) -> Response:
        if status != 401:
            return PlainTextResponse(f"{why}\n", status)
        looks = self._stranger is not None and "text/html" in headers.get("accept", "")
        answer = self._stranger() if self._stranger and looks else PlainTextResponse(f"{why}\n", status)
        answer.headers["WWW-Authenticate"] = "Bearer"
        return answer

    def _refusal(self, path: str, headers: Headers) -> tuple[int, str] | None:
        known = self._knows(headers)
        if not (self._known if known else self._strangers).take():
            return 429, "too many requests"
        if (headers.get("host") or "").lower() not in self._hosts:
            return 421, "not a name of this service"
        origin = headers.get("origin")
        if origin is not None and origin.lower() not in self._origins:
            return 403, "not for other pages"
        if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
            return 403, "not for other pages"
        length = headers.get("content-length", "0")
        if not (length.isascii() and length.isdigit()):
            return 400, "what length?"
        if len(length) > MAX_LENGTH_DIGITS or int(length) > MAX_BODY:
            return 413, "too large"
        if path in self._public or known:
            return None
        if not self._wrong.take():
            return 429, "too many wrong tokens"
        return 401, "the token is missing or wrong (to see the page: smart-fork open)"

    def _introduced(self, scope: Scope, headers: Headers) -> tuple[int, str] | None:
        """Note whom the client speaks for, if it says so and can prove that it is ours."""
        try:
            if given := headers.getlist(HEADER):
                scope[AROUND] = introduced(given, self._secret)
        except ForgedError:
            return 403, "not what a program of ours says of its caller"
        except OtherSettingsError as error:
            return 409, f"it would find something else: {error}"
        return None

    def _knows(self, headers: Headers) -> bool:
        kind, _, given = headers.get("authorization", "").partition(" ")
        if kind.lower() == "bearer":
            return hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._secret.encode())
        # Not `http.cookies`, which reads none at all where one, of a program at another port, is not as it should be.
        given = cookie_parser(headers.get("cookie", "")).get(COOKIE, "")
        return hmac.compare_digest(given.encode("utf-8", "replace"), self._cookie)


class _Limited:
    """A request's body, as long as it is neither too large nor too slow: Starlette answers what is raised."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
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
        if message["type"] == "http.request":
            self._bytes += len(message.get("body", b""))
            self._whole = not message.get("more_body", False)
            if self._bytes > MAX_BODY:
                raise HTTPException(413, "too large")
        return message
