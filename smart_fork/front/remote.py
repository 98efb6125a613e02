"""The conversation with the service, over HTTP: each message is a request of its own, answered in a stream."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from smart_fork.rpc import RpcMessage, made, read
from smart_fork.service.client import HELLO_SECONDS, Service, ServiceGoneError

#: A stream says every 15 seconds that it is still there.
SILENT_SECONDS = 60.0
INITIALIZED = made({"jsonrpc": "2.0", "method": "notifications/initialized"})
_OK, _ACCEPTED, _NOT_FOUND = http.HTTPStatus.OK, http.HTTPStatus.ACCEPTED, http.HTTPStatus.NOT_FOUND
_UNAUTHORIZED = http.HTTPStatus.UNAUTHORIZED


class Remote:
    """A conversation with the service that runs, begun with the client's own ``initialize``. Threads may share it.

    Whatever keeps it from answering is a `ServiceGoneError` or an `OSError`.
    """

    def __init__(self, service: Service, hello: RpcMessage) -> None:
        self._service, self._hello = service, hello
        self._lock = threading.Lock()
        self._session: str | None = None
        self._version = ""

    def ask(self, request: RpcMessage, heard: Callable[[RpcMessage], None]) -> None:
        """Have `request` answered: `heard` gets all that comes, with the answer as the last."""
        session = self._greeted()
        for again in (False, True):
            with self._said(request, session) as answer:
                if answer.status == _NOT_FOUND and not again:  # it forgets who has asked nothing for half an hour
                    session = self._greeted(forgotten=session)
                    continue
                if answer.status == _UNAUTHORIZED and not again:  # the token was changed just then
                    continue
                for message in _streamed(answer):
                    heard(message)
                    if message.kind == "answer" and message.id == request.id:
                        return
        raise ServiceGoneError("it ended in the middle of an answer")

    def tell(self, message: RpcMessage) -> None:
        """Pass on what is not answered. Nobody is there to be told, where there is no conversation."""
        if self._session is not None:
            self._tell(message, self._session)

    def end(self) -> None:
        """Say that nothing more will come."""
        session, self._session = self._session, None
        if session is not None:
            farewell = self._service.speaking_for_us(HELLO_SECONDS)
            with suppress(ServiceGoneError, OSError, http.client.HTTPException), farewell as (connection, headers):
                connection.request("DELETE", "/mcp", headers=headers | self._about(session))

    def _greeted(self, *, forgotten: str | None = None) -> str:
        """The conversation's name at the service, which is begun again where the service has `forgotten` it."""
        with self._lock:
            if self._session is None or self._session == forgotten:
                self._greet()
            return str(self._session)

    def _greet(self) -> None:
        self._session = None
        with self._said(self._hello, None) as answer:
            name = answer.headers.get("Mcp-Session-Id", "")
            welcome = next((message for message in _streamed(answer) if message.kind == "answer"), None)
        if welcome is None or not name:
            raise ServiceGoneError("it does not begin a conversation")
        result = welcome.content.get("result")
        self._version = str(result.get("protocolVersion", "")) if isinstance(result, dict) else ""
        self._tell(INITIALIZED, name)
        self._session = name

    def _tell(self, message: RpcMessage, session: str) -> None:
        with self._said(message, session) as answer:
            if answer.status != _ACCEPTED:
                raise ServiceGoneError(f"it answered {answer.status}")

    @contextmanager
    def _said(self, message: RpcMessage, session: str | None) -> Iterator[http.client.HTTPResponse]:
        try:
            with self._service.speaking_for_us() as (connection, ours):
                if connection.sock is not None:
                    connection.sock.settimeout(SILENT_SECONDS)
                headers = ours | {"Accept": "application/json, text/event-stream"} | self._about(session)
                connection.request("POST", "/mcp", message.line, headers)
                yield connection.getresponse()
        except http.client.HTTPException as error:
            raise ServiceGoneError(str(error) or type(error).__name__) from error

    def _about(self, session: str | None) -> dict[str, str]:
        return {"Mcp-Session-Id": session, "Mcp-Protocol-Version": self._version} if session else {}


def _streamed(answer: http.client.HTTPResponse) -> Iterator[RpcMessage]:
    """The messages of a stream of events, as they come."""
    if answer.status != _OK:
        raise ServiceGoneError(f"it answered {answer.status}")
    data: list[bytes] = []
    for line in iter(answer.readline, b""):
        if line.startswith(b"data:"):
            data.append(line[5:])
        elif not line.strip() and data:
            message = read(b"".join(data))
            data = []
            if message is not None:
                yield message
