"""The page's addresses. Everything works without scripts; with them, the results follow the typing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from smart_fork.errors import SmartForkError, Usage
from smart_fork.page import asking
from smart_fork.page.entry import Codes
from smart_fork.page.forms import Forms
from smart_fork.page.rendering import HEADERS, problem, rendered

if TYPE_CHECKING:
    from smart_fork.retrieval.finding import Engine

#: Addresses that need no token: the way in, and what the page looks like.
PUBLIC = ("/open", "/static/page.css", "/static/page.js")
_TYPES = {"page.css": "text/css", "page.js": "text/javascript"}


@dataclass(frozen=True, slots=True)
class Page:
    """The page: `engine` answers questions, `codes` let browsers in, `secret` is what their cookie holds."""

    engine: Callable[[], Engine]
    codes: Codes
    forms: Forms[dict[str, Any]]
    secret: str
    cookie: str

    def routes(self) -> list[Route]:
        """All of its addresses."""
        return [
            Route("/", self._search),
            Route("/results", self._results),
            Route("/session/{agent}/{session_id}", self._session),
            Route("/family/{agent}/{session_id}", self._family),
            Route("/fork", self._fork, methods=["POST"]),
            Route("/forked/{form}", self._forked),
            Route("/code", self._code, methods=["POST"]),
            Route("/open", self._open),
            Route("/static/{name}", _static),
        ]

    async def _search(self, request: Request) -> Response:
        return await _searched("search.html", lambda: self._found(request) | {"projects": asking.projects()})

    async def _results(self, request: Request) -> Response:
        return await _searched("results.html", lambda: self._found(request))

    def _found(self, request: Request) -> dict[str, Any]:
        return asking.found(request.query_params, self.engine())

    async def _session(self, request: Request) -> Response:
        work = partial(asking.conversation, request.path_params, request.query_params)
        return await _shown("session.html", lambda: {"form": self.forms.new(), **work()})

    async def _family(self, request: Request) -> Response:
        return await _shown("family.html", partial(asking.related, request.path_params["session_id"]))

    async def _fork(self, request: Request) -> Response:
        given = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        form = given.get("form", "")
        try:
            await anyio.to_thread.run_sync(
                partial(self.forms.send, form, partial(asking.forked, given)), abandon_on_cancel=True
            )
        except SmartForkError as error:
            return problem(error)
        return RedirectResponse(f"/forked/{form}", 303, HEADERS)  # reloading what comes starts nothing

    async def _forked(self, request: Request) -> Response:
        return await _shown("forked.html", lambda: {"fork": self.forms.answer(request.path_params["form"])})

    async def _code(self, _: Request) -> Response:
        return PlainTextResponse(self.codes.new())

    async def _open(self, request: Request) -> Response:
        if not self.codes.use(request.query_params.get("code", "")):
            return problem(
                Usage("This address has been used, or is too old", "Open the page again: smart-fork open"), 401
            )
        answer = RedirectResponse("/", 303, HEADERS)
        answer.set_cookie(self.cookie, self.secret, httponly=True, samesite="strict", path="/")
        return answer


async def _searched(template: str, work: Callable[[], Mapping[str, Any]]) -> Response:
    values = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    return rendered(template, values, 200 if values["problem"] is None else 400)


async def _shown(template: str, work: Callable[[], Mapping[str, Any]]) -> Response:
    try:
        values = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except SmartForkError as error:
        return problem(error)
    return rendered(template, values)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _TYPES:
        return PlainTextResponse("no such file\n", 404)
    return Response(
        files(__package__).joinpath("static", name).read_bytes(),
        media_type=_TYPES[name],
        headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"},
    )
