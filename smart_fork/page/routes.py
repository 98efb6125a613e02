"""All routes of the web page. All pages work without scripts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import field
from functools import partial

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from indexer.errors import what_failed
from indexer.lazy_compilation import dataclass
from smart_fork.doctor import Checked
from smart_fork.errors import NotFound, Usage
from smart_fork.finding.session_library import Opening
from smart_fork.forking.results import Forked
from smart_fork.page import renderer
from smart_fork.page.endpoint_builder import Asked, Endpoints, ProjectCookie, ServiceState, project_in
from smart_fork.page.family_page import family_page
from smart_fork.page.fork_page import forked, previewed
from smart_fork.page.forms import form_fields
from smart_fork.page.index_page import checked, holdings
from smart_fork.page.renderer import Shown, problem, rendered, sign_in_page
from smart_fork.page.search_page import SearchViews
from smart_fork.page.session_page import session_routes
from smart_fork.page.sign_in import CODE_SECONDS, SignIn
from smart_fork.page.worker_board import WorkerBoard
from smart_fork.page.worker_page import LIVE, WorkerViews

#: Addresses that need no token: the one for sign-in codes, and the static files.
WAY_IN = "/open"
PUBLIC = renderer.PUBLIC
#: Addresses of responses that do not end while a browser listens.
STREAMS = (LIVE,)

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """The web page of the service: `library` searches sessions, and `sign_in` signs browsers in.

    `state` returns the state of the embedding model and of the indexer, and `board` reads the workers.
    """

    library: Opening
    sign_in: SignIn
    state: Callable[[], ServiceState] = lambda: ("ready", None)
    board: WorkerBoard = field(default_factory=WorkerBoard)

    @property
    def project_cookie(self) -> ProjectCookie:
        """Return the cookie in which browsers keep the project that their user chose."""
        return ProjectCookie(f"{self.sign_in.visits.name}-project")

    @property
    def endpoints(self) -> Endpoints:
        """Return the builder of the page's responses."""
        return Endpoints(self.sign_in.forms, self.board, self.state)

    def routes(self) -> list[Route]:
        fork = partial(forked, library=self.library)
        return [
            *SearchViews(self.endpoints, self.library, self.project_cookie).routes(),
            *WorkerViews(self.endpoints).routes(),
            Route("/index", self.endpoints.page("index.html", self._index)),
            Route("/doctor", self.endpoints.form(checked, "/index?checked={form}#checks"), methods=["POST"]),
            *session_routes(self.endpoints, self.project_cookie),
            Route("/family/{agent}/{session_id}", self.endpoints.page("family.html", family_page)),
            Route("/fork", self.endpoints.form(fork, "/forked/{form}", unlike=True), methods=["POST"]),
            Route("/preview", self._preview, methods=["POST"]),
            Route("/forked/{form}", self.endpoints.page("forked.html", self._forked)),
            Route(WAY_IN, _enter),
            Route(WAY_IN, self._open, methods=["POST"]),
            Route("/static/{name}", _static),
        ]

    def for_programs(self) -> list[Route]:
        """Return the route where ``smart-fork open`` gets a sign-in code. It is closed to browsers."""
        return [Route("/code", self._code, methods=["POST"])]

    async def lost(self, request: Request, _: Exception) -> Response:
        """Answer a request for an unknown address with status 404: a page for a browser, else plain text."""
        if "text/html" not in request.headers.get("Accept", ""):
            return PlainTextResponse("Not Found", 404)
        return await self.endpoints.problem(NotFound("There is no page at this address", "Search, or choose a view."))

    async def _preview(self, request: Request) -> Response:
        fields = await form_fields(request)
        return await self.endpoints.respond("preview.html", partial(previewed, fields, self.library))

    def _index(self, _: Asked, asked: Asked) -> Shown:
        return holdings(self.endpoints.find_result(asked.get("checked"), Checked))

    def _forked(self, place: Asked, _: Asked) -> Shown:
        """Return the template values of the page about a started fork.

        `twin` is an earlier form with equal fields, if its fork is shown because the second form started none.
        """
        fork, twin = self.endpoints.result(place["form"], Forked), self.sign_in.forms.twin(place["form"])
        return {"fork": fork, "worker": fork.worker_id, "board": self.board.view(fresh=True), "twin": twin}

    async def _code(self, request: Request) -> Response:
        project = project_in(await request.body())
        try:
            entry = await anyio.to_thread.run_sync(self.sign_in.entries.new, project)
        except OSError as error:
            log.warning("no way in can be made: %s", error)
            return JSONResponse({"error": what_failed(error)}, 503)
        asyncio.get_running_loop().call_later(CODE_SECONDS + 1, self.sign_in.entries.sweep)
        return JSONResponse(
            {"file": str(entry.file), "page": self.sign_in.entries.address, "code": entry.code, "seconds": CODE_SECONDS}
        )

    async def _open(self, request: Request) -> Response:
        fields = await form_fields(request)
        entry = self.sign_in.entries.use(fields.get("code", "").strip())
        if entry is None:
            why = Usage("This code is wrong, expired or already used", "Get a new one: smart-fork open")
            return problem(why, 401)
        answer = rendered("entered.html")
        visits = self.sign_in.visits
        answer.set_cookie(visits.name, visits.begin(), httponly=True, samesite="strict", path="/")
        if entry.project:
            self.project_cookie.keep(answer, entry.project)
        return answer


async def _enter(_: Request) -> Response:
    return sign_in_page(200)


async def _static(request: Request) -> Response:
    return renderer.answer(request.path_params["name"], request.query_params.get("v", ""))
