"""The addresses of the search: the first screen, and what a question finds."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from indexer.shapes import dataclass
from smart_fork.page import searches
from smart_fork.page.board import BoardView
from smart_fork.page.desk import Desk, in_thread
from smart_fork.page.home import HomePage, home
from smart_fork.page.listing import families, listed
from smart_fork.page.renderer import HEADERS, Shown, rendered
from smart_fork.page.scope import Scope, Scopes
from smart_fork.page.session import conversation
from smart_fork.retrieval.phrasings import MOST

if TYPE_CHECKING:
    from smart_fork.retrieval.upkeep import Engine


@dataclass(frozen=True, slots=True)
class SearchViews:
    """The routes of the search; `engine` answers, `scopes` knows which project each browser asks about."""

    desk: Desk
    engine: Callable[[], Engine]
    scopes: Scopes

    def routes(self) -> list[Route]:
        """All addresses."""
        return [
            Route("/", self._search),
            Route("/results", self._results),
            Route("/peek/{agent}/{session_id}", self.desk.page("peek.html", conversation)),
            Route("/sessions", self._sessions),
            Route("/families", self.desk.page("families.html", families)),
        ]

    async def _search(self, request: Request) -> Response:
        lines = request.query_params.getlist("also")
        also = searches.lines(lines)
        if lines != also and len(also) <= MOST:  # from the form: what is kept has a phrasing in each `also`
            query = [(name, value) for name, value in request.query_params.multi_items() if name != "also"]
            return RedirectResponse(f"/?{urlencode([*query, *(('also', line) for line in also)])}", 303, HEADERS)
        scope = self.scopes.of(request)
        search, more = await in_thread(partial(self._found, request, scope))
        answer = await self.desk.shown(
            "search.html", lambda: {"projects": searches.projects()}, search, *more, status=search.status
        )
        self.scopes.remember(answer, request, scope)
        return answer

    async def _results(self, request: Request) -> Response:
        scope = self.scopes.of(request)
        search, more = await in_thread(partial(self._found, request, scope))
        answer = rendered("results.html", search, *more, {"new_form": self.desk.forms.new}, status=search.status)
        self.scopes.remember(answer, request, scope)
        return answer

    async def _sessions(self, request: Request) -> Response:
        scope, agent = self.scopes.of(request), request.query_params.get("agent", "")
        automated = request.query_params.get("automated") == "yes"
        tag, archived = request.query_params.get("tag", ""), request.query_params.get("archived") == "yes"
        work = partial(listed, scope.project, agent, automated=automated, tag=tag, archived=archived)
        return await self.desk.shown("sessions.html", work, {"scope": scope})

    def _found(self, request: Request, scope: Scope) -> tuple[searches.SearchPage, tuple[Shown, Shown]]:
        """What a question has found, or where there is none, what the first screen shows."""
        also = searches.lines(request.query_params.getlist("also"))
        found = searches.found({**request.query_params, "project": scope.project}, also, self.engine())
        if found.q or found.code or found.problem:
            return found, (HomePage(), {"board": BoardView(), "scope": scope})
        return found, (home(found.recent), {"board": self.desk.board.view(), "scope": scope})
