"""The page of the index: its status, the indexed projects, cuts, forgotten sessions, and the doctor's checks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from indexer import kept_logs
from indexer.lazy_compilation import dataclass
from indexer.log_changes import forgotten
from indexer.transcripts.model import AgentName
from smart_fork.agents.excision import snapshots
from smart_fork.agents.log_readers import READERS
from smart_fork.doctor import Checked, run_checks
from smart_fork.errors import IndexUnavailable
from smart_fork.excise.cutting import LastCut, last_cut
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_status import index_status
from smart_fork.page.renderer import Shown

if TYPE_CHECKING:
    from indexer.store.base import Holding

#: The number of the latest cuts, and of the latest forgotten sessions, that are listed.
MAX_LISTED = 20


@dataclass(frozen=True, slots=True)
class ProjectHoldings:
    """The indexed sessions of one project: their number for each agent, the agent with the most first."""

    root: str
    last_activity: str
    agents: Sequence[tuple[AgentName, int]]


def holdings(checked: Checked | None = None) -> Shown:
    """Return the template values of the index page.

    `trouble` is the error if the index cannot be used. `kept` are the agents with kept copies of logs, `gone` the
    forgotten sessions, and `checked` is the result of the checks, if the user asked for them.
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
    """Group the counts of indexed sessions in `held` by project, the one that was used last first."""
    sessions, latest = defaultdict[str, Counter[AgentName]](Counter), dict[str, str]()
    for one in held:
        sessions[one.root][one.agent] += one.sessions
        latest[one.root] = max(latest.get(one.root, ""), one.last_activity)
    found = (ProjectHoldings(root, latest[root], sessions[root].most_common()) for root in sorted(sessions))
    return tuple(sorted(found, key=lambda one: one.last_activity, reverse=True))


def checked(_: Mapping[str, str]) -> Checked:
    """Run the checks of ``smart-fork doctor``, except those of the agents' settings."""
    return Checked.of(run_checks())


def _cuts() -> tuple[tuple[str, LastCut], ...]:
    """Return the latest cuts that can be undone, newest first, each with a session's id."""
    sessions = dict.fromkeys(one.session_id for one in reversed(snapshots.noted_changes()) if one.session_id)
    # A cut of several sessions is listed once, with the session that was changed last.
    found = {last.snapshot: (session, last) for session in reversed(sessions) if (last := last_cut(session))}
    return tuple(sorted(found.values(), key=lambda one: one[1].made, reverse=True))[:MAX_LISTED]


def _gone() -> tuple[tuple[str, str, str], ...]:
    """Return the latest sessions that were forgotten (removed for good), newest first: agent, id and time of each."""
    try:
        listed = forgotten()
    except OSError:
        return ()
    found = ((agent, session_id, str(at)) for (agent, session_id), at in listed.items())
    return tuple(sorted(found, key=lambda one: one[2], reverse=True))[:MAX_LISTED]
