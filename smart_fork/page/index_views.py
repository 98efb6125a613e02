"""The index to look at: what it holds, how fresh it is, what failed, was checked, forgotten and cut; its addresses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import groupby

from starlette.routing import Route

from indexer import kept_logs
from indexer.changes import forgotten
from indexer.lazy import dataclass
from indexer.masking import Masked
from indexer.store.base import Holding
from indexer.transcripts.lines import bounded
from indexer.transcripts.model import AgentName
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.references import Reference
from smart_fork.doctor import Checked, run_checks
from smart_fork.errors import ForkRefused, IndexUnavailable, NotFound, SmartForkError, Usage
from smart_fork.excise import erasure
from smart_fork.excise.answer import CutRequest, Excised, RolledBack
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.cutting import LastCut, cut, last_cut, rollback
from smart_fork.excise.erasure import Removal
from smart_fork.finding import sessions
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import index_status
from smart_fork.finding.results import title
from smart_fork.page.desk import Asked, Desk
from smart_fork.page.renderer import Shown

#: What an address asks to be cut, and what the form repeats.
_SECRETS = "secrets"


@bounded()
def about_to_forget(_: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """The session that somebody is about to have forgotten: whose, which, and what it is `about`.

    Raises:
        SmartForkError: there is none.
    """
    located = sessions.locate(asked.get("session", ""))
    try:
        about = title(sessions.look_into(located).title)
    except NotFound:
        about = title("")
    return {"agent_type": located.agent, "session_id": located.session_id, "about": about}


def removed(form: Mapping[str, str]) -> Removal:
    """Forget a session for good, or no longer.

    Raises:
        SmartForkError: it was not done.
    """
    session = form.get("session", "")
    if not session:
        raise Usage("Which session?", "Give its id, or at least 8 characters of it.")
    return erasure.undo_forgetting(session) if form.get("do") == "undo" else erasure.forget(session)


def about_to_cut(_: Mapping[str, str], asked: Mapping[str, str]) -> Shown:
    """Show the turns that a cut would remove. Nothing is changed. `secrets` masks instead of cutting.

    `shown` is repeated by the form that does it. `said` is by the number of a turn how it begins, or what was done in
    it.

    Raises:
        SmartForkError: it would be refused.
    """
    would = cut(_request(asked, dry_run=True))
    shown = {"turns": asked.get("turns", ""), "shown": _digest(would.removed, would.masked), "said": _said(would)}
    return {"excised": would, "secrets": asked.get(_SECRETS) == "yes", **shown}


def _said(would: Excised) -> dict[int, Masked]:
    try:
        turns = sessions.look_into(sessions.locate(str(Reference(would.tool, would.session_id)))).turns
    except SmartForkError:
        return {}
    going = {number: turns[number] for number in would.numbers if number is not None and number < len(turns)}
    texts = {number: turn.text or "; ".join(call.action for call in turn.tool_calls) for number, turn in going.items()}
    return {number: title(text) for number, text in texts.items() if text}


def excised(form: Mapping[str, str]) -> Excised:
    """Cut turns out of a session, or mask its secrets, in all files that hold them.

    By their numbers others may be meant by now, of which some were cut out since: it is what the form was shown with.

    Raises:
        SmartForkError: nothing was cut.
    """

    def as_shown(planned: CutPlan) -> bool:
        if _digest([turn.id for turn in planned.removed], planned.masked) != form.get("shown", ""):
            raise ForkRefused(
                "The session has changed since this was shown",
                "Open `Index` and press `Show what would go` again.",
            )
        return True

    return cut(_request(form, dry_run=False), agree=as_shown)


def _digest(removed: Iterable[str], masked: Mapping[str, int]) -> str:
    """Return a fingerprint of a cut."""
    return blake2b(repr((*removed, *masked.items())).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _request(asked: Mapping[str, str], *, dry_run: bool) -> CutRequest:
    session, turns = asked.get("session", "").strip(), asked.get("turns", "").strip()
    if not session:
        raise Usage("Which session?", "Give its id, or at least 8 characters of it.")
    secrets = asked.get(_SECRETS) == "yes"
    if not (turns or secrets):
        raise Usage("Which turns?", "Use the numbers of `smart-fork excise list`: 5-7,9. Or mask secrets.")
    meant = sessions.locate(session).reference  # never a path
    return CutRequest(meant, turns=turns, secrets=secrets, dry_run=dry_run, force=asked.get("force") == "yes")


def undone(form: Mapping[str, str]) -> RolledBack:
    """Undo the last cut of a session, in all files that it has changed.

    Raises:
        SmartForkError: nothing was undone.
    """
    cut = last_cut(form.get("session", ""))
    if cut is None or cut.snapshot != form.get("snapshot"):
        raise NotFound("This cut was already undone, or a later one was made", "Open the session again.")
    return rollback(cut.snapshot)


#: Cuts and forgotten sessions that are listed, the latest.
MOST_LISTED = 20


@dataclass(frozen=True, slots=True)
class ProjectHoldings:
    """A project's sessions in the index by agent, most first."""

    root: str
    last_activity: str
    agents: Sequence[tuple[AgentName, int]]


def holdings(checked: Checked | None = None) -> Shown:
    """The index of now; `trouble` where it cannot be used. Of the agents in `kept` copies of the logs are kept.

    `checked` is what the check has found that led here; `None` where none did.
    """
    beside = {"cuts": _cuts(), "gone": _gone(), "kept": _kept(), "checked": checked}
    try:
        status = index_status()
        with opened() as store:
            held = store.holdings()
    except IndexUnavailable as error:
        return {"status": None, "trouble": error, "projects": (), **beside}
    return {"status": status, "trouble": None, "projects": by_project(held), **beside}


def by_project(held: Sequence[Holding]) -> tuple[ProjectHoldings, ...]:
    """Group the index's content by project, the one used last first."""
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
    """Check every part by using it, as ``doctor`` does; the set-up of the agents is that one's to check."""
    return Checked.of(run_checks())


def _cuts() -> tuple[tuple[str, LastCut], ...]:
    """The cuts that can be undone, each after the id of its session."""
    sessions = dict.fromkeys(one.session_id for one in reversed(snapshots.noted_changes()) if one.session_id)
    found = ((session, last_cut(session)) for session in sessions)
    standing: dict[str, tuple[str, LastCut]] = {}
    for session, last in found:
        if last is not None:
            standing.setdefault(last.snapshot, (session, last))
    return tuple(sorted(standing.values(), key=lambda one: one[1].made, reverse=True))[:MOST_LISTED]


def _kept() -> tuple[str, ...]:
    return tuple(agent.name for agent in READERS if kept_logs.wanted(agent))


def _gone() -> tuple[tuple[str, str, str], ...]:
    """The agent and the id of each session that is forgotten, and since when it is."""
    try:
        listed = forgotten()
    except OSError:
        return ()
    found = ((agent, session_id, str(at)) for (agent, session_id), at in listed.items())
    return tuple(sorted(found, key=lambda one: one[2], reverse=True))[:MOST_LISTED]


def index_routes(desk: Desk) -> list[Route]:
    """All addresses."""

    def index(_: Asked, asked: Asked) -> Shown:
        return holdings(desk.kept(asked.get("checked"), Checked))

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
