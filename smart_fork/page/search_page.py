"""The search page with its first screen, and the lists of sessions and families, with their routes."""

from __future__ import annotations

import shlex
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from indexer.lazy_compilation import dataclass
from indexer.project import project_of
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import time_of
from smart_fork.errors import IndexUnavailable, SmartForkError
from smart_fork.finding.answer import Answer, Found, RecentSession
from smart_fork.finding.hit import Hit, outcome_in_words
from smart_fork.finding.index_access import known_index, opened
from smart_fork.finding.recent import list_recent
from smart_fork.finding.request import MAX_PHRASING_CHARACTERS, MAX_PHRASINGS, FindRequest
from smart_fork.finding.results import title
from smart_fork.finding.session_library import Opening
from smart_fork.finding.session_notes import SessionNotes
from smart_fork.finding.session_place import WorkDirectory, permits
from smart_fork.finding.team_sessions import is_known, team_room, team_search
from smart_fork.forking.search_and_fork import fits
from smart_fork.page.conversation_page import ExchangeSide, exchanges_of_hits
from smart_fork.page.endpoint_builder import Endpoints, ProjectChoice, ProjectCookie, in_thread
from smart_fork.page.renderer import HEADERS, PageValues, Shown, period, rendered
from smart_fork.page.session_page import conversation
from smart_fork.page.worker_board import BoardView

if TYPE_CHECKING:
    from indexer.store.base import Holding, SessionRow

#: The age groups of sessions, by days. The last has no upper bound.
_AGES = {"7": "last 7 days", "30": "last 30 days", "365": "last year", "older": "older"}
#: The number of branches in the filter.
_MAX_BRANCHES = 8


@dataclass(frozen=True, slots=True)
class FacetChoice:
    """One value of a search filter. `by` are all filters that are in use after a person has chosen it."""

    title: str
    chosen: bool
    by: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Facet:
    """One filter of the search page, such as "Branch", with the values to choose from.

    `without` are the other filters in use, for a link that removes this one; `None` if it is not in use.
    """

    title: str
    choices: tuple[FacetChoice, ...]
    without: Mapping[str, str] | None


def age_of(hit: Hit) -> str:
    """Return the narrowest age group of a hit (found session) in days: "7", "30", "365" or "older"."""
    then = time_of(hit.last_activity)
    if then is None:
        return "older"
    days = (datetime.now(UTC) - then).total_seconds() / 86_400
    return next((name for name in _AGES if name.isdigit() and days <= int(name)), "older")


def _is_of_age(hit: Hit, wanted: str) -> bool:
    ages = list(_AGES)
    age = age_of(hit)
    return age == wanted if wanted == "older" else age != "older" and ages.index(age) <= ages.index(wanted)


_NAMES: Mapping[str, tuple[str, Callable[[Hit, str], bool]]] = {
    "branch": ("Branch", lambda hit, wanted: (hit.git_branch or "") == wanted),
    "age": ("Age", _is_of_age),
    "outcome": ("Outcome", lambda hit, wanted: hit.outcome == wanted),
}


def chosen(asked: Mapping[str, str]) -> dict[str, str]:
    """Return the filters (branch, age, outcome) in the query `asked`, without unknown ages."""
    found = {name: asked.get(name, "") for name in _NAMES}
    if found["age"] not in _AGES:
        found["age"] = ""
    return {name: value for name, value in found.items() if value}


def narrowed(hits: Sequence[Hit], by: Mapping[str, str]) -> tuple[Hit, ...]:
    """Return the hits (found sessions) that pass all filters in `by`, from name to value."""
    return tuple(hit for hit in hits if all(_NAMES[name][1](hit, value) for name, value in by.items()))


