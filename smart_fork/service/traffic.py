"""Counts the requests that the service is answering, so that it can restart when it is idle."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection

from starlette.types import ASGIApp, Receive, Scope, Send

#: A client asks several things in a row; it is done when it has asked nothing for so long.
QUIET_SECONDS = 5.0
#: So long the end waits for a request, and for a client that only listens: it connects again.
REQUEST_SECONDS, STREAM_SECONDS = 3600.0, 600.0


class Traffic:
    """An application that counts the requests it is answering, except those for the paths in `passing`."""

    def __init__(
        self, app: ASGIApp, passing: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._passing = frozenset(passing)
        self._clock = clock
        self._requests = self._streams = 0
        self._last = clock()

    def may_end(self, waited: float) -> bool:
        """Return whether it is idle, or has `waited` long enough."""
        quiet = not self._requests and self._clock() - self._last >= QUIET_SECONDS
        return (quiet or waited >= REQUEST_SECONDS) and (not self._streams or waited >= STREAM_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        counts = scope["type"] == "http" and scope["path"] not in self._passing
        # What a client of MCP keeps open to be told something.
        stream = counts and scope["method"] == "GET" and scope["path"] == "/mcp"
        self._streams += stream
        self._requests += counts and not stream
        try:
            await self._app(scope, receive, send)
        finally:
            self._streams -= stream
            self._requests -= counts and not stream
            self._last = self._clock() if counts else self._last
