"""Bodies of requests over HTTP that are no message: the protocol's library answers nothing to them."""

from __future__ import annotations

from http import HTTPStatus

import orjson
from starlette.applications import Starlette
from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from smart_fork.system.rpc import Id, made, read, refusal


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
