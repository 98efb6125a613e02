"""The page's addresses. Everything works without scripts; with them, the results follow the typing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from indexer.failures import what_failed
from indexer.shapes import dataclass
from smart_fork.errors import Usage
from smart_fork.forking.started import Forked
from smart_fork.page import forks, statics
from smart_fork.page.board import WorkerBoard
from smart_fork.page.desk import Asked, Desk, given
from smart_fork.page.entry import CODE_SECONDS, Entries
from smart_fork.page.frame import ServiceState
from smart_fork.page.index_views import index_routes
from smart_fork.page.kin import related
from smart_fork.page.renderer import Shown, problem, rendered, stranger
from smart_fork.page.scope import Scopes, project_in
from smart_fork.page.search_views import SearchViews
from smart_fork.page.sent_forms import PageForms
from smart_fork.page.session import session_routes
from smart_fork.page.visits import Visits
from smart_fork.page.worker_views import WorkerViews
from smart_fork.retrieval.upkeep import Engine

#: Addresses that need no token: where a browser sends its code, and what the page looks like.
WAY_IN = "/open"
PUBLIC = statics.PUBLIC

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """The page: `engine` answers questions, `entries` let browsers in, which then have the cookies of `visits`."""

    engine: Callable[[], Engine]
    forms: PageForms[Any]
    entries: Entries
    visits: Visits
    state: Callable[[], ServiceState] = ServiceState
    board: WorkerBoard = field(default_factory=WorkerBoard)

    @property
    def scopes(self) -> Scopes:
        """What each browser remembers of the project that it asks about."""
        return Scopes(f"{self.visits.name}-project")

    @property
    def desk(self) -> Desk:
        """What its answers are made with."""
        return Desk(self.forms, self.board, self.state)

    def routes(self) -> list[Route]:
        """All addresses that browsers ask for."""
        fork = partial(forks.forked, engine=self.engine)
        return [
            *SearchViews(self.desk, self.engine, self.scopes).routes(),
            *WorkerViews(self.desk).routes(),
            *index_routes(self.desk),
            *session_routes(self.desk, self.scopes),
            Route("/family/{agent}/{session_id}", self.desk.page("family.html", related)),
            Route("/fork", self.desk.does(fork, "/forked/{form}", unlike=True), methods=["POST"]),
            Route("/preview", self._preview, methods=["POST"]),
            Route("/forked/{form}", self.desk.page("forked.html", self._forked)),
            Route(WAY_IN, _enter),
            Route(WAY_IN, self._open, methods=["POST"]),
            Route("/static/{name}", _static),
        ]

    def for_programs(self) -> list[Route]:
        """The address where ``smart-fork open`` asks for a way in: a browser that is in does not let in others."""
        return [Route("/code", self._code, methods=["POST"])]

    async def _preview(self, request: Request) -> Response:
        fields = await given(request)
        return await self.desk.shown("preview.html", partial(forks.previewed, fields, self.engine))

    def _forked(self, place: Asked, _: Asked) -> Shown:
        """With the form that another window had sent before with the same in it, if one had."""
        return forks.outcome(self.desk.answer(place["form"], Forked), self.forms.twin(place["form"]))

    async def _code(self, request: Request) -> Response:
        project = project_in(await request.body())
        try:
            entry = await anyio.to_thread.run_sync(self.entries.new, project)
        except OSError as error:
            log.warning("no way in can be made: %s", error)
            return JSONResponse({"error": what_failed(error)}, 503)
        asyncio.get_running_loop().call_later(CODE_SECONDS + 1, self.entries.sweep)
        return JSONResponse(
            {"file": str(entry.file), "page": self.entries.address, "code": entry.code, "seconds": CODE_SECONDS}
        )

    async def _open(self, request: Request) -> Response:
        fields = await given(request)
        entry = self.entries.use(fields.get("code", "").strip())
        if entry is None:
            why = Usage("This code is wrong, expired or already used", "Get a new one: smart-fork open")
            return problem(why, 401)
        answer = rendered("entered.html")
        answer.set_cookie(self.visits.name, self.visits.begin(), httponly=True, samesite="strict", path="/")
        if entry.project:
            self.scopes.keep(answer, entry.project)
        return answer


async def _enter(_: Request) -> Response:
    return stranger(200)


async def _static(request: Request) -> Response:
    return statics.answer(request.path_params["name"], request.query_params.get("v", ""))
