"""One connection to the service: whoever holds it without asking anything must not keep others out.

uvicorn waits for ever for the head of a request, and counts connections that wait among those that are too many.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

#: A client has so long to begin its request and to send the head of it.
HEAD_SECONDS = 10.0
#: Beyond so many, the one that has waited longest without a request gives way.
MAX_CONNECTIONS = 256


class Connection(H11Protocol):
    """uvicorn's own, closed where no request comes."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.waits_since = 0.0
        self._late: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether it is open and no request is being answered."""
        request: RequestResponseCycle | None = self.cycle  # none before the first
        return not self.transport.is_closing() and (request is None or request.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._wait()
        if len(self.connections) > MAX_CONNECTIONS:
            others = [one for one in self.connections if isinstance(one, Connection) and one.waits and one is not self]
            if others:  # else all are busy, and uvicorn says so
                min(others, key=lambda one: one.waits_since).give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._answering()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        try:
            super().data_received(data)
        except ValueError:  # h11 reads a length of any number of digits, which Python does not
            self.send_400_response("Invalid HTTP request received.")
        if not self.waits:
            self._answering()

    def on_response_complete(self) -> None:
        """The next request is waited for, or has come already."""
        super().on_response_complete()
        if self.waits:
            self._wait()

    def give_up(self) -> None:
        """Close it, if it still waits."""
        if self.waits:
            self.connections.discard(self)
            self.transport.close()

    def _wait(self) -> None:
        self._answering()
        self.waits_since = self.loop.time()
        self._late = self.loop.call_later(HEAD_SECONDS, self.give_up)

    def _answering(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
