"""What a client says, before the protocol's library gets it: that answers nothing where it finds no message."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Any, BinaryIO

import anyio
import orjson
from mcp.shared.message import SessionMessage
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_fork.rpc import Id, RpcMessage, made, read, refusal


class Lines:
    """The lines of stdin that are messages. All others are answered to `said`, which is set when it is there."""

    def __init__(self) -> None:
        self._file = _own_stdin()
        self.said: Any = None

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for line in anyio.wrap_file(self._file):
            if read(line) is not None:
                yield line
            elif (answer := refusal(line)) is not None:
                await self.said.send(SessionMessage(_Written(answer)))  # type: ignore[arg-type]


class _Written:
    """An answer as it is sent: the library's own has no room for an id that is a fraction, or half a character."""

    def __init__(self, answer: RpcMessage) -> None:
        self._text = answer.line.decode()

    def model_dump_json(self, **_: object) -> str:
        return self._text


def _own_stdin() -> BinaryIO:
    """Stdin for the protocol alone: programs that we start read from the null device."""
    ours = os.dup(0)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    return os.fdopen(ours, "rb")


def refusing(app: Starlette, path: str) -> Starlette:
    """Answer bodies that are no message before they reach the library's own route at `path`."""
    for route in app.router.routes:
        if isinstance(route, Route) and route.path == path:
            route.app = _Bodies(route.app)
    return app


class _Bodies:
    """Lets the bodies through that are messages. All others are answered here, with the id of the request."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        body = await Request(scope, receive).body()
        message = read(body)
        answer = refusal(body) if message is None else None
        if answer is not None:
            await Response(answer.line, 400, media_type="application/json")(scope, receive, send)
            return
        if message is not None and message.kind == "request":
            send = _with_id(message.id, send)
        await self._app(scope, _again(body, receive), send)


def _with_id(number: Id, send: Send) -> Send:
    """Put the request's id into an error of the library's, which has none: of an unknown session, of other headers."""
    held: list[Message] = []

    async def sent(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] >= HTTPStatus.BAD_REQUEST:
            held.append(message)
        elif held:
            error = made({**orjson.loads(message["body"]), "id": number})
            begun = held.pop()
            MutableHeaders(raw=begun["headers"])["content-length"] = str(len(error.line))
            await send(begun)
            await send({**message, "body": error.line})
        else:
            await send(message)

    return sent


def _again(body: bytes, receive: Receive) -> Receive:
    told: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def received() -> Message:
        return told.pop() if told else await receive()

    return received
