"""The addresses of the index: what it holds, what is checked, forgotten and cut."""

from __future__ import annotations

from starlette.routing import Route

from smart_fork.cuts.answer import Excised
from smart_fork.page.desk import Asked, Desk
from smart_fork.page.holdings import CheckedParts, checked, holdings
from smart_fork.page.removal_forms import about_to_cut, about_to_forget, excised, removed
from smart_fork.page.renderer import Shown
from smart_fork.removal.sessions import Removal


def index_routes(desk: Desk) -> list[Route]:
    """All addresses."""

    def index(_: Asked, asked: Asked) -> Shown:
        return holdings(desk.kept(asked.get("checked"), CheckedParts))

    def removal(place: Asked, _: Asked) -> Shown:
        done = desk.forms.answer(place["form"])
        if isinstance(done, Removal):
            return {"removal": done}
        return {"removal": None, "excised": desk.answer(place["form"], Excised)}

    return [
        Route("/index", desk.page("index.html", index)),
        Route("/doctor", desk.does(checked, "/index?checked={form}#checks"), methods=["POST"]),
        Route("/forget", desk.page("forget.html", about_to_forget)),
        Route("/forget", desk.does(removed, "/removed/{form}"), methods=["POST"]),
        Route("/excise", desk.page("excise.html", about_to_cut)),
        Route("/excise", desk.does(excised, "/removed/{form}"), methods=["POST"]),
        Route("/removed/{form}", desk.page("removed.html", removal)),
    ]
