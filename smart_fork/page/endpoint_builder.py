"""The common parts of all addresses of the page: the chosen project, the status line, and forms that work once."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import parse_qsl, quote, unquote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from indexer.errors import next_step, what_failed
from indexer.lazy import dataclass
from indexer.runs import Freshness
from indexer.values import dict_in, json_in
from smart_fork.agents.options import FieldInput
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.finding.index_access import opened
from smart_fork.page.renderer import HEADERS, Shown, rendered
from smart_fork.page.sign_in import PageForms
from smart_fork.page.worker_board import WorkerBoard

#: The value of `project` in an address that asks about all projects.
EVERYWHERE = "*"
KEPT_SECONDS = 180 * 86_400
#: The longest path that an operating system accepts.
_MAX_PATH = 4096


@dataclass(frozen=True, slots=True)
class ProjectChoice:
    """The project directory that a request is about, and the one in the browser's cookie. Empty means all."""

    project: str
    remembered: str


@dataclass(frozen=True, slots=True)
class ProjectCookie:
    """The cookie, called `name`, in which a browser keeps the project that its user chose."""

    name: str

    def of(self, request: Request) -> ProjectChoice:
        """Return the project that a request asks about: the one in its address, or else in its cookie."""
        remembered = _there(unquote(request.cookies.get(self.name, "")))
        asked = request.query_params.get("project")
        if asked is None:
            return ProjectChoice(remembered, remembered)
        return ProjectChoice("" if asked.strip() == EVERYWHERE else asked.strip(), remembered)

    def remember(self, answer: Response, request: Request, found: ProjectChoice) -> None:
        """Store the project of the request's address in the browser's cookie, by the response `answer`."""
        if request.query_params.get("project") is None or found.project == found.remembered:
            return
        if not found.project:
            answer.delete_cookie(self.name, path="/", httponly=True, samesite="strict")
        elif _there(found.project):
            self.keep(answer, found.project)

    def keep(self, answer: Response, project: str) -> None:
        """Set the browser's cookie to `project` in the response `answer`."""
        answer.set_cookie(self.name, quote(project), max_age=KEPT_SECONDS, httponly=True, samesite="strict", path="/")


def project_in(body: bytes) -> str:
    """Return the project that ``smart-fork open`` sent in `body`; empty if it names no existing directory."""
    project = dict_in(json_in(body)).get("project")
    return _there(project) if isinstance(project, str) else ""


def folder(project: str) -> Path:
    """Return `project`, from an address or a form, as the path of an existing directory.

    Raises:
        Usage: the directory does not exist.
    """
    if not _there(project):
        raise Usage(
            "This project's directory does not exist", "Choose a project above the search, then open the session again."
        )
    return Path(project)


def _there(project: str) -> str:
    try:
        return project if 0 < len(project) <= _MAX_PATH and Path(project).is_dir() else ""
    except (OSError, ValueError):  # a NUL, or what is in no file system's encoding
        return ""


ModelState = Literal["ready", "loading", "absent"]


@dataclass(frozen=True, slots=True)
class ServiceActivity:
    """The state of the service: whether its embedding model is loaded, and what its indexer does.

    `indexing` is `None` if another process updates the index.
    """

    model: ModelState = "ready"
    indexing: Freshness | None = None


@dataclass(frozen=True, slots=True)
class PageStatus:
    """The status that every page shows: the badge of waiting workers, and the line about the index at its end.

    `asks` counts the workers that wait for an answer, `running` those that have not ended, and `sessions` the indexed
    sessions. `problem` says why there is no index.
    """

    asks: int
    running: int
    sessions: int
    updated_at: str
    service: ServiceActivity
    problem: str = ""

    @property
    def fresh(self) -> str:
        """Return the last time, in ISO 8601, at which the index was known to match the logs."""
        indexing = self.service.indexing
        if indexing is not None and indexing.state == "idle" and not indexing.pending_logs and not indexing.failing:
            runs = (indexing.last_run, indexing.last_change)
            return max((self.updated_at, *(run.started_at for run in runs if run is not None)))
        return self.updated_at

    @property
    def doing(self) -> str:
        """Return the indexer's current work; empty if it is idle."""
        indexing = self.service.indexing
        if indexing is None:
            return ""
        return "indexing fails" if indexing.failing else indexing.doing


