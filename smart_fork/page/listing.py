"""Sessions and families to leaf through: one's own by day, the team's, and those that were forked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from indexer.shapes import dataclass
from indexer.store.base import SessionRow
from smart_fork.agents import READERS
from smart_fork.page.home import SessionDay, SessionLine, by_day, lines
from smart_fork.page.renderer import PageValues
from smart_fork.retrieval.answer import GonePrompt, SharedSession
from smart_fork.retrieval.elsewhere import is_known
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.results import title
from smart_fork.retrieval.session_list import list_recent
from smart_fork.whereabouts import permits, where_now

#: Sessions of one's own, the team's and families that are listed.
MOST, MOST_SHARED, MOST_FAMILIES = 100, 50, 60
#: Members of a family that are named in its line.
MOST_MEMBERS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class ListPage(PageValues):
    """The sessions of a project, or of all; beside them the team's, where a server is known.

    `hidden` are not listed, since no person began them; with `automated` they are. `gone` are prompts of
    deleted sessions.
    """

    project: str
    agent: str
    days: tuple[SessionDay, ...]
    hidden: int
    automated: bool
    full: bool
    shared: tuple[SharedSession, ...] = ()
    team: bool = False
    team_error: str = ""
    gone: tuple[GonePrompt, ...] = ()
    tag: str = ""
    archived: bool = False


@dataclass(frozen=True, slots=True)
class FamilyLine:
    """A family in a line: its latest member, how many it has, and some of the others."""

    latest: SessionLine
    count: int
    others: tuple[SessionLine, ...]


@dataclass(frozen=True, slots=True)
class FamiliesPage(PageValues):
    """The families, the one used last first."""

    families: tuple[FamilyLine, ...]
    full: bool


def listed(project: str, agent: str, *, automated: bool = False, tag: str = "", archived: bool = False) -> ListPage:
    """The latest sessions, `automated` ones too where that is said, and those that the team shares of the same project.

    Raises:
        Usage: there is no such project or agent.
    """
    found = list_recent(
        agent or "all", project or None, MOST, everywhere=not project, automated=automated, tag=tag, archived=archived
    )
    page = ListPage(
        project=project,
        agent=agent,
        days=by_day(lines(found.sessions)),
        hidden=found.hidden,
        automated=automated,
        full=len(found.sessions) == MOST,
        gone=found.gone_prompts,
        tag=tag,
        archived=archived,
    )
    if not (project and is_known()):
        return page
    from dataclasses import replace

    from smart_fork.team.conversation import listed as listed_there

    there = listed_there(Path(project), [agent] if agent else READERS.names, MOST_SHARED)
    return replace(page, team=True, shared=there.sessions, team_error=there.error)


def families(_place: Mapping[str, str], _asked: Mapping[str, str]) -> FamiliesPage:
    """The families that the index knows.

    Raises:
        IndexUnavailable: it cannot be used.
    """
    with opened() as store:
        found = [store.family(root) for root in store.families(MOST_FAMILIES)]
    lines_ = [_line([row for row in rows if permits(row)]) for rows in found]
    return FamiliesPage(tuple(one for one in lines_ if one is not None), len(found) == MOST_FAMILIES)


def _line(rows: list[SessionRow]) -> FamilyLine | None:
    if len(rows) < 2:
        return None
    latest, *others = sorted(rows, key=lambda row: row.last_activity, reverse=True)
    return FamilyLine(_of(latest), len(rows), tuple(_of(row) for row in others[:MOST_MEMBERS]))


def _of(row: SessionRow) -> SessionLine:
    known = (row.agent, row.session_id, title(row.title), where_now(row.cwd), row.git_branch, row.last_activity)
    return SessionLine(*known, row.tokens, row.outcome.value)
