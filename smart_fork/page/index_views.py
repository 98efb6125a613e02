"""The addresses of the index: what it holds, what is checked, forgotten and cut."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from indexer.shapes import dataclass
from smart_fork.cuts.answer import Excised
from smart_fork.page.desk import Desk
from smart_fork.page.holdings import CheckedParts, checked, holdings
from smart_fork.page.removal_forms import RemovedView, about_to_cut, about_to_forget, excised, removed
from smart_fork.page.renderer import PageValues
from smart_fork.removal.sessions import Removal


@dataclass(frozen=True, slots=True)
class ChecksView(PageValues):
    """What the check has found that led here; `None` where none did."""

    checked: CheckedParts | None


@dataclass(frozen=True, slots=True)
class IndexViews:
    """The routes about the index."""

    desk: Desk

    def routes(self) -> list[Route]:
        """All addresses."""
        return [
            Route("/index", self._index),
            Route("/doctor", self.desk.does(checked, "/index?checked={form}#checks"), methods=["POST"]),
            Route("/forget", self._about_to_forget),
            Route("/forget", self.desk.does(removed, "/removed/{form}"), methods=["POST"]),
            Route("/excise", self._about_to_cut),
            Route("/excise", self.desk.does(excised, "/removed/{form}"), methods=["POST"]),
            Route("/removed/{form}", self._removed),
        ]

    async def _index(self, request: Request) -> Response:
        checks = ChecksView(self.desk.kept(request.query_params.get("checked"), CheckedParts))
        return await self.desk.shown("index.html", holdings, self.desk.new_forms, checks)

    async def _about_to_forget(self, request: Request) -> Response:
        session = request.query_params.get("session", "")
        return await self.desk.shown("forget.html", partial(about_to_forget, session), self.desk.new_forms)

    async def _about_to_cut(self, request: Request) -> Response:
        return await self.desk.shown("excise.html", partial(about_to_cut, request.query_params), self.desk.new_forms)

    async def _removed(self, request: Request) -> Response:
        form = request.path_params["form"]
        return await self.desk.shown("removed.html", lambda: self._removal(form), self.desk.new_forms)

    def _removal(self, form: str) -> RemovedView:
        done = self.desk.forms.answer(form)
        if isinstance(done, Removal):
            return RemovedView(done, None)
        return RemovedView(None, self.desk.answer(form, Excised))