def facets(hits: Sequence[Hit], by: Mapping[str, str]) -> tuple[Facet, ...]:
    """Return the filters to show beside the hits (found sessions). `by` are the filters in use.

    Another filter appears only if the hits have different values for it.
    """
    branches = list(dict.fromkeys(hit.git_branch for hit in hits if hit.git_branch))[:_MAX_BRANCHES]
    outcomes = dict.fromkeys(hit.outcome for hit in hits if hit.outcome != "unknown")
    present = {age_of(hit) for hit in hits}
    ages = [name for name in _AGES if name in present]
    offered = {
        "branch": {name: name for name in branches},
        "age": {name: _AGES[name] for name in ages},
        "outcome": {name: outcome_in_words(name) for name in outcomes},
    }
    found = []
    for name, (heading, _) in _NAMES.items():
        values = offered[name] | ({by[name]: offered[name].get(by[name], by[name])} if name in by else {})
        if len(values) > 1 or name in by:
            choices = (FacetChoice(said, by.get(name) == value, {**by, name: value}) for value, said in values.items())
            others = {other: value for other, value in by.items() if other != name}
            found.append(Facet(heading, tuple(choices), others if name in by else None))
    return tuple(found)


#: The words for a cosine similarity, by the lowest similarity.
_NEAR = ((0.6, "very near"), (0.45, "near"), (0.3, "somewhat near"))
#: The number of matching words to name, and the points from which the title, the session and the files are a reason.
_NAMED, _TITLE_POINTS, _SESSION_POINTS, _FILES_POINTS = 6, 1.0, 1.0, 1.0


def reasons(hit: Hit) -> Iterator[str]:
    """Yield in words why a search found this hit (a session): matching words, similar meaning, and edited files."""
    points = hit.explain.points if hit.explain is not None else {}
    words = hit.match.words
    if words:
        more = f" and {len(words) - _NAMED} more" if len(words) > _NAMED else ""
        yield f"its words {', '.join(words[:_NAMED])}{more}"
    elif points.get("session_words", 0.0) >= _SESSION_POINTS:
        yield "its words elsewhere in the session"
    if points.get("title", 0.0) >= _TITLE_POINTS:
        yield "its title"
    near = hit.match.similarity or 0.0
    if word := next((word for least, word in _NEAR if near >= least), ""):
        yield f"{word} in meaning ({near:.2f})"
    if points.get("files", 0.0) >= _FILES_POINTS:
        yield "it edited files that are in play"
    if hit.drift is not None:
        yield f"{hit.drift.files} {'file' if hit.drift.files == 1 else 'files'} edited here"


#: The number of results, of results if more are requested, and of recent sessions.
RESULTS, MORE, RECENT = 10, 50, 30
#: The weeks of the chart, and its color for each outcome.
WEEKS, _KINDS = 12, {"committed": "good", "tests_passed": "good", "failed": "bad", "abandoned": "bad"}
#: The number of sessions by agent, week (the latest first) and color.
Activity = Mapping[AgentName, Sequence[Counter[str]]]
#: The lowest score with which a session's passage is shown.
WORTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(PageValues):
    """The values of the search page: the question `q`, its `answer`, and the filters.

    `also` are other phrasings of `q`. Without a question, `recent` are the latest sessions. `code` are the fields of a
    search for the sessions that wrote code. `by` are the filters in use, `offered` those to choose from. `reasons` and
    `exchanges` are keyed by session id. `fits` is False if all hits are unlikely. `new` is a command for a new session.
    """

    q: str
    also: Sequence[str]
    also_most: int = MAX_PHRASINGS
    also_characters: int = MAX_PHRASING_CHARACTERS
    project: str
    agent: str
    limit: int
    code: Mapping[str, str]
    most: int = MORE
    worth: float = WORTH
    answer: Answer | None = None
    fits: bool = True
    new: str = ""
    by: Mapping[str, str] = field(default_factory=dict)
    offered: tuple[Facet, ...] = ()
    exchanges: Mapping[str, tuple[ExchangeSide, ...]] = field(default_factory=dict)
    reasons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    recent: tuple[RecentSession, ...] = ()
    problem: SmartForkError | None = None

    @property
    def status(self) -> int:
        """Return the HTTP status of the page: 400 if the question was invalid."""
        return 200 if self.problem is None else 400


