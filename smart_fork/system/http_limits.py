"""Limits for HTTP servers: on the rate of requests, and on open connections."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, MutableMapping
from typing import Any

from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from indexer.lazy_compilation import dataclass
from smart_fork.system.peers import is_ours


class TokenBucket:
    """A rate limiter: it allows `burst` actions immediately, then `rate` actions a second."""

    def __init__(self, burst: float, rate: float) -> None:
        self._burst = burst
        self._rate = rate
        self._left = burst
        self._at = time.monotonic()

    def take(self, amount: float = 1) -> bool:
        """Count `amount` actions and return True if the limit allows them now."""
        now = time.monotonic()
        self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        if self._left < amount:
            return False
        self._left -= amount
        return True


@dataclass(slots=True)
class Peer:
    """The client at the other end of a connection. `known` is True once it has sent the token or a signed-in cookie.

    `local` is True for a process of the service's own user on its Unix socket, which needs neither.
    """

    known: bool = False
    local: bool = False
    close: Callable[[], None] = lambda: None


class Connection(H11Protocol):
    """A connection to the server uvicorn. It is closed if no request comes in time, or if too many are open."""

    #: The time in which a client must send the head of its request.
    HEAD_SECONDS = 10.0
    #: The number of connections, of connections of unknown peers, and of connections accepted in one round.
    #: Beyond a limit the oldest is closed, an unknown peer's first. Each round inspects all, so the limits are low.
    MAX_CONNECTIONS, MAX_STRANGERS, MAX_ACCEPTED = 256, 64, 16
    #: The key of the `Peer` in the scope of a request.
    PEER = "smart_fork.peer"

    @classmethod
    def peer_of(cls, scope: MutableMapping[str, Any]) -> Peer:
        """Return the client that sent a request with this `scope`."""
        peer: Peer = scope.setdefault(cls.PEER, Peer())
        return peer

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.peer = Peer(close=self._cut)
        self.waits_since = 0.0
        self._late: asyncio.TimerHandle | None = None
        self.app = self._with_peer(self.app)

    @property
    def waits(self) -> bool:
        """Return True if the connection is open and handles no request."""
        request: RequestResponseCycle | None = self.cycle  # none before the first
        return not self.transport.is_closing() and (request is None or request.response_complete)

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        line: socket.socket = transport.get_extra_info("socket")
        if line.family == socket.AF_UNIX:
            self.peer.local = self.peer.known = is_ours(line)
            if not self.peer.local:
                self._cut()
                return
        self._wait()
        others = [one for one in self.connections if isinstance(one, Connection) and one is not self]
        if sum(not one.peer.known for one in others) >= self.MAX_STRANGERS or len(others) >= self.MAX_CONNECTIONS:
            # What is asked with the token is answered. If that is all there is, uvicorn says that it is too much.
            able = [one for one in others if one.waits or not one.peer.known]
            for one in sorted(able, key=lambda one: (one.peer.known, one.waits_since))[:1]:
                one.give_up()

    def connection_lost(self, exc: Exception | None) -> None:
        self._answering()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except ValueError:  # h11 reads a length of any number of digits, which Python does not
            self.send_400_response("Invalid HTTP request received.")
        if not self.waits:
            self._answering()

    def on_response_complete(self) -> None:
        """Start the time limit for the next request, unless that has come already."""
        super().on_response_complete()
        if self.waits:
            self._wait()

    def give_up(self) -> None:
        """Close the connection, unless it is a known client's (with token or cookie) and handles a request."""
        if not self.peer.known:
            self._cut()
        elif self.waits:
            self.connections.discard(self)
            self.transport.close()

    def _cut(self) -> None:
        self.connections.discard(self)
        self.transport.abort()  # who takes no answer would else keep the connection with it

    def _with_peer(self, app: ASGIApp) -> ASGIApp:
        """Wrap the ASGI `app` so that each request's scope contains this connection's `Peer`."""

        async def told(scope: Scope, receive: Receive, send: Send) -> None:
            scope[self.PEER] = self.peer
            await app(scope, receive, send)

        return told

    def _wait(self) -> None:
        self._answering()
        self.waits_since = self.loop.time()
        self._late = self.loop.call_later(self.HEAD_SECONDS, self.give_up)

    def _answering(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None