def page_status(board: WorkerBoard, state: Callable[[], ServiceActivity]) -> PageStatus:
    """Return the current status of workers and index for a page."""
    workers = board.view()
    sessions, updated_at, problem = 0, "", ""
    try:
        with opened() as store:
            sessions, updated_at = store.session_count(), store.meta("updated_at")
    except SmartForkError as error:
        problem = error.message
    return PageStatus(workers.asks, workers.running, sessions, updated_at, state(), problem)


T = TypeVar("T")
Asked = Mapping[str, str]
Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """The builder of responses to browsers, with the page's forms, the board of workers and the service's state."""

    forms: PageForms[Any]
    board: WorkerBoard
    state: Callable[[], ServiceActivity]

    async def shown(
        self,
        template: str,
        work: Callable[[], Shown],
        *more: Shown,
        status: int = 200,
        by: Callable[..., Response] = rendered,
    ) -> Response:
        """Render `template` with the values that `work` returns; an error page if `work` fails.

        `by` turns the template, the values, the page's status and the values in `more` into the response.
        """
        try:
            values, common = await in_thread(lambda: (work(), self._common()))
        except (SmartForkError, OSError) as error:
            return await self.problem(error)
        return by(template, values, common, *more, status=status)

    async def problem(self, error: SmartForkError | OSError) -> Response:
        """Answer with a page that shows what failed, and what the user can do."""
        if isinstance(error, OSError):
            log.warning("a page cannot be shown", exc_info=error)
            error = SmartForkError(what_failed(error), next_step(error))
        common = await in_thread(self._common)
        return rendered("problem.html", {"problem": error}, common, status=error.http_status)

    def page(self, template: str, work: Callable[[Asked, Asked], Shown], **how: Any) -> Endpoint:
        """Return an endpoint that renders `template` with `work(path, query)`. `how` are options of `shown`."""

        async def answer(request: Request) -> Response:
            return await self.shown(template, partial(work, request.path_params, request.query_params), **how)

        return answer

    def does(self, work: Callable[[Mapping[str, str]], object], shown: str, *, unlike: bool = False) -> Endpoint:
        """Return an endpoint for a form: it calls `work` with the fields once, then redirects to the address `shown`.

        The form's name replaces ``{form}`` in `shown`. With `unlike`, equal fields that another window has just sent do
        not call `work`: the form gets that window's result, unless it has the field `again`.
        """

        async def answer(request: Request) -> Response:
            fields = await given(request)
            form = fields.pop("form", "")
            again = fields.pop("again", "")
            same = {name: said for name, said in fields.items() if name != "seen"}  # windows may have been opened apart
            alike = same if unlike and not again else None
            try:
                await in_thread(partial(self.forms.send, request.url.path, form, partial(work, fields), alike=alike))
            except (SmartForkError, OSError) as error:
                return await self.problem(error)
            where = shown.replace("{form}", form)
            return RedirectResponse(where, 303, HEADERS)  # reloading what comes does nothing again

        return answer

    def kept(self, form: str | None, kind: type[T]) -> T | None:
        """Return the result of the work that `form` started; `None` if it is unknown or was deleted."""
        try:
            return self.answer(form, kind) if form else None
        except NotFound:
            return None

    def answer(self, form: str, kind: type[T]) -> T:
        """Return the result of the class `kind` of the work that `form` started.

        Raises:
            NotFound: the form was never sent, was sent too long ago, or did another kind of work.
        """
        answer = self.forms.answer(form)
        if not isinstance(answer, kind):
            raise NotFound("This form belongs to another page")
        return answer

    def _common(self) -> Shown:
        """Return the values that every template needs: its status, and a function that names a new form."""
        return {"page_status": page_status(self.board, self.state), "new_form": self.forms.new}


def read(kind: type[T], form: Mapping[str, str], only: Collection[str]) -> T:
    """Fill the dataclass `kind` from those fields of a sent form that are named in `only`. A ticked box is "yes"."""
    values: dict[str, Any] = {}
    for one in fields(kind):  # type: ignore[arg-type]  # a request is a dataclass
        said, text = FieldInput.of(one), form.get(one.name, "").strip()
        if said is None or one.name not in only:
            continue
        if bool in said.types:
            values[one.name] = text == "yes" or (None if one.default is None else False)
        elif text:
            is_number = int in said.types and text.isascii() and text.isdigit() and len(text) < 10
            values[one.name] = int(text) if is_number else text
    return kind(**values)


async def given(request: Request) -> dict[str, str]:
    """Return the fields that a request's form sent."""
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace")))


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, so that the event loop does not wait for disks and programs."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
