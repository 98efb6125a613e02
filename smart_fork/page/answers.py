"""What the page's addresses are answered with: searches, sessions, families, forks. Values for its templates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.facets import title_of
from smart_fork.agents.references import reference
from smart_fork.agents.selection import handed_to
from smart_fork.errors import IndexUnavailable, NotFound, SmartForkError, Usage
from smart_fork.page.evidence import SpokenPart, spoken
from smart_fork.page.facets import Facet, chosen, facets, narrowed
from smart_fork.page.phrases import session_link
from smart_fork.page.renderer import PageValues
from smart_fork.page.scope import folder
from smart_fork.page.since import Since, check_still, looked_at, mark_in, mark_of, since
from smart_fork.retrieval.answer import Answer, Found, RecentSession
from smart_fork.retrieval.cache import may_be_cached
from smart_fork.retrieval.elsewhere import is_known
from smart_fork.retrieval.phrasings import MAX_CHARACTERS, MOST
from smart_fork.retrieval.upkeep import Engine

#: What a form asks of a fork.
_SAID = ("prompt", "at", "worktree", "place", "budget", "brief", "agent")
ASKED = ("session", "project", *_SAID, "form", "seen")

if TYPE_CHECKING:
    from indexer.transcripts.model import Session
    from smart_fork.budget.selection import Selection
    from smart_fork.cuts.answer import RolledBack
    from smart_fork.excise.last_cut import Cut
    from smart_fork.families.told import Family, Relative
    from smart_fork.forking.started import Forked
    from smart_fork.page.conversation import ConversationPage, LeftForks
    from smart_fork.page.differences import OwnWork
    from smart_fork.page.parting import Parting
    from smart_fork.page.timeline import Timeline
    from smart_fork.sessions import Located

#: Results at first, and where more are asked for; and how many of the latest sessions.
RESULTS, MORE, RECENT = 10, 50, 30
#: From which chance on a session is shown with what it says.
WORTH = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPage(PageValues):
    """A question, and what it found. `also` are the question in other words; `recent` is without a question.

    `by` is what it is narrowed by, `offered` what it can be; `exchanges` are by session what was asked and answered.
    """

    q: str
    also: Sequence[str]
    also_most: int = MOST
    also_characters: int = MAX_CHARACTERS
    project: str
    agent: str
    limit: int
    most: int = MORE
    worth: float = WORTH
    answer: Answer | None = None
    by: Mapping[str, str] = field(default_factory=dict)
    offered: tuple[Facet, ...] = ()
    exchanges: Mapping[str, tuple[SpokenPart, ...]] = field(default_factory=dict)
    recent: tuple[RecentSession, ...] = ()
    problem: SmartForkError | None = None


@dataclass(frozen=True, slots=True)
class AroundSearch(PageValues):
    """What stands around results: the projects to choose from."""

    projects: Sequence[str]


@dataclass(frozen=True, slots=True)
class AddressedSession:
    """A session as links name it."""

    agent_type: str
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionPage(PageValues):
    """A session to read; where its log and copies are gone, its `export` alone. `fork` is where a fork would begin.

    One that the team shares is of another `kind`, of an `owner`, and read `within` a project. Below `way` are the
    addresses of its sub-agents, below `outputs` those of what came back from steps, where these can be read. `mark`
    tells the state that is shown, and `since` what has become of the one that was shown before.
    """

    one: AddressedSession
    title: str
    session: Session | None = None
    reading: ConversationPage | None = None
    export: str = ""
    q: str = ""
    words: Sequence[str] = ()
    left: LeftForks | None = None
    at: int | None = None
    fork: int | None = None
    tokens: int = 0
    cached: bool = False
    log_gone: bool = False
    cut: Cut | None = None
    command: str = ""
    kind: str = "session"
    owner: str = ""
    within: str = ""
    way: str = ""
    outputs: str = ""
    mark: str = ""
    since: Since | None = None


@dataclass(frozen=True, slots=True)
class SessionForms(PageValues):
    """The names of the forms beside a session: one to fork it, one to undo a cut; and what it can be handed over to."""

    form: str
    undo: str
    agents: Mapping[str, str] = field(default_factory=lambda: {name: title_of(name) for name in handed_to()})


@dataclass(frozen=True, slots=True, kw_only=True)
class FamilyPage(PageValues):
    """A family, and its lines on a time line; what each of it has for itself, and the `best` one to fork, if any."""

    session_id: str
    count: int
    return_command: str | None
    sessions: Sequence[Relative]
    line: Timeline
    titles: Mapping[str, str]
    own: Mapping[str, OwnWork]
    best: str
    asked_for: AddressedSession
    first: str
    second: str
    parted: Parting | None = None
    parted_problem: str = ""


@dataclass(frozen=True, slots=True)
class ForkPage(PageValues):
    """A fork that was started, and whether it still runs."""

    fork: Forked
    state: str


@dataclass(frozen=True, slots=True)
class PreviewPage(PageValues):
    """What a fork would load, and have within its budget, and what it is asked for.

    `moved` are exchanges that a person has moved; `caches` what is said of each way's cache.
    """

    fork: Forked
    selection: Selection | None
    caches: Mapping[str, str]
    given: Mapping[str, str]
    moved: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class UndoPage(PageValues):
    """A cut that was undone."""

    undone: RolledBack


def found(asked: Mapping[str, str], also: Sequence[str], engine: Engine) -> SearchPage:
    """What a search finds, without one the latest sessions; what is wrong with the question is in `problem`.

    `also` are lines of a field, each the question in other words.
    """
    intent, project, agent = (asked.get(name, "").strip() for name in ("q", "project", "agent"))
    search = SearchPage(q=intent, also=also, project=project, agent=agent, limit=MORE if asked.get("n") else RESULTS)
    try:
        if intent:
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
    return replace(search, answer=answer, offered=facets(hits, by), exchanges=spoken(hits))


def _search(search: SearchPage, engine: Engine) -> Answer:
    from smart_fork.retrieval.finder import find
    from smart_fork.retrieval.request import FindRequest

    if search.project and is_known():
        from smart_fork.team.find import TeamSearch

        engine = replace(engine, elsewhere=TeamSearch())
    question = FindRequest(
        search.q,
        agent_type=search.agent or "all",
        limit=search.limit,
        project_path=search.project or None,
        all_projects=not search.project,
        also=search.also,
        explain=True,
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


def located(place: Mapping[str, str]) -> Located:
    """The session that an address names.

    Raises:
        SmartForkError: there is none, or it is another agent's.
    """
    from smart_fork import sessions

    if place["agent"] not in AGENTS:
        raise NotFound(f"No such session of {place['agent']}")
    return sessions.locate(reference(place["agent"], place["session_id"]))


def conversation(place: Mapping[str, str], asked: Mapping[str, str]) -> SessionPage:
    """A session to read, from its log, a kept copy, or where both are gone its export.

    Raises:
        SmartForkError: there is none, or no such message in it.
    """
    from smart_fork import sessions
    from smart_fork.excise.last_cut import last_cut
    from smart_fork.forking.others import is_others
    from smart_fork.page.conversation import LeftForks, reading
    from smart_fork.retrieval.query import plain, words_of
    from smart_fork.retrieval.results import fork_command, title

    there = located(place)
    one = AddressedSession(there.agent, there.session_id)
    if not there.readable:
        return SessionPage(one=one, title=there.session_id, export=sessions.exported(there))
    session = sessions.look_into(there, keep_raw=True)
    asks = plain(asked.get("q", ""))
    words = words_of(asks) if asks else ()
    agent, way = AGENTS[session.agent], session_link(one)
    begun = agent.subagents.begun(session) if agent.subagents else {}
    before = since(mark_in(asked["since"]), session) if asked.get("since") else None
    at = before.first if before and before.first is not None else number(asked.get("at"))
    read = reading(session, at, words=words, work=agent.work, begun=begun)
    return SessionPage(
        one=one,
        title=title(session.title) or there.session_id,
        session=session,
        reading=read,
        q=asks,
        words=words,
        left=LeftForks(session, read),
        at=at,
        fork=number(asked.get("fork")),
        tokens=session.token_estimate,
        cached=may_be_cached(session.last_activity),
        log_gone=there.path is None,
        cut=last_cut(session.session_id) if there.path is not None else None,
        command=fork_command(
            session.agent, session.session_id, session.cwd, of_others=is_others(session.session_id, session)
        ),
        way=way,
        outputs=way,
        mark=str(mark_of(session)),
        since=before,
    )


@dataclass(frozen=True, slots=True)
class SincePage(PageValues):
    """Where a session is read on that has become more, or another one."""

    way: str


def become(place: Mapping[str, str], asked: Mapping[str, str]) -> tuple[Since, SincePage]:
    """What has become of the session of an address since the state that is asked about, and where that is shown.

    Raises:
        Usage: no such state can have been shown.
    """
    mark = mark_in(asked.get("mark", ""))
    one = AddressedSession(place["agent"], place["session_id"])
    return looked_at(place, mark), SincePage(f"{session_link(one, since=str(mark))}#more")


def related(place: Mapping[str, str], asked: Mapping[str, str]) -> FamilyPage:
    """The family of a session, its lines on a time line, and how two of it differ that are `asked` for.

    Raises:
        SmartForkError: there is no such session, or it cannot be read.
    """
    from smart_fork.families.lineage import lineage
    from smart_fork.page.differences import best_of, names_of, own_works
    from smart_fork.page.timeline import timeline

    family = lineage(located(place).reference)
    own = own_works(family.sessions)
    titles = names_of(family.sessions, own)
    parent = next((one.parent for one in family.sessions if one.session_id == family.session_id), None)
    first, second = asked.get("a") or parent or family.session_id, asked.get("b") or family.session_id
    parted, problem = _parted(family, first, second) if asked.get("a") and asked.get("b") else (None, "")
    return FamilyPage(
        asked_for=AddressedSession(family.agent_type, family.session_id),
        first=first,
        second=second,
        parted=parted,
        parted_problem=problem,
        session_id=family.session_id,
        count=family.count,
        return_command=family.return_command,
        sessions=family.sessions,
        line=timeline(family.sessions),
        titles=titles,
        own=own,
        best=best_of(family.sessions),
    )


def _parted(family: Family, first: str, second: str) -> tuple[Parting | None, str]:
    """How two sessions of a family differ, or why that is not told."""
    from smart_fork import sessions
    from smart_fork.page.parting import parting

    members = {one.session_id: reference(one.agent_type, one.session_id) for one in family.sessions}
    if first == second or not {first, second} <= members.keys():
        return None, "Choose two different sessions of this family."
    try:
        one, other = (sessions.look_into(sessions.locate(members[name]), keep_raw=True) for name in (first, second))
    except SmartForkError as error:
        return None, error.message
    return parting(one, other, (AGENTS[one.agent].work, AGENTS[other.agent].work)), ""


def forked(form: Mapping[str, str], *, engine: Callable[[], Engine]) -> Forked:
    """Start the fork that a form asks for; within a budget, `engine` says what answers.

    Raises:
        SmartForkError: nothing was started.
    """
    return _fork(form, engine)


def previewed(form: Mapping[str, str], engine: Callable[[], Engine]) -> PreviewPage:
    """What a fork that a form asks for would load, and have within its budget: as a dry run says it.

    Raises:
        SmartForkError: it could not be started either.
    """
    from smart_fork.forking.ways import cache_in_words

    would = _fork(form, engine, dry_run=True)
    caches = {way.option: cache_in_words(way) for way in would.ways}
    given = {name: value for name in ASKED if (value := form.get(name, "").strip())}
    moved = {number: where for where in ("keep", "drop") for number in _moved(form, where)}
    return PreviewPage(would, would.selection, caches, given, moved)


def _fork(form: Mapping[str, str], engine: Callable[[], Engine], *, dry_run: bool = False) -> Forked:
    """A session of the team is written here first, for the project that was asked about."""
    from smart_fork.team.workers import on_this_machine

    session, project = form.get("session", "").strip(), form.get("project", "").strip()
    if not form.get("prompt", "").strip():
        raise Usage("What is the fork to do?", "Go back and say it in a sentence.")
    with on_this_machine([session], directory=folder(project) if project else None, keep=not dry_run) as (here,):
        return _fork_here(here, form, engine, dry_run=dry_run)


def _fork_here(session: str, form: Mapping[str, str], engine: Callable[[], Engine], *, dry_run: bool) -> Forked:
    from smart_fork import sessions
    from smart_fork.agents.options import Options
    from smart_fork.forking.launch import fork_session

    prompt, at, worktree, place, budget, brief, agent = (form.get(name, "").strip() for name in _SAID)
    if seen := form.get("seen", ""):
        check_still(seen, sessions.look_into(sessions.locate(session)))
    options = Options(prompt=prompt, worktree=worktree == "yes" or None, place=place or None, brief=brief == "yes")
    how: dict[str, Any] = {"at": number(at), "as_agent": agent or None}
    if not budget and not dry_run:
        return fork_session(session, options, **how)
    from smart_fork.budget.amount import MATCH, amount
    from smart_fork.budget.wanted import Wanted
    from smart_fork.forking.spending import Spending

    if not budget:
        least = Spending(Wanted(MATCH), prompt, (), engine())
        return fork_session(session, options, preview=least, dry_run=True, **how)
    wanted = Wanted(amount(budget), _moved(form, "keep"), _moved(form, "drop"))
    spending = Spending(wanted, prompt, (), engine())
    return fork_session(session, options, budget=spending, dry_run=dry_run, **how)


def _moved(form: Mapping[str, str], where: str) -> frozenset[int]:
    """The numbers of the exchanges that a person has moved there."""
    moved = (name.removeprefix("exchange-") for name, value in form.items() if value == where)
    return frozenset(int(number) for number in moved if number.isascii() and number.isdigit() and len(number) < 7)


def outcome(fork: Forked) -> ForkPage:
    """A fork that was started, and whether it still runs: the page may be looked at long afterwards."""
    from smart_fork.registry import Registry
    from smart_fork.workers.observation import WorkerWatch

    with Registry() as registry:
        seen = WorkerWatch().look(registry.get(fork.worker_id), registry)
    return ForkPage(fork, seen.state)


def undone(form: Mapping[str, str]) -> RolledBack:
    """Undo the last cut of a session, in all files that it has changed.

    Raises:
        SmartForkError: nothing was undone.
    """
    from smart_fork.excise.last_cut import last_cut
    from smart_fork.excise.undo import rollback

    cut = last_cut(form.get("session", ""))
    if cut is None or cut.snapshot != form.get("snapshot"):
        raise NotFound("That cut has been undone, or is not the last one any more", "Open the session again.")
    return rollback(cut.snapshot)


def number(text: str | None) -> int | None:
    """The number of a message, as an address or a form gives it.

    Raises:
        Usage: it is none.
    """
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise Usage("That is not the number of a message")
    return int(text)
