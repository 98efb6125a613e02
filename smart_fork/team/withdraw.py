"""Taking back what was shared: hidden, cut, masked, or withdrawn from everybody who has made something of it.

A cut is planned on the records that the server has, as one of a log here is: calls and their results go together.

What a cut of a log leaves on servers is found here as well: shared sessions that still have it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

from indexer import state
from indexer.masking import mask
from indexer.values import dict_in, json_in
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import titles
from smart_fork.agents.cuts.model import Transcript, searchable_texts
from smart_fork.agents.forms import HomePlace
from smart_fork.errors import Conflict, ServerUnavailable, Usage, WrongVerb
from smart_fork.excise import transcript
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.text_search import telling_words, words_and_runs
from smart_fork.sharing import canonical, received_logs, rewrite_copies
from smart_fork.sharing.local_logs import arrived
from smart_fork.snippets import quoted
from smart_fork.team import wire
from smart_fork.team.download import Download, download
from smart_fork.team.project import TeamProject, apply_withdrawals

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import Arrived
    from smart_fork.sharing.withdrawal import SettledWithdrawals


@dataclass(frozen=True, slots=True)
class WithdrawalRequest:
    """A request to withdraw messages (numbered from 1), secrets, or both from a session."""

    reference: str
    messages: str = ""
    secrets: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class PlannedWithdrawal:
    """A planned withdrawal: records that go, and replacements. `left` is the digest of the remaining records."""

    info: wire.SessionInfo
    edits: Mapping[bytes, bytes | None]
    masked: Mapping[str, int] = field(default_factory=dict)
    title: str | None = None
    messages: str = ""
    left: str = ""

    @property
    def cut(self) -> int:
        """The number of records that go."""
        return sum(new is None for new in self.edits.values())


@dataclass(frozen=True, slots=True)
class WithdrawalResult:
    """A completed withdrawal: how many derived sessions it changed, and what followed on this machine."""

    info: wire.SessionInfo
    descendants: int
    here: SettledWithdrawals


def privacy(project: TeamProject, reference: str, visibility: wire.Visibility) -> wire.SessionInfo:
    """Let a session be read by all members, or by nobody else. What was forked of it stays theirs.

    Raises:
        NotFound: it cannot be read.
        WrongVerb: it is somebody else's.
    """
    session_id = project.meant(reference)
    return project.client.change(project.key, session_id, wire.SessionChange(visibility=visibility))


def delete(project: TeamProject, reference: str, *, everywhere: bool) -> WithdrawalResult | None:
    """Hide a session, or withdraw all that is its own from everything that was made of it.

    Raises:
        NotFound: it cannot be read.
        WrongVerb: it is somebody else's.
    """
    session_id = project.meant(reference)
    if not everywhere:
        project.client.delete(project.key, session_id)
        return None
    said = project.client.delete_everywhere(project.key, session_id)
    return WithdrawalResult(said.session, said.descendants, apply_withdrawals(project.client, at_once=True))


def planned(project: TeamProject, asked: WithdrawalRequest) -> PlannedWithdrawal:
    """Plan a withdrawal. Nothing is sent.

    Raises:
        Usage: there are no such messages, nothing is named, or nothing would change.
        WrongVerb: some are of the session that it was forked from.
        Refused: pairs would be torn, and it is not insisted on.
    """
    if not (asked.messages or asked.secrets):
        raise Usage("Nothing to withdraw was named", "Give messages such as 5-7,9, or --secrets.")
    taken = download(project.client, project.client.session(project.key, project.meant(asked.reference)))
    info = taken.info
    rewrite_copies.refuse_uncuttable(info.agent, info.id)
    with arrived(taken.records, info.agent, info.id, project.place.root, others=False) as one:
        session = transcript.load_numbered(info.agent, one.session.source_path)
        ids = _chosen(one, session, asked.messages) if asked.messages else set()
        made = CutPlan.masking(session, (), ids or None) if asked.secrets else CutPlan.of(session, ids)
        if not asked.force:
            made.refuse()
        edits, title = _edits(project, taken, made), _title(info, made)
    if not edits:
        raise Usage("Nothing to withdraw there.")
    own = {sha256(record).digest() for record in taken.records[info.base_count :]}
    if not set(edits) <= own:
        raise WrongVerb("Some of these messages belong to the parent session.", wire.NOT_YOURS)
    return PlannedWithdrawal(info, edits, dict(made.masked), title, asked.messages, _left(taken, edits))


def _left(taken: Download, edits: Mapping[bytes, bytes | None]) -> str:
    """The digest of what a session is without what is withdrawn; its base stays."""
    base, own = taken.records[: taken.info.base_count], taken.records[taken.info.base_count :]
    after = (edits.get(sha256(record).digest(), record) for record in own)
    return canonical.digest_of([*base, *(record for record in after if record is not None)])


def withdrawn_before(project: TeamProject, asked: WithdrawalRequest) -> WithdrawalResult | None:
    """Return the result of an identical earlier request whose answer was lost. Repeating it would withdraw other
    messages.

    Raises:
        Conflict: what other words asked for was withdrawn meanwhile, so that messages have other numbers than they had.
    """
    session_id = project.meant(asked.reference)
    found = state.rows("SELECT asked FROM withdrawals WHERE session_id = ?", session_id)
    if not found:
        return None
    kept = _Unanswered.model_validate_json(found[0][0])
    if (kept.server, kept.project) != (project.server, project.key):
        return None
    said = None
    if project.client.session(project.key, session_id).session.revision != kept.wanted.revision:
        with suppress(Conflict):  # it never arrived, and the session was changed otherwise
            said = project.client.rewrite(project.key, session_id, kept.wanted)
    if said is None:
        _forget(session_id)
        return None
    if kept.messages == asked.messages:
        return _followed(project, said)
    _forget(session_id)
    raise Conflict(
        f"The earlier request is withdrawn ({kept.messages or 'the secrets'}). Its answer was lost.",
        f"Messages may have other numbers now: smart-fork team show {session_id}",
    )


def send(project: TeamProject, made: PlannedWithdrawal) -> WithdrawalResult:
    """Withdraw it, and take it out of what is here.

    Raises:
        Conflict: the session has changed since this was planned.
        SmartForkError: it was not withdrawn.
        OSError: what is asked for cannot be kept, so nothing was sent.
    """
    wanted = wire.Rewrite(
        kind="cut" if made.cut else "mask",
        revision=made.info.revision,
        edits=tuple(
            wire.RecordEdit(old=old.hex(), new=None if new is None else sha256(new).hexdigest())
            for old, new in made.edits.items()
        ),
        records=tuple({new for new in made.edits.values() if new is not None}),
        title=made.title,
    )
    # Kept before it is sent: what cannot be kept is not.
    one = _Unanswered(server=project.server, project=project.key, messages=made.messages, wanted=wanted)
    asked = one.model_dump_json(exclude_none=True)
    state.change("INSERT OR REPLACE INTO withdrawals VALUES (?, ?)", made.info.id, asked)
    said = project.client.rewrite(project.key, made.info.id, wanted)
    if said.session.revision == made.info.revision + 1 and said.session.head_digest != made.left:
        hint = f"Check the rest: smart-fork team show {made.info.id}"
        raise ServerUnavailable("The server keeps other records than planned.", hint)
    return _followed(project, said)


def _followed(project: TeamProject, said: wire.Rewritten) -> WithdrawalResult:
    """Return the result after this machine's copies were changed. Until then the answer counts as not received."""
    done = WithdrawalResult(said.session, said.descendants, apply_withdrawals(project.client, at_once=True))
    _forget(said.session.id)
    return done


