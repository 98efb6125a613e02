"""Endpoints of the page: handlers that render a template or do a form's work once; the chosen project, the status."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import quote, unquote

import anyio.to_thread
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from indexer.errors import next_step, what_failed
from indexer.json_values import dict_in, json_in
from indexer.lazy_compilation import dataclass
from indexer.runs import Freshness
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.finding.index_access import opened
from smart_fork.page.forms import PageForms, form_fields
from smart_fork.page.renderer import HEADERS, Shown, rendered
from smart_fork.page.worker_board import WorkerBoard

#: The value of `project` in an address that asks about all projects.
EVERYWHERE = "*"
KEPT_SECONDS = 180 * 86_400
#: The longest path that an operating system accepts.
_MAX_PATH = 4096


@dataclass(frozen=True, slots=True)
class ProjectChoice:
    """The project directory of a request (empty: all projects), and the one that its browser's cookie remembers."""

    project: str
    remembered: str


@dataclass(frozen=True, slots=True)
class ProjectCookie:
    """The cookie, called `name`, in which a browser keeps the project that its user chose."""

    name: str

    def of(self, request: Request) -> ProjectChoice:
        """Return the project that a request asks about: the one in its address, or else in its cookie."""
        remembered = _if_directory(unquote(request.cookies.get(self.name, "")))
        asked = request.query_params.get("project")
        if asked is None:
            return ProjectChoice(remembered, remembered)
        return ProjectChoice("" if asked.strip() == EVERYWHERE else asked.strip(), remembered)

    def remember(self, answer: Response, request: Request, found: ProjectChoice) -> None:
        """Let the response `answer` change the cookie if the request's address names another project."""
        if request.query_params.get("project") is None or found.project == found.remembered:
            return
        if not found.project:
            answer.delete_cookie(self.name, path="/", httponly=True, samesite="strict")
        elif _if_directory(found.project):
            self.keep(answer, found.project)

    def keep(self, answer: Response, project: str) -> None:
        """Set the browser's cookie to `project` in the response `answer`."""
        answer.set_cookie(self.name, quote(project), max_age=KEPT_SECONDS, httponly=True, samesite="strict", path="/")


def project_in(body: bytes) -> str:
    """Return the project that ``smart-fork open`` sent in `body`; empty if it names no existing directory."""
    project = dict_in(json_in(body)).get("project")
    return _if_directory(project) if isinstance(project, str) else ""


def existing_directory(project: str) -> Path:
    """Return the project directory of an address or a form as a path.

    Raises:
        Usage: the directory does not exist.
    """
    if not _if_directory(project):
        raise Usage(
            "This project's directory does not exist", "Choose a project above the search, then open the session again."
        )
    return Path(project)


def _if_directory(project: str) -> str:
    try:
        return project if 0 < len(project) <= _MAX_PATH and Path(project).is_dir() else ""
    except (OSError, ValueError):  # a NUL, or what is in no file system's encoding
        return ""


ModelState = Literal["ready", "loading", "absent"]


#: The state of the service: its embedding model, and its indexer (`None` if another process updates the index).
ServiceState = tuple[ModelState, Freshness | None]


@dataclass(frozen=True, slots=True)
class PageStatus:
    """The status that every page shows: the badge of waiting workers, and the line about the index at its end.

    `asks` counts the workers that wait for an answer, `running` those that have not ended, and `sessions` the indexed
    sessions. `indexing` is `None` if another process updates the index. `problem` says why there is no index.
    """

    asks: int
    running: int
    sessions: int
    updated_at: str
    model: ModelState
    indexing: Freshness | None
    problem: str = ""

    @property
    def fresh(self) -> str:
        """Return the last time at which the index matched the logs, in ISO 8601."""
        indexing = self.indexing
        if indexing is not None and indexing.state == "idle" and not indexing.pending_logs and not indexing.failing:
            runs = (indexing.last_run, indexing.last_change)
            return max((self.updated_at, *(run.started_at for run in runs if run is not None)))
        return self.updated_at

    @property
    def doing(self) -> str:
        """Return the indexer's current work; empty if it is idle."""
        if self.indexing is None:
            return ""
        return "indexing fails" if self.indexing.failing else self.indexing.doing


def page_status(board: WorkerBoard, state: Callable[[], ServiceState]) -> PageStatus:
    """Return the current status of workers and index for a page."""
    workers = board.view()
    sessions, updated_at, problem = 0, "", ""
    try:
        with opened() as store:
            sessions, updated_at = store.session_count(), store.meta("updated_at")
    except SmartForkError as error:
        problem = error.message
    return PageStatus(workers.asks, workers.running, sessions, updated_at, *state(), problem)


T = TypeVar("T")
Asked = Mapping[str, str]
Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Endpoints:
    """Builds the endpoints (request handlers) of the page.

    Each page gets a status line from `board` and `state`, and names for its `forms`.
    """

    forms: PageForms[Any]
    board: WorkerBoard
    state: Callable[[], ServiceState]

    async def respond(
        self,
        template: str,
        work: Callable[[], Shown],
        *more: Shown,
        status: int = 200,
        by: Callable[..., Response] = rendered,
    ) -> Response:
        """Render `template` with the values that `work` returns, those in `more` and the page's status.

        If `work` fails, render a page with its error. `by` is the function that renders, `rendered` or `streamed`.
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
        """Return an endpoint that renders `template` with `work(path, query)`. `how` are options of `respond`."""

        async def answer(request: Request) -> Response:
            return await self.respond(template, partial(work, request.path_params, request.query_params), **how)

        return answer

    def form(self, work: Callable[[Mapping[str, str]], object], shown: str, *, unlike: bool = False) -> Endpoint:
        """Return an endpoint for a form: it calls `work` with the fields once, then redirects to the address `shown`.

        ``{form}`` in `shown` stands for the form's name. With `unlike`, a form equal to one just sent from another
        window counts as sent twice: it gets the first one's result, unless it has the field `again`.
        """

        async def answer(request: Request) -> Response:
            fields = await form_fields(request)
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

    def find_result(self, form: str | None, kind: type[T]) -> T | None:
        """Return the result of a sent form's work; `None` if the form is unknown or its result was deleted."""
        try:
            return self.result(form, kind) if form else None
        except NotFound:
            return None

    def result(self, form: str, kind: type[T]) -> T:
        """Return the result, of the class `kind`, of a sent form's work.

        Raises:
            NotFound: the form was never sent, was sent too long ago, or has another kind of result.
        """
        result = self.forms.result(form)
        if not isinstance(result, kind):
            raise NotFound("This form belongs to another page")
        return result

    def _common(self) -> Shown:
        """Return the values that every template needs: the page's status, and a function that names a new form."""
        return {"page_status": page_status(self.board, self.state), "new_form": self.forms.new}


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread, so that the event loop does not wait for disks and programs."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