def searched(asked: Mapping[str, str], also: Sequence[str], library: Opening) -> SearchPage:
    """Answer the question in the query `asked`, with the phrasings `also`. Without one, list the latest sessions.

    An error is returned as the page's `problem`.
    """
    intent, project, agent = (asked.get(name, "").strip() for name in ("q", "project", "agent"))
    code = {name: value for name in ("line", "commit", "changes") if (value := asked.get(name, "").strip())}
    search = SearchPage(
        q=intent, also=also, project=project, agent=agent, limit=MORE if asked.get("n") else RESULTS, code=code
    )
    try:
        if intent or code:
            return _answered(search, chosen(asked), library)
        recent = list_recent(agent or "all", project or None, RECENT, everywhere=not project)
        return replace(search, recent=recent.sessions)
    except SmartForkError as error:
        return replace(search, problem=error)


def lines_in(fields: Iterable[str]) -> list[str]:
    """Return the lines of a form field, or of a repeated field of an address, without empty ones."""
    return [line.strip() for text in fields for line in text.splitlines() if line.strip()]


def _answered(search: SearchPage, by: Mapping[str, str], library: Opening) -> SearchPage:
    """Answer the page's question with the hits (found sessions) that pass the filters in `by`.

    With filters, the search is asked for more hits, because only some of them pass.
    """
    if by:
        search = replace(search, limit=MORE, by=by)
    answer = _search(search, library)
    if not isinstance(answer, Found):
        return replace(search, answer=answer)
    hits = narrowed(answer.results, by)
    answer = replace(answer, results=hits, count=len(hits)) if by else answer
    return replace(
        search, answer=answer, fits=fits(answer) or bool(search.code and hits), new=_new(search),
        offered=facets(hits, by), exchanges=exchanges_of_hits(hits),
        reasons={hit.session_id: tuple(reasons(hit)) for hit in hits},
    )  # fmt: skip


def _new(search: SearchPage) -> str:
    """Return the shell command that starts a new session with the page's question as its prompt."""
    where = ("--project", search.project) if search.project else ()
    return shlex.join(("smart-fork", "new", *where, *(("--",) if search.q.startswith("-") else ()), search.q))


def _search(search: SearchPage, library: Opening) -> Answer:
    if search.code and not search.project and len(known := projects()) == 1:
        search = replace(search, project=known[0])
    question = FindRequest(
        search.q, agent_type=search.agent or "all", limit=search.limit, also=search.also, explain=True,
        commit=search.code.get("commit"), changes=bool(search.code.get("changes")),
    ).about(search.code.get("line", ""))  # fmt: skip
    path, there = search.project or None, team_search() if search.project else None
    with library(path, everywhere=path is None, elsewhere=there) as opened_library:
        return opened_library.find(question)


def projects() -> list[str]:
    """Return the directories of the projects with indexed sessions; none if the index cannot be used."""
    with known_index() as store:
        return store.projects() if store else []
    return []


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session as one line of a list. `tokens` and `outcome` are unknown until it is indexed."""

    agent_type: AgentName
    session_id: str
    title: str
    project_path: str
    git_branch: str
    last_activity: str
    tokens: int = 0
    outcome: str = "unknown"
    noted: SessionNotes | None = None
    began_in: str = ""


def home(search: SearchPage) -> Shown:
    """Return the template values of the first screen: the latest sessions, and a chart of sessions by week.

    If there are no sessions, `steps` says how far a new user's setup is.
    """
    days = by_day(session_lines(search.recent))
    return {"days": days, "steps": None if days else _steps(), "activity": _activity(search) if days else {}}


def _activity(search: SearchPage) -> Activity:
    """Return the counts of sessions by agent and week, of the page's project and agent if it has them."""
    within = project_of(Path(search.project)) if search.project else None
    try:
        with opened() as store:
            scope = store.scope(within, AGENTS.selected(search.agent or "all"), automated=False)
            return activity(store.holdings(scope), datetime.now(UTC).date())
    except IndexUnavailable:  # the search says so
        return {}


