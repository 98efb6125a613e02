"""The page's addresses. Everything works without scripts; with them, the results follow the typing."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from indexer.failures import what_failed
from indexer.shapes import dataclass
from smart_fork.cuts.answer import RolledBack
from smart_fork.errors import SmartForkError, Usage
from smart_fork.forking.started import Forked
from smart_fork.page import forks, statics
from smart_fork.page.board import WorkerBoard
from smart_fork.page.commits import commits
from smart_fork.page.delegated import delegated
from smart_fork.page.desk import Asked, Desk, given, in_thread
from smart_fork.page.entry import CODE_SECONDS, Entries
from smart_fork.page.forms import PageForms
from smart_fork.page.frame import ServiceState
from smart_fork.page.index_views import index_routes
from smart_fork.page.kin import related
from smart_fork.page.noting import noted
from smart_fork.page.output import output
from smart_fork.page.phrases import session_link
from smart_fork.page.removal_forms import undone
from smart_fork.page.renderer import HEADERS, Shown, problem, rendered, stranger, streamed
from smart_fork.page.scope import Scopes, project_in
from smart_fork.page.search_views import SearchViews
from smart_fork.page.session import AddressedSession, become, conversation
from smart_fork.page.since import Since
from smart_fork.page.theirs import grown, shared
from smart_fork.page.visits import Visits
from smart_fork.page.worker_views import WorkerViews
from smart_fork.workers.outcomes import NotedSession

if TYPE_CHECKING:
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
        subagent = self.desk.page("subagent.html", delegated, by=streamed)
        fork, printed = partial(forks.forked, engine=self.engine), self.desk.page("output.html", output)
        return [
            *SearchViews(self.desk, self.engine, self.scopes).routes(),
            *WorkerViews(self.desk).routes(),
            *index_routes(self.desk),
            Route("/session/{agent}/{session_id}", self.desk.page("session.html", conversation, by=streamed)),
            Route("/shared/{agent}/{session_id}", self._shared),
            Route("/shared/{agent}/{session_id}/since", self._grown),
            Route("/session/{agent}/{session_id}/output/{turn}/{call}", printed),
            Route("/session/{agent}/{session_id}/since", self._since),
            Route("/session/{agent}/{session_id}/agents/{name}", subagent),
            Route("/session/{agent}/{session_id}/agents/{name}/output/{turn}/{call}", printed),
            Route("/session/{agent}/{session_id}/commits", self.desk.page("commits.html", commits)),
            Route("/family/{agent}/{session_id}", self.desk.page("family.html", related)),
            Route("/fork", self.desk.does(fork, "/forked/{form}", unlike=True), methods=["POST"]),
            Route("/preview", self._preview, methods=["POST"]),
            Route("/forked/{form}", self.desk.page("forked.html", self._forked)),
            Route("/undo", self.desk.does(undone, "/undone/{form}"), methods=["POST"]),
            Route("/undone/{form}", self.desk.page("undone.html", self._undone)),
            Route("/note", self.desk.does(noted, "/noted/{form}"), methods=["POST"]),
            Route("/noted/{form}", self._noted),
            Route(WAY_IN, _enter),
            Route(WAY_IN, self._open, methods=["POST"]),
            Route("/static/{name}", _static),
        ]

    def for_programs(self) -> list[Route]:
        """The address where ``smart-fork open`` asks for a way in: a browser that is in does not let in others."""
        return [Route("/code", self._code, methods=["POST"])]

    async def _shared(self, request: Request) -> Response:
        project = self.scopes.of(request).project
        work = partial(shared, request.path_params, request.query_params, project)
        return await self.desk.shown("session.html", work, by=streamed)

    async def _since(self, request: Request) -> Response:
        return await _become(partial(become, request.path_params, request.query_params))

    async def _grown(self, request: Request) -> Response:
        project = self.scopes.of(request).project
        return await _become(partial(grown, request.path_params, request.query_params, project))

    async def _preview(self, request: Request) -> Response:
        fields = await given(request)
        return await self.desk.shown("preview.html", partial(forks.previewed, fields, self.engine))

    def _forked(self, place: Asked, _: Asked) -> Shown:
        """With the form that another window had sent before with the same in it, if one had."""
        return forks.outcome(self.desk.answer(place["form"], Forked), self.forms.twin(place["form"]))

    def _undone(self, place: Asked, _: Asked) -> Shown:
        return {"undone": self.desk.answer(place["form"], RolledBack)}

    async def _noted(self, request: Request) -> Response:
        try:
            told = self.desk.answer(request.path_params["form"], NotedSession)
        except SmartForkError as error:
            return await self.desk.problem(error)
        where = session_link(AddressedSession(told.agent_type, told.session_id))
        return RedirectResponse(f"{where}#notes", 303, HEADERS)

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


async def _become(told: Callable[[], tuple[Since, str]]) -> Response:
    """What a window is told that asks again and again: mostly nothing."""
    try:
        now, way = await in_thread(told)
    except SmartForkError as error:
        return problem(error)
    except OSError as error:  # the window asks again
        log.info("whether a session has gone on cannot be told: %s", error)
        return Response(status_code=503, headers=HEADERS)
    return (
        Response(status_code=204, headers=HEADERS)
        if now.became == "same"
        else rendered("since.html", now, {"way": way})
    )


async def _enter(_: Request) -> Response:
    return stranger(200)


async def _static(request: Request) -> Response:
    return statics.answer(request.path_params["name"], request.query_params.get("v", ""))
