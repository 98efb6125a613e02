"""All routes of the web page, and the pages of forks, workers and the index. All pages work without scripts."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Final

import anyio.to_thread
import orjson
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from indexer import kept_logs
from indexer.errors import what_failed
from indexer.lazy import dataclass
from indexer.log_changes import forgotten
from indexer.masking import Masked, beginning, mask
from indexer.transcripts.model import AgentName
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.options import Options
from smart_fork.display_text import printable
from smart_fork.doctor import Checked, run_checks
from smart_fork.errors import IndexUnavailable, NotFound, Usage, is_empty
from smart_fork.excise.cutting import LastCut, last_cut
from smart_fork.finding import session_lookup
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_status import index_status
from smart_fork.finding.session_library import Opening
from smart_fork.finding.team_sessions import sessions_here
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import MATCH, BudgetOptions, ForkRequest, parse_amount, parse_numbers
from smart_fork.forking.results import Forked
from smart_fork.page import renderer
from smart_fork.page.conversation_page import refuse_changed_session
from smart_fork.page.endpoint_builder import (
    Asked,
    Endpoints,
    ProjectCookie,
    ServiceActivity,
    folder,
    given,
    in_thread,
    project_in,
    read,
)
from smart_fork.page.export import side_by_side
from smart_fork.page.family_page import family_page
from smart_fork.page.renderer import HEADERS, Shown, problem, rendered, sign_in_page
from smart_fork.page.search_page import SearchViews
from smart_fork.page.session_page import session_routes
from smart_fork.page.sign_in import CODE_SECONDS, SignIn
from smart_fork.page.worker_board import BoardView, WorkerBoard, asked
from smart_fork.system.processes import Processes
from smart_fork.workers.comparison import compare
from smart_fork.workers.messages import message_worker
from smart_fork.workers.termination import close_workers

if TYPE_CHECKING:
    from indexer.store.base import Holding

#: The fields of a form that are options of a fork.
_SAID = ("prompt", "at", "worktree", "place", "budget", "keep", "drop", "brief", "as_agent", "unmasked")
ASKED = ("session", "project", *_SAID, "form", "seen")


def forked(form: Mapping[str, str], *, library: Opening, dry_run: bool = False) -> Forked:
    """Start the fork that a form asks for, or with `dry_run` only plan it.

    If the form sets a budget, `library` selects the exchanges that fit. A shared session is first written to this
    machine, for the form's project.
    """
    session, project = form.get("session", "").strip(), form.get("project", "").strip()
    if is_empty(form.get("prompt", "")):
        raise Usage("The prompt is empty.", "Go back and write it in a sentence.")
    options, budget = read(Options, form, _SAID), read(BudgetOptions, {**form, **_moves(form)}, _SAID)
    with sessions_here([session], folder(project) if project else None, keep=not dry_run) as (here,):
        if seen := form.get("seen", ""):
            refuse_changed_session(seen, session_lookup.look_into(session_lookup.locate(here.session_id)))
        asked = replace(read(ForkRequest, form, _SAID), session=here.session_id, options=options, dry_run=dry_run)
        return fork_session(replace(asked, budget=budget.wanted() if budget.budget else None), library)


def previewed(form: Mapping[str, str], library: Opening) -> Shown:
    """Return the template values for a preview of the fork that a form asks for: its tokens, and what it keeps.

    `parts` describes the tokens of the whole session. `chosen` is the command-line option for the form's choice, such
    as ``--at``. `moved` are the exchanges that the user keeps or drops by hand.
    """
    form = _in_way(form)
    would = forked(form, library=library, dry_run=True)
    # Each way in words: what it keeps, the option that asks for it, and what is said of it beside.
    ways = tuple((_keeps(way.option), way.option, way.tokens, way.last_use) for way in would.ways)
    given = {name: value for name in ASKED if (value := form.get(name, "").strip())}
    moved = {number: where for where, those in _moves(form).items() for number in parse_numbers(those)}
    parts = " ".join(filter(None, (one.parts for one in would.ways)))
    choice = {"chosen": _option(given), "given": given, "moved": moved}
    return {"fork": would, "selection": would.selection, "ways": ways, "parts": parts, **choice}


def _in_way(form: Mapping[str, str]) -> Mapping[str, str]:
    """Return the form with its pressed button turned into a fork point (`at`) or a budget."""
    way = form.get("way", "")
    name, _, value = way.removeprefix("--").partition(" ")
    if name == "budget":
        return {**form, "budget": value}
    return {**form, "at": value if name == "at" else "", "budget": ""} if way else form


def _option(given: Mapping[str, str]) -> str:
    """Return the command-line option for the form's choice: ``--at`` or ``--budget``; "" for the whole session."""
    if budget := given.get("budget", ""):
        return f"--budget {parse_amount(budget)}"
    return f"--at {given['at']}" if given.get("at") else ""


