"""The page's addresses. Everything works without scripts; with them, the results follow the typing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import parse_qsl, urlencode

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from indexer.shapes import dataclass
from smart_fork.cuts.answer import RolledBack
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.forking.started import Forked
from smart_fork.page import answers
from smart_fork.page.entry import CODE_SECONDS, Entries
from smart_fork.page.forms import PageForms
from smart_fork.page.renderer import HEADERS, PageValues, problem, rendered, stranger
from smart_fork.page.visits import Visits
from smart_fork.retrieval.phrasings import MOST

if TYPE_CHECKING:
    from smart_fork.retrieval.upkeep import Engine

#: Addresses that need no token: where a browser sends its code, and what the page looks like.
WAY_IN = "/open"
_TYPES = {
    "page.css": "text/css", "page.js": "text/javascript", "session.css": "text/css", "session.js": "text/javascript",
}  # fmt: skip
PUBLIC = tuple(f"/static/{name}" for name in _TYPES)

#: What a form that was sent has done.
Done = Forked | RolledBack
_Work = Callable[[Mapping[str, str]], Done]
_D = TypeVar("_D", Forked, RolledBack)
T = TypeVar("T")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """The page: `engine` answers questions, `entries` let browsers in, which then have the cookies of `visits`."""

    engine: Callable[[], Engine]
    forms: PageForms[Done]
    entries: Entries
    visits: Visits

    def routes(self) -> list[Route]:
        """All addresses that browsers ask for."""
        return [
            Route("/", self._search),
            Route("/results", self._results),
            Route("/session/{agent}/{session_id}", self._session),
            Route("/family/{agent}/{session_id}", self._family),
            Route("/fork", self._fork, methods=["POST"]),
            Route("/preview", self._preview, methods=["POST"]),
            Route("/forked/{form}", self._forked),
            Route("/undo", self._undo, methods=["POST"]),
            Route("/undone/{form}", self._undone),
            Route(WAY_IN, _enter),
            Route(WAY_IN, self._open, methods=["POST"]),
            Route("/static/{name}", _static),
        ]

    def for_programs(self) -> list[Route]:
        """The address where ``smart-fork open`` asks for a way in: a browser that is in does not let in others."""
        return [Route("/code", self._code, methods=["POST"])]

    async def _search(self, request: Request) -> Response:
        given = request.query_params.getlist("also")
        also = answers.lines(given)
        if given != also and len(also) <= MOST:  # from the form: what is kept has a phrasing in each `also`
            query = [(name, value) for name, value in request.query_params.multi_items() if name != "also"]
            return RedirectResponse(f"/?{urlencode([*query, *(('also', line) for line in also)])}", 303, HEADERS)
        found, around = await _in_thread(
            lambda: (self._found(request), answers.AroundSearch(answers.projects(), answers.indexing()))
        )
        return rendered("search.html", found, around, status=_status(found))

    async def _results(self, request: Request) -> Response:
        found = await _in_thread(partial(self._found, request))
        return rendered("results.html", found, status=_status(found))

    def _found(self, request: Request) -> answers.SearchPage:
        also = answers.lines(request.query_params.getlist("also"))
        return answers.found(request.query_params, also, self.engine())

    async def _session(self, request: Request) -> Response:
        work = partial(answers.conversation, request.path_params, request.query_params)
        return await _shown("session.html", work, answers.SessionForms(self.forms.new(), self.forms.new()))

    async def _family(self, request: Request) -> Response:
        return await _shown("family.html", partial(answers.related, request.path_params["session_id"]))

    async def _fork(self, request: Request) -> Response:
        return await self._sent(request, partial(answers.forked, engine=self.engine), "/forked")

    async def _preview(self, request: Request) -> Response:
        given = await _given(request)
        return await _shown("preview.html", partial(answers.previewed, given, self.engine))

    async def _forked(self, request: Request) -> Response:
        return await _shown("forked.html", lambda: answers.outcome(self._answered(request, Forked)))

    async def _undo(self, request: Request) -> Response:
        return await self._sent(request, answers.undone, "/undone")

    async def _undone(self, request: Request) -> Response:
        return await _shown("undone.html", lambda: answers.UndoPage(self._answered(request, RolledBack)))

    async def _sent(self, request: Request, work: _Work, shown: str) -> Response:
        given = await _given(request)
        form = given.get("form", "")
        try:
            await _in_thread(partial(self.forms.send, form, partial(work, given)))
        except SmartForkError as error:
            return problem(error)
        return RedirectResponse(f"{shown}/{form}", 303, HEADERS)  # reloading what comes does nothing again

    def _answered(self, request: Request, kind: type[_D]) -> _D:
        answer = self.forms.answer(request.path_params["form"])
        if not isinstance(answer, kind):
            raise NotFound("That form asked for something else")
        return answer

    async def _code(self, request: Request) -> Response:
        address = str(request.base_url)
        try:
            entry = await anyio.to_thread.run_sync(self.entries.new, address)
        except OSError as error:
            log.warning("no way in can be made: %s", error)
            return JSONResponse({"error": str(error)}, 503)
        asyncio.get_running_loop().call_later(CODE_SECONDS + 1, self.entries.sweep)
        return JSONResponse({"file": str(entry.file), "page": address, "code": entry.code, "seconds": CODE_SECONDS})

    async def _open(self, request: Request) -> Response:
        given = await _given(request)
        if not self.entries.use(given.get("code", "").strip()):
            why = Usage("This code has been used, or is too old, or never was one", "Get another: smart-fork open")
            return problem(why, 401)
        answer = rendered("entered.html")
        answer.set_cookie(self.visits.name, self.visits.begin(), httponly=True, samesite="strict", path="/")
        return answer


async def _given(request: Request) -> dict[str, str]:
    """What a form says."""
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace")))


async def _enter(_: Request) -> Response:
    return stranger(200)


def _status(found: answers.SearchPage) -> int:
    return 200 if found.problem is None else 400


async def _in_thread(work: Callable[[], T]) -> T:
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)


async def _shown(template: str, work: Callable[[], PageValues], *more: PageValues) -> Response:
    try:
        shown = await _in_thread(work)
    except SmartForkError as error:
        return problem(error)
    return rendered(template, shown, *more)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _TYPES:
        return PlainTextResponse("no such file\n", 404)
    return Response(
        files(__package__).joinpath("static", name).read_bytes(),
        media_type=_TYPES[name],
        headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"},
    )
