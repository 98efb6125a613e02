"""What a question finds, as the page shows it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace

from indexer.shapes import dataclass
from smart_fork.authorship.blame import names_lines
from smart_fork.errors import IndexUnavailable, SmartForkError
from smart_fork.page.evidence import SpokenPart, spoken
from smart_fork.page.facets import Facet, chosen, facets, narrowed
from smart_fork.page.renderer import PageValues
from smart_fork.retrieval.all_agents import fits
from smart_fork.retrieval.answer import Answer, Found, RecentSession
from smart_fork.retrieval.phrasings import MAX_CHARACTERS, MOST
from smart_fork.retrieval.upkeep import Engine
from smart_fork.team.beside import beside

#: Results at first, and where more are asked for; and how many of the latest sessions.
RESULTS, MORE, RECENT = 10, 50, 30
#: From which chance on a session is shown with what it says.
WORTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(PageValues):
    """A question, and what it found. `also` are the question in other words; `recent` is without a question.

    `code` are the fields that ask who wrote code: a line or file, a commit, the uncommitted changes.
    `by` is what it is narrowed by, `offered` what it can be; `exchanges` are by session what was asked and answered.
    `fits` is false where every result is unlikely. `new` is the command that starts a new session instead.
    """

    q: str
    also: Sequence[str]
    also_most: int = MOST
    also_characters: int = MAX_CHARACTERS
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
    exchanges: Mapping[str, tuple[SpokenPart, ...]] = field(default_factory=dict)
    recent: tuple[RecentSession, ...] = ()
    problem: SmartForkError | None = None

    @property
    def status(self) -> int:
        """As HTTP has it."""
        return 200 if self.problem is None else 400


def found(asked: Mapping[str, str], also: Sequence[str], engine: Engine) -> SearchPage:
    """What a search finds, without one the latest sessions; what is wrong with the question is in `problem`.

    `also` are lines of a field, each the question in other words.
    """
    intent, project, agent = (asked.get(name, "").strip() for name in ("q", "project", "agent"))
    code = {name: value for name in ("line", "commit", "changes") if (value := asked.get(name, "").strip())}
    search = SearchPage(
        q=intent, also=also, project=project, agent=agent, limit=MORE if asked.get("n") else RESULTS, code=code
    )
    try:
        if intent or code:
            return _answered(search, chosen(asked), engine)
        return replace(search, recent=_recent(project, agent))
    except SmartForkError as error:
        return replace(search, problem=error)


def lines(fields: Iterable[str]) -> list[str]:
    """The lines of a field that is given once, as a form sends it, or once for each line, as our addresses have it."""
    return [line.strip() for text in fields for line in text.splitlines() if line.strip()]


def _answered(search: SearchPage, by: Mapping[str, str], engine: Engine) -> SearchPage:
    """What the question finds, narrowed down, with the exchanges that answer. What is narrowed is asked for in full."""
    if by:
        search = replace(search, limit=MORE, by=by)
    answer = _search(search, engine)
    if not isinstance(answer, Found):
        return replace(search, answer=answer)
    hits = narrowed(answer.results, by)
    answer = replace(answer, results=hits, count=len(hits)) if by else answer
    return replace(
        search,
        answer=answer,
        fits=fits(answer) or bool(search.code and hits),
        new=_new(search),
        offered=facets(hits, by),
        exchanges=spoken(hits),
    )


def _new(search: SearchPage) -> str:
    """The command that starts a new session with the question as its prompt."""
    where = ("--project", search.project) if search.project else ()
    return shlex.join(("smart-fork", "new", *where, *(("--",) if search.q.startswith("-") else ()), search.q))


def _search(search: SearchPage, engine: Engine) -> Answer:
    from smart_fork.retrieval.finder import find
    from smart_fork.retrieval.request import FindRequest

    if search.code and not search.project and len(known := projects()) == 1:
        search = replace(search, project=known[0])
    if search.project:
        engine = replace(engine, elsewhere=beside())
    line = search.code.get("line", "")
    question = FindRequest(
        search.q,
        agent_type=search.agent or "all",
        limit=search.limit,
        project_path=search.project or None,
        all_projects=not search.project,
        also=search.also,
        explain=True,
        lines=(line,) if names_lines(line) else (),
        files=(line,) if line and not names_lines(line) else (),
        commit=search.code.get("commit"),
        changes=bool(search.code.get("changes")),
    )
    return find(question, engine)


def _recent(project: str, agent: str) -> tuple[RecentSession, ...]:
    from smart_fork.retrieval.session_list import list_recent

    return list_recent(agent or "all", project or None, RECENT, everywhere=not project).sessions


def projects() -> list[str]:
    """The projects that sessions are known of; none where the index cannot be used, of which the search tells."""
    from smart_fork.retrieval.index_access import opened

    try:
        with opened() as store:
            return store.projects()
    except IndexUnavailable:
        return []