def _chosen(one: Arrived, session: Transcript, text: str) -> set[str]:
    """The turns of these messages, each with what the agent did after it, up to the next."""
    said = one.session.messages
    found: set[str] = set()
    try:
        wanted = transcript.parse_ranges(text, len(said) + 1)
    except Usage:
        what = f"{quoted(text)} is outside its messages, 1 to {len(said)}"
        raise Usage(what, "Use numbers from smart-fork team show, such as 5-7,9.") from None
    for low, high in wanted:
        if low < 1:
            raise Usage("Messages are numbered from 1", "smart-fork team show numbers them.")
        end = said[high][0] if high < len(said) else len(one.session.turns)
        found |= transcript.chosen_turns(session, f"{said[low - 1][0]}-{end - 1}")
    return found


def _edits(project: TeamProject, taken: Download, made: CutPlan) -> dict[bytes, bytes | None]:
    """The records of the server that go or are replaced, by what the lines of the log are known by."""
    forms, place = AGENTS.forms_of(taken.info.agent), HomePlace.of(project.place.root)
    gone: set[str] = set()
    new: dict[str, bytes] = {}
    for position, turn in enumerate(made.session.turns):
        if not (record := dict_in(json_in(turn.raw))):
            continue
        shared = forms.outgoing(record, place)
        if turn.id in made.gone:
            gone.add(received_logs.key_of(shared))
        elif (line := made.edits.get(position)) is not None and (after := dict_in(json_in(line))):
            edited = canonical.encode(forms.outgoing(after, place))
            if edited != canonical.encode(shared):  # which parent it names is no part of it
                new[received_logs.key_of(shared)] = edited
    edits: dict[bytes, bytes | None] = {}
    for one in taken.records:
        here = forms.arrived(canonical.decode(one), others=False)
        key = received_logs.key_of(here) if here is not None else ""
        if key in gone:
            edits[sha256(one).digest()] = None
        elif key in new:
            edits[sha256(one).digest()] = new[key]
    return edits


