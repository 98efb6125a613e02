"""An end in time for a whole answer: a server that sends a byte now and then keeps nobody waiting for longer."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from smart_fork.errors import ServerUnavailable


class Deadline:
    """What ends an answer of a connection some seconds after its question was sent, headers included.

    `trace` follows the requests of one thread, as httpx2 tells of them.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._socket: socket.socket | None = None
        self._timer: threading.Timer | None = None
        self._passed = False

    def trace(self, event: str, facts: Mapping[str, Any]) -> None:
        """Remember the connection, and begin to count when all of a question is sent."""
        if event.endswith((".connect_tcp.complete", ".start_tls.complete")):
            self._socket = facts["return_value"].get_extra_info("socket")
        elif event.endswith(".send_request_body.complete"):
            self._timer = threading.Timer(self._seconds, self._end)
            self._timer.daemon = True
            self._timer.start()

    @contextmanager
    def counted(self) -> Iterator[None]:
        """One question and its answer.

        Raises:
            ServerUnavailable: it was ended; what was read until then is no answer, even where it looks like one.
        """
        self._passed = False
        try:
            yield
        finally:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
            if self._passed:
                raise ServerUnavailable("The server is too slow.", "Try again.")

    def _end(self) -> None:
        self._passed = True
        if self._socket is not None:
            with suppress(OSError):  # whoever reads it finds its end
                self._socket.shutdown(socket.SHUT_RDWR)