def _keeps(option: str) -> str:
    """Describe the part of a session that a fork with this command-line option keeps."""
    name, _, value = option.removeprefix("--").partition(" ")
    if name == "budget":
        return "Only what answers the prompt" if value == MATCH else f"What answers, within {int(value):,} tokens"
    if name == "at":
        return "Up to the exchange that answers" if value == MATCH else f"Up to message {value}"
    return "The whole session"


def _moves(form: Mapping[str, str]) -> dict[str, str]:
    """Return the numbers of the exchanges that the user keeps or drops by hand, as form fields `keep` and `drop`."""
    moved = [(name.removeprefix("exchange-"), value) for name, value in form.items() if name.startswith("exchange-")]
    known = [(number, value) for number, value in moved if number.isascii() and number.isdigit() and len(number) < 7]
    return {where: ",".join(number for number, value in known if value == where) for where in ("keep", "drop")}


#: The characters of a message to a worker that its answer repeats.
_REPEATED = 200


@dataclass(frozen=True, slots=True)
class WorkerActionResult:
    """The result of an action on a worker from its card: `how` it was done, and the `text` that was sent."""

    worker_id: str
    name: str
    how: str
    text: Masked
    warnings: tuple[str, ...] = ()


def act_on_worker(form: Mapping[str, str]) -> WorkerActionResult:
    """Do what a form on a worker's card asks: answer its question, send it a message, or end it.

    Raises:
        SmartForkError: the action failed.
    """
    worker, do, text = (form.get(name, "") for name in ("worker", "do", "text"))
    if not worker:
        raise Usage("Which worker?", "Reload the workers page.")
    said = beginning(printable(mask(text.strip())), _REPEATED)
    if do == "close":
        (closed,) = close_workers([worker], remove_worktree=form.get("worktree") == "yes")
        how = "ended" if closed.closed else "not changed"
        return WorkerActionResult(closed.worker_id, closed.name, how, mask(""), (closed.note,) if closed.note else ())
    if do.startswith("answer-"):
        number, shown = do.removeprefix("answer-"), form.get("asked", "")
        done = message_worker(worker, number, answer=True, meant=lambda question: asked(question) == shown)
        return WorkerActionResult(done.worker_id or worker, done.name, done.how, mask(number), done.warnings)
    if do not in ("message", "queue"):
        raise Usage("No such action", "Reload the workers page.")
    done = message_worker(worker, text, queue=do == "queue")
    return WorkerActionResult(done.worker_id or worker, done.name, done.how, said, done.warnings)


#: The address where browsers listen for changes of workers.
LIVE = "/workers/live"
#: The number of windows that may listen, and for how long. Browsers reconnect by themselves.
MAX_LISTENERS, LISTEN_SECONDS = 12, 600.0
#: The interval of reading the workers while a window listens, and the delay before a rejected window tries again.
LOOK_SECONDS, AGAIN_MILLISECONDS = 2.0, 5000
#: The number of workers in one comparison.
MAX_COMPARED = 10