def _title(info: wire.SessionInfo, made: CutPlan) -> str | None:
    """Return the session's new title if the old one quotes withdrawn text."""
    title = str(mask(info.title)) if made.masked else info.title
    beginning = " ".join(titles.without_suffix(info.title).split())[:30].strip("… ")
    removed = [turn.raw for turn in made.removed]
    gone = words_and_runs(removed) - words_and_runs(turn.raw for turn in made.survivors if turn.role != "system")
    said = (" ".join(" ".join(searchable_texts(dict_in(json_in(line)))).split()) for line in removed)
    if telling_words([info.title.encode()], gone) or (beginning and any(beginning in one for one in said)):
        title = ""
    return title if title != info.title else None


def audited(
    project: TeamProject, reference: str | None, *, since: str | None, mine: bool, limit: int
) -> list[wire.AuditLine]:
    """List the audit lines that the user may see, newest first.

    Raises:
        Usage: that is no time.
        NotFound: there is no such session.
    """
    asked = {"mine": "1"} if mine else {}
    if reference is not None:
        asked["session"] = project.meant(reference)
    if since is not None:
        asked["since"] = _time(since)
    lines: list[wire.AuditLine] = []
    while True:
        page = project.client.audit(**asked)
        lines += page.lines
        if len(lines) >= limit or page.next_page is None:
            return lines[:limit]
        asked["page"] = page.next_page


def _time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone(UTC).isoformat()
    except ValueError:
        raise Usage(f"Not a time: {quoted(text)}", "Such as 2026-03-01, or 2026-03-01T12:00") from None


class _Unanswered(canonical.WireModel):
    """A withdrawal whose answer has not come: the messages that were named, of which server and project, and what was
    sent.

    It is kept before the server is asked. Messages are meant by their numbers, and a withdrawal moves these: after an
    answer that was lost, the same words would withdraw others.
    """

    server: str
    project: str
    messages: str
    wanted: wire.Rewrite


def _forget(session_id: str) -> None:
    """The answer has come."""
    state.change("DELETE FROM withdrawals WHERE session_id = ?", session_id)
