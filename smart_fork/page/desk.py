"""Answers for all addresses of the page: the current project, work in a thread, a frame, forms that are sent once."""

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

from indexer.failures import next_step, what_failed
from indexer.lazy import dataclass
from indexer.runs import Freshness
from indexer.values import dict_in, json_in
from smart_fork.agents.options import FieldInput
from smart_fork.errors import NotFound, SmartForkError, Usage
from smart_fork.finding.index_access import opened
from smart_fork.page.board import WorkerBoard
from smart_fork.page.renderer import HEADERS, Shown, rendered
from smart_fork.page.sign_in import PageForms

#: What an address says that asks about all projects, where the browser remembers one.
EVERYWHERE = "*"
KEPT_SECONDS = 180 * 86_400
#: No path is longer that a system takes.
_LONGEST = 4096


@dataclass(frozen=True, slots=True)
class Scope:
    """`project` is empty for all; `remembered` is what is asked about where an address says nothing."""

    project: str
    remembered: str


@dataclass(frozen=True, slots=True)
class Scopes:
    """Project choices that browsers keep in the cookie of that `name`."""

    name: str

    def of(self, request: Request) -> Scope:
        """The scope of a request."""
        remembered = _there(unquote(request.cookies.get(self.name, "")))
        asked = request.query_params.get("project")
        if asked is None:
            return Scope(remembered, remembered)
        return Scope("" if asked.strip() == EVERYWHERE else asked.strip(), remembered)

    def remember(self, answer: Response, request: Request, found: Scope) -> None:
        """Have the browser remember what its address has said, if that is another project or none."""
        if request.query_params.get("project") is None or found.project == found.remembered:
            return
        if not found.project:
            answer.delete_cookie(self.name, path="/", httponly=True, samesite="strict")
        elif _there(found.project):
            self.keep(answer, found.project)

    def keep(self, answer: Response, project: str) -> None:
        """Have the browser remember it."""
        answer.set_cookie(self.name, quote(project), max_age=KEPT_SECONDS, httponly=True, samesite="strict", path="/")


def project_in(body: bytes) -> str:
    """The project that ``smart-fork open`` was run in, as it says it; empty where it says none that is there."""
    project = dict_in(json_in(body)).get("project")
    return _there(project) if isinstance(project, str) else ""


def folder(project: str) -> Path:
    """The directory that an address or a form names as a project.

    Raises:
        Usage: there is none.
    """
    if not _there(project):
        raise Usage(
            "This project's directory does not exist", "Choose a project above the search, then open the session again."
        )
    return Path(project)


def _there(project: str) -> str:
    try:
        return project if 0 < len(project) <= _LONGEST and Path(project).is_dir() else ""
    except (OSError, ValueError):  # a NUL, or what is in no file system's encoding
        return ""


ModelState = Literal["ready", "loading", "absent"]


@dataclass(frozen=True, slots=True)
class ServiceState:
    """State of the service that shows the page: its model, and the indexing if the service does it."""

    model: ModelState = "ready"
    indexing: Freshness | None = None


@dataclass(frozen=True, slots=True)
class Frame:
    """The rail's badge and the last line of a page. Without an index it says so."""

    asks: int
    running: int
    sessions: int
    updated_at: str
    service: ServiceState
    problem: str = ""

    @property
    def fresh(self) -> str:
        """When everything was as the logs are, as far as it is known."""
        indexing = self.service.indexing
        if indexing is not None and indexing.state == "idle" and not indexing.pending_logs and not indexing.failing:
            runs = (indexing.last_run, indexing.last_change)
            return max((self.updated_at, *(run.started_at for run in runs if run is not None)))
        return self.updated_at

    @property
    def doing(self) -> str:
        """The indexer's current work; empty if idle."""
        indexing = self.service.indexing
        if indexing is None:
            return ""
        return "indexing fails" if indexing.failing else indexing.doing


def framed(board: WorkerBoard, state: Callable[[], ServiceState]) -> Frame:
    """The frame of now."""
    workers = board.view()
    sessions, updated_at, problem = 0, "", ""
    try:
        with opened() as store:
            sessions, updated_at = store.session_count(), store.meta("updated_at")
    except SmartForkError as error:
        problem = error.message
    return Frame(workers.asks, workers.running, sessions, updated_at, state(), problem)


T = TypeVar("T")
Asked = Mapping[str, str]
Endpoint = Callable[[Request], Awaitable[Response]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Desk:
    """Shared parts for building pages: sent `forms`, the `board` of workers, the service's `state`."""

    forms: PageForms[Any]
    board: WorkerBoard
    state: Callable[[], ServiceState]

    async def shown(
        self,
        template: str,
        work: Callable[[], Shown],
        *more: Shown,
        status: int = 200,
        by: Callable[..., Response] = rendered,
    ) -> Response:
        """The page of what `work` gives, with the frame around it, answered `by`; or of what is wrong."""
        try:
            values, frame = await in_thread(lambda: (work(), self._frame()))
        except (SmartForkError, OSError) as error:
            return await self.problem(error)
        return by(template, values, frame, *more, status=status)

    async def problem(self, error: SmartForkError | OSError) -> Response:
        """A page that says what is wrong, and what to do."""
        if isinstance(error, OSError):
            log.warning("a page cannot be shown", exc_info=error)
            error = SmartForkError(what_failed(error), next_step(error))
        frame = await in_thread(self._frame)
        return rendered("problem.html", {"problem": error}, frame, status=error.http_status)

    def page(self, template: str, work: Callable[[Asked, Asked], Shown], **how: Any) -> Endpoint:
        """Answer an address with the page of what `work` gives for its path and its query. See `shown`."""

        async def answer(request: Request) -> Response:
            return await self.shown(template, partial(work, request.path_params, request.query_params), **how)

        return answer

    def does(self, work: Callable[[Mapping[str, str]], object], shown: str, *, unlike: bool = False) -> Endpoint:
        """Do what a form asks, once; then lead to where that is `shown`, with ``{form}`` in it.

        With `unlike` that is what a form of another window has led to that asked for the same a moment ago, unless
        this one says that it is to be done `again`.
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
        """Return the answer to the form that led here; `None` without one, or if it is no longer known."""
        try:
            return self.answer(form, kind) if form else None
        except NotFound:
            return None

    def answer(self, form: str, kind: type[T]) -> T:
        """Return the result of a form that was sent.

        Raises:
            NotFound: it was not sent, too long ago, or asked for something else.
        """
        answer = self.forms.answer(form)
        if not isinstance(answer, kind):
            raise NotFound("This form belongs to another page")
        return answer

    def _frame(self) -> Shown:
        """Also names each form of a page, for the address that it is sent to."""
        return {"frame": framed(self.board, self.state), "new_form": self.forms.new}


def read(kind: type[T], form: Mapping[str, str], only: Collection[str]) -> T:
    """Return a request as a form says it: `only` these of its fields. A box that is ticked says "yes"."""
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
    """Return a form's fields."""
    return dict(parse_qsl((await request.body()).decode("utf-8", "replace")))


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work`, which waits for disks and programs, in a thread."""
    return await anyio.to_thread.run_sync(work, abandon_on_cancel=True)
