"""The index to look at: what it holds, how fresh it is, what failed, was checked, forgotten and cut; its addresses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby

from starlette.routing import Route

from indexer import kept_logs
from indexer.forgotten import forgotten
from indexer.shapes import dataclass
from indexer.store.base import Holding
from smart_fork.agents import READERS
from smart_fork.cuts import snapshots
from smart_fork.cuts.answer import Excised
from smart_fork.doctor import Check, healthy, run_checks, run_each
from smart_fork.errors import IndexUnavailable, SmartForkError
from smart_fork.excise.undo import Cut, last_cut
from smart_fork.page.desk import Asked, Desk
from smart_fork.page.removal_forms import about_to_cut, about_to_forget, excised, removed
from smart_fork.page.renderer import PageValues, Shown
from smart_fork.removal.sessions import Removal
from smart_fork.retrieval.elsewhere import is_known
from smart_fork.retrieval.index_access import opened
from smart_fork.retrieval.index_answers import IndexStatus
from smart_fork.retrieval.status import index_status

#: Cuts and forgotten sessions that are listed, the latest.
MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class ProjectHoldings:
    """What the index holds of one project, by agent."""

    root: str
    last_activity: str
    holdings: tuple[Holding, ...]

    @property
    def sessions(self) -> int:
        """In all."""
        return sum(one.sessions for one in self.holdings)


@dataclass(frozen=True, slots=True)
class StandingCut:
    """A cut that can be undone, and of which session."""

    session_id: str
    cut: Cut


@dataclass(frozen=True, slots=True)
class ForgottenSession:
    """A session that is forgotten, and since when."""

    agent_type: str
    session_id: str
    at: str


@dataclass(frozen=True, slots=True)
class HoldingsPage(PageValues):
    """The index; `trouble` where it cannot be used. Of the agents in `kept` copies of the logs are kept.

    `checked` is what the check has found that led here; `None` where none did.
    """

    status: IndexStatus | None
    trouble: SmartForkError | None
    projects: tuple[ProjectHoldings, ...]
    cuts: tuple[StandingCut, ...]
    gone: tuple[ForgottenSession, ...]
    kept: tuple[str, ...]
    checked: CheckedParts | None


@dataclass(frozen=True, slots=True)
class CheckedParts:
    """What a check of all parts has found."""

    checks: tuple[Check, ...]
    healthy: bool


def holdings(checked: CheckedParts | None = None) -> HoldingsPage:
    """The index of now, and what was checked."""
    cuts, gone = _cuts(), _gone()
    try:
        status = index_status()
        with opened() as store:
            held = store.holdings()
    except IndexUnavailable as error:
        return HoldingsPage(None, error, (), cuts, gone, _kept(), checked)
    return HoldingsPage(status, None, by_project(held), cuts, gone, _kept(), checked)


def by_project(held: Sequence[Holding]) -> tuple[ProjectHoldings, ...]:
    """What is held by project, the one used last first."""
    grouped = groupby(sorted(held, key=lambda one: one.root), key=lambda one: one.root)
    found = []
    for root, same in grouped:
        of_it = tuple(sorted(same, key=lambda one: -one.sessions))
        found.append(ProjectHoldings(root, max(one.last_activity for one in of_it), of_it))
    return tuple(sorted(found, key=lambda one: one.last_activity, reverse=True))


def checked(_: Mapping[str, str]) -> CheckedParts:
    """Check every part by using it, as ``doctor`` does; the set-up of the agents is that one's to check."""
    checks = run_checks()
    if is_known():
        from smart_fork.team import failed_jobs

        checks += run_each({"team": failed_jobs.checks})
    return CheckedParts(tuple(checks), healthy(checks))


def _cuts() -> tuple[StandingCut, ...]:
    sessions = dict.fromkeys(one.session_id for one in reversed(snapshots.logged()) if one.session_id)
    found = ((session, last_cut(session)) for session in sessions)
    standing: dict[str, StandingCut] = {}
    for session, cut in found:
        if cut is not None:
            standing.setdefault(cut.snapshot, StandingCut(session, cut))
    return tuple(sorted(standing.values(), key=lambda one: one.cut.made, reverse=True))[:MOST_LISTED]


def _kept() -> tuple[str, ...]:
    return tuple(agent.name for agent in READERS if kept_logs.wanted(agent))


def _gone() -> tuple[ForgottenSession, ...]:
    try:
        listed = forgotten()
    except OSError:
        return ()
    found = (ForgottenSession(agent, session_id, str(at)) for (agent, session_id), at in listed.items())
    return tuple(sorted(found, key=lambda one: one.at, reverse=True))[:MOST_LISTED]


def index_routes(desk: Desk) -> list[Route]:
    """All addresses."""

    def index(_: Asked, asked: Asked) -> Shown:
        return holdings(desk.kept(asked.get("checked"), CheckedParts))

    def removal(place: Asked, _: Asked) -> Shown:
        done = desk.forms.answer(place["form"])
        if isinstance(done, Removal):
            return {"removal": done}
        return {"removal": None, "excised": desk.answer(place["form"], Excised)}

    return [
        Route("/index", desk.page("index.html", index)),
        Route("/doctor", desk.does(checked, "/index?checked={form}#checks"), methods=["POST"]),
        Route("/forget", desk.page("forget.html", about_to_forget)),
        Route("/forget", desk.does(removed, "/removed/{form}"), methods=["POST"]),
        Route("/excise", desk.page("excise.html", about_to_cut)),
        Route("/excise", desk.does(excised, "/removed/{form}"), methods=["POST"]),
        Route("/removed/{form}", desk.page("removed.html", removal)),
    ]