class WorkerViews:
    """The routes that show workers and act on them. The number of browsers that listen for changes is limited."""

    def __init__(self, endpoints: Endpoints) -> None:
        self._endpoints: Final = endpoints
        self._listeners = 0

    def routes(self) -> list[Route]:
        return [
            Route("/workers", self._endpoints.page("workers.html", self._workers)),
            Route("/board", partial(self._fragment, "board.html")),
            Route("/now", partial(self._fragment, "now.html")),
            Route("/worker/{worker}", partial(self._fragment, "fork_worker.html")),
            Route("/worker", self._endpoints.does(act_on_worker, "/workers?told={form}"), methods=["POST"]),
            Route("/compare", self._compare),
            Route(LIVE, self._live),
        ]

    def _workers(self, _: Asked, asked: Asked) -> Shown:
        form = asked.get("told")
        return {
            "board": self._endpoints.board.view(fresh=form is not None),
            "done": self._endpoints.kept(form, WorkerActionResult),
        }

    async def _fragment(self, template: str, request: Request) -> Response:
        board = await in_thread(self._endpoints.board.view)
        return rendered(template, {"board": board, "new_form": self._endpoints.forms.new}, request.path_params)

    async def _compare(self, request: Request) -> Response:
        wanted = request.query_params.getlist("worker")
        return await self._endpoints.shown("compare.html", lambda: compared(wanted))

    async def _live(self, _: Request) -> Response:
        headers = {**HEADERS, "X-Accel-Buffering": "no"}
        return StreamingResponse(self._events(), media_type="text/event-stream", headers=headers)

    async def _events(self) -> AsyncIterator[bytes]:
        """Yield a server-sent event for each change of the worker board, to one browser.

        If too many browsers listen, yield one event that tells the browser to reconnect later.
        """
        if self._listeners >= MAX_LISTENERS:
            yield b"retry: %d\n" % AGAIN_MILLISECONDS + _event(await in_thread(self._endpoints.board.view))
            return
        self._listeners += 1
        try:
            loop = asyncio.get_running_loop()
            until, known = loop.time() + LISTEN_SECONDS, b""
            while loop.time() < until:
                event = _event(await in_thread(self._endpoints.board.view))
                yield event if event != known else b": still here\n\n"  # which finds out who is gone
                known = event
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self._listeners -= 1


def _event(view: BoardView) -> bytes:
    told = {"asks": view.asks, "running": view.running, "version": view.version}
    return b"data: " + orjson.dumps(told) + b"\n\n"


def compared(wanted: list[str]) -> Shown:
    """Return the template values that compare workers with these ids or names.

    Without names, these are the workers of the last fan-out (one prompt given to several workers).
    """
    return side_by_side(compare(list(dict.fromkeys(wanted))[:MAX_COMPARED], Processes(), patch=True))


#: The number of the latest cuts, and of the latest forgotten sessions, that are listed.
MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class ProjectHoldings:
    """The indexed sessions of one project: their number for each agent, the agent with the most first."""

    root: str
    last_activity: str
    agents: Sequence[tuple[AgentName, int]]


def holdings(checked: Checked | None = None) -> Shown:
    """Return the template values of the index page: the index's status, its projects, cuts and forgotten sessions.

    `trouble` is the error if the index cannot be used. `kept` are the agents with kept copies of logs. `checked` is the
    result of a requested check.
    """
    kept = tuple(agent.name for agent in READERS if kept_logs.copies_wanted(agent))
    beside = {"cuts": _cuts(), "gone": _gone(), "kept": kept, "checked": checked}
    try:
        status = index_status()
        with opened() as store:
            held = store.holdings()
    except IndexUnavailable as error:
        return {"status": None, "trouble": error, "projects": (), **beside}
    return {"status": status, "trouble": None, "projects": by_project(held), **beside}