def activity(held: Iterable[Holding], today: date) -> Activity:
    """Count the sessions in `held` by agent, week and outcome for a chart, the busiest agent first."""
    ages = {(today - timedelta(days)).isoformat(): days // 7 for days in range(7 * WEEKS)}
    found: defaultdict[AgentName, list[Counter[str]]] = defaultdict(lambda: [Counter() for _ in range(WEEKS)])
    for one in held:
        if one.day in ages:
            found[one.agent][ages[one.day]][_KINDS.get(one.outcome, "open")] += one.sessions
    return dict(sorted(found.items(), key=lambda one: -sum(map(Counter.total, one[1]))))


def session_lines(recent: Iterable[RecentSession]) -> tuple[SessionLine, ...]:
    """Return a list line for each of the `recent` sessions, with tokens and outcome from the index."""
    listed = tuple(recent)
    with known_index() as store:  # the search says why there is none
        if store:
            return tuple(_session_line(one, store.session(one.agent_type, one.session_id)) for one in listed)
    return tuple(_session_line(one, None) for one in listed)


def by_day(sessions: Sequence[SessionLine]) -> tuple[tuple[str, tuple[SessionLine, ...]], ...]:
    """Group sessions, ordered by last use, under headings such as "Today". Pinned sessions come first."""
    pinned = [one for one in sessions if one.noted and one.noted.pinned]
    periods = groupby((one for one in sessions if one not in pinned), key=lambda one: period(one.last_activity))
    first = (("Pinned", tuple(pinned)),) if pinned else ()
    return (*first, *((name, tuple(same)) for name, same in periods))


def _session_line(one: RecentSession, row: SessionRow | None) -> SessionLine:
    named, known = one.headline or one.title, (one.project_path, one.git_branch, one.last_modified)
    line = SessionLine(one.agent_type, one.session_id, named, *known, noted=one.noted, began_in=one.began_in)
    return replace(line, tokens=row.tokens, outcome=row.outcome.value) if row else line


def _steps() -> Shown:
    """Return a beginner's progress: the agents found, the number of their logs, and how many are indexed."""
    logs = {agent.name: sum(1 for _ in agent.discover()) for agent in READERS}
    present = tuple(AGENTS.title_of(agent.name) for agent in READERS if logs[agent.name] or agent.home().is_dir())
    here = {"agents": present, "logs": sum(logs.values()), "sessions": 0, "read": 0}
    try:
        with opened() as store:
            counts = store.counts()
            return {**here, "sessions": counts.sessions, "read": counts.files}
    except IndexUnavailable:
        return here


#: The number of listed sessions, shared sessions and families.
MAX_LISTED, MAX_SHARED, MAX_FAMILIES = 100, 50, 60
#: The number of members that a family's line names.
MAX_MEMBERS = 5


def listed(project: str, agent: str, *, automated: bool = False, tag: str = "", archived: bool = False) -> Shown:
    """Return the template values for the list of the latest sessions, and of those that the project's team shares.

    Sessions begun by programs are listed if `automated` is true, else counted as `hidden`. `gone` are the prompts of
    sessions whose logs were deleted.

    Raises:
        Usage: the project or the agent does not exist.
    """
    found = list_recent(
        agent or "all", project or None, MAX_LISTED, everywhere=not project, automated=automated, tag=tag,
        archived=archived,
    )  # fmt: skip
    page = {
        "project": project,
        "agent": agent,
        "days": by_day(session_lines(found.sessions)),
        "hidden": found.hidden_automated or 0,
        "automated": automated,
        "full": len(found.sessions) == MAX_LISTED,
        "gone": found.gone_prompts,
        "tag": tag,
        "archived": archived,
    }
    if not (project and is_known()):
        return {**page, "team": False}
    there = team_room().listed(Path(project), [agent] if agent else READERS.names, MAX_SHARED)
    return {**page, "team": True, "shared": there.sessions, "team_error": there.error}


def families(_place: Mapping[str, str], _asked: Mapping[str, str]) -> Shown:
    """Return the template values for the list of families (sessions with forks), the last used first."""
    with opened() as store:
        found = [store.family(root) for root in store.families(MAX_FAMILIES)]
    lines = [_family_line([row for row in rows if permits(row)]) for rows in found]
    return {"families": [one for one in lines if one is not None], "full": len(found) == MAX_FAMILIES}


def _family_line(rows: list[SessionRow]) -> Shown | None:
    """Return the list line of a family (a session and its forks); `None` for a session without forks.

    It names the member that was used last, and up to `MAX_MEMBERS` others.
    """
    if len(rows) < 2:
        return None
    latest, *others = sorted(rows, key=lambda row: row.last_activity, reverse=True)
    return {"latest": _of(latest), "count": len(rows), "others": tuple(map(_of, others[:MAX_MEMBERS]))}


def _of(row: SessionRow) -> SessionLine:
    known = (
        row.agent,
        row.session_id,
        title(row.headline or row.title),
        WorkDirectory(row.cwd).now,
        row.git_branch,
        row.last_activity,
    )
    return SessionLine(*known, row.tokens, row.outcome.value)


@dataclass(frozen=True, slots=True)
class SearchViews:
    """The routes of the search and the lists. A cookie keeps each browser's project."""

    endpoints: Endpoints
    library: Opening
    project_cookie: ProjectCookie

    def routes(self) -> list[Route]:
        return [
            Route("/", self._search),
            Route("/results", self._results),
            Route("/peek/{agent}/{session_id}", self.endpoints.page("peek.html", conversation)),
            Route("/sessions", self._sessions),
            Route("/families", self.endpoints.page("families.html", families)),
        ]

    async def _search(self, request: Request) -> Response:
        lines = request.query_params.getlist("also")
        also = lines_in(lines)
        if lines != also and len(also) <= MAX_PHRASINGS:  # from the form: what is kept has a phrasing in each `also`
            query = [(name, value) for name, value in request.query_params.multi_items() if name != "also"]
            return RedirectResponse(f"/?{urlencode([*query, *(('also', line) for line in also)])}", 303, HEADERS)
        scope = self.project_cookie.of(request)
        search, more = await in_thread(partial(self._found, request, scope))
        answer = await self.endpoints.respond(
            "search.html", lambda: {"projects": projects()}, search, *more, status=search.status
        )
        self.project_cookie.remember(answer, request, scope)
        return answer

    async def _results(self, request: Request) -> Response:
        scope = self.project_cookie.of(request)
        search, more = await in_thread(partial(self._found, request, scope))
        answer = rendered("results.html", search, *more, {"new_form": self.endpoints.forms.new}, status=search.status)
        self.project_cookie.remember(answer, request, scope)
        return answer

    async def _sessions(self, request: Request) -> Response:
        scope, agent = self.project_cookie.of(request), request.query_params.get("agent", "")
        automated = request.query_params.get("automated") == "yes"
        tag, archived = request.query_params.get("tag", ""), request.query_params.get("archived") == "yes"
        work = partial(listed, scope.project, agent, automated=automated, tag=tag, archived=archived)
        return await self.endpoints.respond("sessions.html", work, {"scope": scope})

    def _found(self, request: Request, scope: ProjectChoice) -> tuple[SearchPage, tuple[Shown, Shown]]:
        """Return a request's search, and the values of the first screen, which are empty if there is a question."""
        also = lines_in(request.query_params.getlist("also"))
        found = searched({**request.query_params, "project": scope.project}, also, self.library)
        if found.q or found.code or found.problem:
            return found, ({"days": (), "steps": None, "activity": {}}, {"board": BoardView(), "scope": scope})
        return found, (home(found), {"board": self.endpoints.board.view(), "scope": scope})
