"""What the service is answering just now, so that it can end when nobody would miss it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

#: A client asks several things in a row; it is done when it has asked nothing for so long.
QUIET_SECONDS = 5.0
#: So long the end waits for a request, and for a client that only listens: it connects again.
REQUEST_SECONDS, STREAM_SECONDS = 3600.0, 600.0


class Traffic:
    """An application that knows how many requests it is answering.

    Those for the paths in `passing` do not count: somebody looks whether it is there.
    """

    def __init__(
        self, app: ASGIApp, passing: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._passing = frozenset(passing)
        self._clock = clock
        self._lock = threading.Lock()
        self._requests = 0
        self._streams = 0
        self._last = clock()
        self._closed = False

    def close(self, waited: float) -> bool:
        """Let nothing more in, if nobody would miss it now that one has `waited` so many seconds. Whether it is so."""
        with self._lock:
            quiet = not self._requests and self._clock() - self._last >= QUIET_SECONDS
            self._closed = (quiet or waited >= REQUEST_SECONDS) and (not self._streams or waited >= STREAM_SECONDS)
            return self._closed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http" or scope["path"] in self._passing:
            await self._app(scope, receive, send)
            return
        # What a client of MCP keeps open to be told something.
        stream = scope["method"] == "GET" and scope["path"] == "/mcp"
        if not self._enter(stream=stream):
            answer = PlainTextResponse("it is restarting\n", 503, {"Retry-After": "1"})
            await answer(scope, receive, send)
            return
        try:
            await self._app(scope, receive, send)
        finally:
            self._leave(stream=stream)

    def _enter(self, *, stream: bool) -> bool:
        with self._lock:
            if self._closed:
                return False
            self._streams += stream
            self._requests += not stream
            return True

    def _leave(self, *, stream: bool) -> None:
        with self._lock:
            self._streams -= stream
            self._requests -= not stream
            self._last = self._clock()