def by_project(held: Sequence[Holding]) -> tuple[ProjectHoldings, ...]:
    """Group the counts of indexed sessions by project, the one that was used last first."""
    grouped = groupby(sorted(held, key=lambda one: one.root), key=lambda one: one.root)
    found = []
    for root, same in grouped:
        sessions, latest = Counter[AgentName](), ""
        for one in same:
            sessions[one.agent] += one.sessions
            latest = max(latest, one.last_activity)
        found.append(ProjectHoldings(root, latest, sessions.most_common()))
    return tuple(sorted(found, key=lambda one: one.last_activity, reverse=True))


def checked(_: Mapping[str, str]) -> Checked:
    """Run the checks of ``smart-fork doctor``, except those of the agents' settings."""
    return Checked.of(run_checks())


def _cuts() -> tuple[tuple[str, LastCut], ...]:
    """Return the latest cuts that can be undone, newest first: the session's id, and the cut."""
    sessions = dict.fromkeys(one.session_id for one in reversed(snapshots.noted_changes()) if one.session_id)
    found = ((session, last_cut(session)) for session in sessions)
    standing: dict[str, tuple[str, LastCut]] = {}
    for session, last in found:
        if last is not None:
            standing.setdefault(last.snapshot, (session, last))
    return tuple(sorted(standing.values(), key=lambda one: one[1].made, reverse=True))[:MAX_LISTED]


def _gone() -> tuple[tuple[str, str, str], ...]:
    """Return the latest sessions that were forgotten (removed for good), newest first: agent, id and time of each."""
    try:
        listed = forgotten()
    except OSError:
        return ()
    found = ((agent, session_id, str(at)) for (agent, session_id), at in listed.items())
    return tuple(sorted(found, key=lambda one: one[2], reverse=True))[:MAX_LISTED]


#: Addresses that need no token: the one for sign-in codes, and the static files.
WAY_IN = "/open"
PUBLIC = renderer.PUBLIC

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Page:
    """The web page of the service: `library` searches sessions, and `sign_in` signs browsers in.

    `state` returns the activity of the service, and `board` reads the workers.
    """

    library: Opening
    sign_in: SignIn
    state: Callable[[], ServiceActivity] = ServiceActivity
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
            Route("/doctor", self.endpoints.does(checked, "/index?checked={form}#checks"), methods=["POST"]),
            *session_routes(self.endpoints, self.project_cookie),
            Route("/family/{agent}/{session_id}", self.endpoints.page("family.html", family_page)),
            Route("/fork", self.endpoints.does(fork, "/forked/{form}", unlike=True), methods=["POST"]),
            Route("/preview", self._preview, methods=["POST"]),
            Route("/forked/{form}", self.endpoints.page("forked.html", self._forked)),
            Route(WAY_IN, _enter),
            Route(WAY_IN, self._open, methods=["POST"]),
            Route("/static/{name}", _static),
        ]

    def for_programs(self) -> list[Route]:
        """Return the route where ``smart-fork open`` gets a sign-in code. A signed-in browser cannot use it."""
        return [Route("/code", self._code, methods=["POST"])]

    async def lost(self, request: Request, _: Exception) -> Response:
        """Answer an unknown address with status 404: a page for a browser, plain text for other programs."""
        if "text/html" not in request.headers.get("Accept", ""):
            return PlainTextResponse("Not Found", 404)
        return await self.endpoints.problem(NotFound("There is no page at this address", "Search, or choose a view."))

    async def _preview(self, request: Request) -> Response:
        fields = await given(request)
        return await self.endpoints.shown("preview.html", partial(previewed, fields, self.library))

    def _index(self, _: Asked, asked: Asked) -> Shown:
        return holdings(self.endpoints.kept(asked.get("checked"), Checked))

    def _forked(self, place: Asked, _: Asked) -> Shown:
        """Return the template values of the page after a fork: the fork and its worker.

        `twin` is the form of another window with equal fields, if its fork is shown instead of a second one.
        """
        fork, twin = self.endpoints.answer(place["form"], Forked), self.sign_in.forms.twin(place["form"])
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
        fields = await given(request)
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
