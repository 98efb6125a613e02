"""Forgetting sessions and cutting turns out of them from the page: first what would go, then it goes, once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from hashlib import blake2b

from indexer.masking import Masked
from indexer.shapes import dataclass
from indexer.transcripts.lines import bounded
from smart_fork import sessions
from smart_fork.agents.references import reference
from smart_fork.cuts.answer import Excised, RolledBack
from smart_fork.errors import ForkRefused, NotFound, SmartForkError, Usage
from smart_fork.excise.plan import Plan
from smart_fork.excise.request import Request
from smart_fork.excise.undo import last_cut, rollback
from smart_fork.page.renderer import PageValues, Shown
from smart_fork.removal import sessions as session_removal
from smart_fork.removal.cuts import cut
from smart_fork.removal.sessions import Removal
from smart_fork.retrieval.results import title

#: What an address asks to be cut, and what the form repeats.
_SECRETS = "secrets"


@dataclass(frozen=True, slots=True)
class ExcisePage(PageValues):
    """What a cut would take out. `secrets` masks instead of cutting. `shown` is repeated by the form that does it.

    `said` is by the number of a turn how it begins, or what was done in it.
    """

    excised: Excised
    turns: str
    secrets: bool
    shown: str
    said: Mapping[int, Masked]


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
    return session_removal.undo(session) if form.get("do") == "undo" else session_removal.forget(session)


def about_to_cut(_: Mapping[str, str], asked: Mapping[str, str]) -> ExcisePage:
    """What a cut would take out. Nothing is changed.

    Raises:
        SmartForkError: it would be refused.
    """
    would = cut(_request(asked, dry_run=True))
    digest = _digest(would.removed, would.masked)
    return ExcisePage(would, asked.get("turns", ""), asked.get(_SECRETS) == "yes", digest, _said(would))


def _said(would: Excised) -> dict[int, Masked]:
    try:
        turns = sessions.look_into(sessions.locate(reference(would.tool, would.session_id))).turns
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

    def as_shown(planned: Plan) -> bool:
        if _digest([turn.id for turn in planned.removed], planned.masked) != form.get("shown", ""):
            raise ForkRefused(
                "The session has changed since this was shown",
                "Open `Index` and press `Show what would go` again.",
            )
        return True

    return cut(_request(form, dry_run=False), agree=as_shown)


def _digest(removed: Iterable[str], masked: Mapping[str, int]) -> str:
    """What tells one cut from another."""
    return blake2b(repr((*removed, *masked.items())).encode("utf-8", "replace"), digest_size=8).hexdigest()


def _request(asked: Mapping[str, str], *, dry_run: bool) -> Request:
    session, turns = asked.get("session", "").strip(), asked.get("turns", "").strip()
    if not session:
        raise Usage("Which session?", "Give its id, or at least 8 characters of it.")
    secrets = asked.get(_SECRETS) == "yes"
    if not (turns or secrets):
        raise Usage("Which turns?", "Use the numbers of `smart-fork excise list`: 5-7,9. Or mask secrets.")
    meant = sessions.locate(session).reference  # never a path
    return Request(meant, turns=turns, secrets=secrets, dry_run=dry_run, force=asked.get("force") == "yes")


def undone(form: Mapping[str, str]) -> RolledBack:
    """Undo the last cut of a session, in all files that it has changed.

    Raises:
        SmartForkError: nothing was undone.
    """
    cut = last_cut(form.get("session", ""))
    if cut is None or cut.snapshot != form.get("snapshot"):
        raise NotFound("This cut was already undone, or a later one was made", "Open the session again.")
    return rollback(cut.snapshot)
