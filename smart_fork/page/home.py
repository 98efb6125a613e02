"""The first screen: the sessions of a project by day, and where there are none, the first steps."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from typing import TYPE_CHECKING

from indexer.shapes import dataclass
from smart_fork.agents import READERS
from smart_fork.agents.facets import title_of
from smart_fork.conversation import Noted
from smart_fork.errors import IndexUnavailable
from smart_fork.page import phrases
from smart_fork.page.renderer import PageValues
from smart_fork.retrieval.answer import RecentSession

if TYPE_CHECKING:
    from indexer.store.base import SessionRow
    from indexer.transcripts.model import AgentName


@dataclass(frozen=True, slots=True)
class SessionLine:
    """A session in a line. What only the index knows is 0, or unknown, before it was read."""

    agent_type: AgentName
    session_id: str
    title: str
    project_path: str
    git_branch: str
    last_activity: str
    tokens: int = 0
    outcome: str = "unknown"
    noted: Noted | None = None


@dataclass(frozen=True, slots=True)
class SessionDay:
    """The sessions of one day, the latest first."""

    name: str
    sessions: tuple[SessionLine, ...]


@dataclass(frozen=True, slots=True)
class FirstSteps:
    """How far somebody is who has just begun: whose logs are here, how many, and how many of them were read."""

    agents: tuple[str, ...]
    logs: int
    sessions: int
    read: int


@dataclass(frozen=True, slots=True)
class HomePage(PageValues):
    """What stands below a question that is not asked yet."""

    days: tuple[SessionDay, ...] = ()
    steps: FirstSteps | None = None


def home(recent: Iterable[RecentSession]) -> HomePage:
    """The first screen of these sessions, the latest first."""
    days = by_day(lines(recent))
    return HomePage(days, None if days else _steps())


def lines(recent: Iterable[RecentSession]) -> tuple[SessionLine, ...]:
    """These sessions with what the index knows of them."""
    found = list(recent)
    rows = _rows((one.agent_type, one.session_id) for one in found)
    return tuple(_line(one, rows.get(one.session_id)) for one in found)


def by_day(sessions: Sequence[SessionLine]) -> tuple[SessionDay, ...]:
    """These sessions, which are in the order of their last use, by day; pinned ones first."""
    pinned = [one for one in sessions if one.noted and one.noted.pinned]
    days = groupby((one for one in sessions if one not in pinned), key=lambda one: phrases.weekday(one.last_activity))
    first = (SessionDay("Pinned", tuple(pinned)),) if pinned else ()
    return (*first, *(SessionDay(day, tuple(same)) for day, same in days))


def _line(one: RecentSession, row: SessionRow | None) -> SessionLine:
    known = one.agent_type, one.session_id, one.title, one.project_path, one.git_branch, one.last_modified
    line = SessionLine(*known, noted=one.noted)
    return replace(line, tokens=row.tokens, outcome=row.outcome.value) if row else line


def _rows(wanted: Iterable[tuple[AgentName, str]]) -> Mapping[str, SessionRow]:
    from smart_fork.retrieval.index_access import opened

    try:
        with opened() as store:
            found = (store.session(agent, session_id) for agent, session_id in wanted)
            return {row.session_id: row for row in found if row is not None}
    except IndexUnavailable:  # the search says so
        return {}


def _steps() -> FirstSteps:
    from smart_fork.retrieval.index_access import opened

    logs = {agent.name: sum(1 for _ in agent.discover()) for agent in READERS}
    present = tuple(title_of(agent.name) for agent in READERS if logs[agent.name] or agent.home().is_dir())
    try:
        with opened() as store:
            counts = store.counts()
            return FirstSteps(present, sum(logs.values()), counts.sessions, counts.files)
    except IndexUnavailable:
        return FirstSteps(present, sum(logs.values()), 0, 0)
