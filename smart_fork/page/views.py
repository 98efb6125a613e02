"""The page's addresses. Everything works without scripts; with them, the results follow the typing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib.resources import files
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlencode

import anyio.to_thread
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.page.entry import Codes

if TYPE_CHECKING:
    from smart_fork.finding import Engine

#: Addresses that need no token: the way in, and what the page looks like.
PUBLIC = ("/open", "/static/page.css", "/static/page.js")
RESULTS, RECENT = 10, 30
#: A conversation is shown in pieces of about this size.
READ_CHARACTERS = 60_000
#: Of a message's number; Python reads no number of thousands.
MAX_DIGITS = 9
#: Nothing from elsewhere, and no script or style that stands in the text of a page.
POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; form-action 'self'; "
    "base-uri 'none'; frame-ancestors 'none'; img-src data:"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
}
_TYPES = {"page.css": "text/css", "page.js": "text/javascript"}


@dataclass(frozen=True, slots=True)
class Page:
    """The page: `engine` answers questions, `codes` let browsers in, `secret` is what their cookie holds."""

    engine: Callable[[], Engine]
    codes: Codes
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
            Route("/code", self._code, methods=["POST"]),
            Route("/open", self._open),
            Route("/static/{name}", _static),
        ]

    async def _search(self, request: Request) -> Response:
        return await _shown("search.html", lambda: {"projects": _projects(), **self._found(request.query_params)})

    async def _results(self, request: Request) -> Response:
        return await _shown("results.html", partial(self._found, request.query_params))

    async def _session(self, request: Request) -> Response:
        return await _shown("session.html", partial(_conversation, request.path_params, request.query_params))

    async def _family(self, request: Request) -> Response:
        return await _shown("family.html", partial(_related, request.path_params["session_id"]))

    async def _fork(self, request: Request) -> Response:
        form = dict(parse_qsl((await request.body()).decode("utf-8", "replace")))
        return await _shown("forked.html", partial(_forked, form))

    async def _code(self, _: Request) -> Response:
        return PlainTextResponse(self.codes.new())

    async def _open(self, request: Request) -> Response:
        if not self.codes.use(request.query_params.get("code", "")):
            problem = Usage("This address has been used, or is too old", "Open the page again: smart-fork open")
            return _rendered("problem.html", {"problem": problem}, 401)
        answer = RedirectResponse("/", 303, HEADERS)
        answer.set_cookie(self.cookie, self.secret, httponly=True, samesite="strict", path="/")
        return answer

    def _found(self, asked: Mapping[str, str]) -> dict[str, Any]:
        from smart_fork.finding import Request as Question
        from smart_fork.finding import find
        from smart_fork.listing import list_recent

        intent, project, agent = (asked.get(name, "").strip() for name in ("q", "project", "agent"))
        values: dict[str, Any] = {"q": intent, "project": project, "agent": agent}
        values |= {"answer": None, "recent": []}
        if intent:
            question = Question(
                intent,
                agent_type=agent or "both",
                limit=RESULTS,
                project_path=project or None,
                all_projects=not project,
            )
            values["answer"] = find(question, self.engine())
        else:
            values["recent"] = list_recent(agent or "both", project or None, RECENT, everywhere=not project)
        return values


def _projects() -> list[str]:
    """The projects that sessions are known of."""
    from smart_fork.opening import opened

    with opened() as store:
        return store.projects()


def _conversation(place: Mapping[str, str], asked: Mapping[str, str]) -> dict[str, Any]:
    from smart_fork import sessions
    from smart_fork.results import fork_command, title

    located = sessions.locate(place["session_id"])
    if located.agent != place["agent"]:
        raise NotFound(f"No such session of {place['agent']}")
    values: dict[str, Any] = {"agent": located.agent, "session_id": located.session_id, "next_at": None, "at": None}
    if located.path is None:
        text = sessions.exported(located)
        return values | {"title": located.session_id, "markdown": text, "messages": [], "session": None, "command": ""}
    session = sessions.read(located)
    start = _number(asked.get("at"))
    messages, next_at = sessions.messages(session, start, before=2 if start else 0, characters=READ_CHARACTERS)
    return values | {
        "title": title(session.title),
        "session": session,
        "messages": messages,
        "next_at": next_at,
        "at": start,
        "tokens": session.loads()[-1],
        "command": fork_command(session.agent, session.session_id, session.cwd),
        "markdown": "",
    }


def _related(session_id: str) -> dict[str, Any]:
    from smart_fork.lineage import lineage
    from smart_fork.page.timeline import timeline

    family = lineage(session_id)
    return family | {"line": timeline(family["sessions"])}


def _forked(form: Mapping[str, str]) -> dict[str, Any]:
    from smart_fork.launch import fork_session

    given = {name: form.get(name, "").strip() for name in ("session", "prompt", "at", "worktree", "place")}
    if not given["prompt"]:
        raise Usage("What is the fork to do?", "Go back and say it in a sentence.")
    return {
        "fork": fork_session(
            given["session"],
            given["prompt"],
            at=_number(given["at"]),
            worktree=given["worktree"] == "yes" or None,
            place=given["place"] or None,
        )
    }


def _number(text: str | None) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS):
        raise Usage("That is not the number of a message")
    return int(text)


async def _shown(template: str, work: Callable[[], Mapping[str, Any]]) -> Response:
    try:
        values = await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
    except SmartForkError as error:
        return _rendered("problem.html", {"problem": error}, 404 if isinstance(error, NotFound) else 400)
    return _rendered(template, values)


def _rendered(template: str, values: Mapping[str, Any], status: int = 200) -> Response:
    return HTMLResponse(_environment.get_template(template).render(values), status, HEADERS)


async def _static(request: Request) -> Response:
    name = request.path_params["name"]
    if name not in _TYPES:
        return PlainTextResponse("no such file\n", 404)
    return Response(
        files(__package__).joinpath("static", name).read_bytes(),
        media_type=_TYPES[name],
        headers={"X-Content-Type-Options": "nosniff", "Cache-Control": "no-cache"},
    )


def _link(path: str, **query: Any) -> str:
    """An address on this page; what is empty is left out."""
    given = {name: value for name, value in query.items() if value not in (None, "")}
    return f"{path}?{urlencode(given)}" if given else path


_environment = Environment(
    loader=PackageLoader("smart_fork.page"), autoescape=True, undefined=StrictUndefined, trim_blocks=True,
    lstrip_blocks=True,
)  # fmt: skip
_environment.globals["link"] = _link
