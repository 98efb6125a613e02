"""Withdraw shared sessions or messages: remove text on the server, and from copies of it on this machine.

The user's own withdrawals are sent to the server. Withdrawals by teammates are fetched and applied to the copies. A
withdrawal is planned with the server's records, so that tool calls and their results go together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from indexer import state_db
from indexer.json_values import dict_in, json_in
from indexer.masking import mask
from indexer.transcripts.model import AgentName
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.excision import titles
from smart_fork.agents.excision.transcript import Transcript, searchable_texts
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace
from smart_fork.display_text import quoted
from smart_fork.errors import Conflict, NotAuthenticated, ServerUnavailable, SmartForkError, Usage, WrongVerb
from smart_fork.excise import lookup
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.cut_words import telling_words, words_and_runs
from smart_fork.sharing import canonical, log_register, withdrawal
from smart_fork.sharing.local_logs import read_received
from smart_fork.sharing.withdrawal import apply_pending
from smart_fork.team import client, stored_logins, wire
from smart_fork.team.client import Client
from smart_fork.team.download import Download, download
from smart_fork.team.project import TeamProject, opened

if TYPE_CHECKING:
    from smart_fork.sharing.local_logs import ReceivedSession
    from smart_fork.sharing.withdrawal import AppliedWithdrawals


@dataclass(frozen=True, slots=True)
class WithdrawalRequest:
    """A request to withdraw messages (counted from 1) from a shared session, or to mask secrets in it."""

    reference: str
    messages: str = ""
    secrets: bool = False
    force: bool = False


@dataclass(frozen=True, slots=True)
class PlannedWithdrawal:
    """A planned withdrawal (removal of shared text).

    `edits` maps the SHA-256 of each record to its replacement, or to `None` to remove the record. `left` is the digest
    of all records of the session after the withdrawal.
    """

    info: wire.SessionInfo
    edits: Mapping[bytes, bytes | None]
    masked: Mapping[str, int] = field(default_factory=dict)
    title: str | None = None
    messages: str = ""
    left: str = ""

    @property
    def cut(self) -> int:
        """The number of records to remove, without those to replace."""
        return sum(new is None for new in self.edits.values())


@dataclass(frozen=True, slots=True)
class WithdrawalResult:
    """The result of withdrawing (removing) text from a shared session.

    `descendants` is the number of sessions made from it that changed on the server. `here` names the changed copies on
    this machine.
    """

    info: wire.SessionInfo
    descendants: int
    here: AppliedWithdrawals


def delete(project: TeamProject, reference: str, *, everywhere: bool) -> WithdrawalResult | None:
    """Hide a session on the server, and return `None`. Its records stay in sessions made from it.

    With `everywhere`, also remove the session's own records from it and from all sessions made from it, and return the
    result.
    """
    session_id = project.session_id_of(reference)
    if not everywhere:
        project.client.delete(project.key, session_id)
        return None
    said = project.client.delete_everywhere(project.key, session_id)
    return WithdrawalResult(said.session, said.descendants, apply_withdrawals(project.client, at_once=True))


def plan_withdrawal(project: TeamProject, asked: WithdrawalRequest) -> PlannedWithdrawal:
    """Plan which records of a shared session to remove or replace for the request. Send nothing.

    Raises:
        Usage: the request names no text, a message does not exist, or nothing would change.
        WrongVerb: some messages belong to the parent session.
    """
    if not (asked.messages or asked.secrets):
        raise Usage("Nothing to withdraw was named", "Give messages such as 5-7,9, or --secrets.")
    taken = download(project.client, project.client.session(project.key, project.session_id_of(asked.reference)))
    info = taken.info
    withdrawal.refuse_uncuttable(info.agent, info.id)
    with read_received(taken.records, info.agent, info.id, project.place.root, others=False) as one:
        session = lookup.load_numbered(info.agent, one.session.source_path)
        ids = _chosen_turns(one, session, asked.messages) if asked.messages else set()
        made = CutPlan.masking(session, (), ids or None) if asked.secrets else CutPlan.of(session, ids)
        if not asked.force:
            made.refuse()
        edits, title = _edits(project, taken, made), _title(info, made)
    if not edits:
        raise Usage("Nothing to withdraw there.")
    own = {sha256(record).digest() for record in taken.records[info.base_count :]}
    if not set(edits) <= own:
        raise WrongVerb("Some of these messages belong to the parent session.", wire.NOT_OWNER)
    return PlannedWithdrawal(info, edits, dict(made.masked), title, asked.messages, _digest_after(taken, edits))


def _digest_after(taken: Download, edits: Mapping[bytes, bytes | None]) -> str:
    """Return the digest of all the session's records after the edits, which do not apply to the parent's records."""
    base, own = taken.records[: taken.info.base_count], taken.records[taken.info.base_count :]
    after = (edits.get(sha256(record).digest(), record) for record in own)
    return canonical.digest_of([*base, *(record for record in after if record is not None)])


def repeated_withdrawal(project: TeamProject, asked: WithdrawalRequest) -> WithdrawalResult | None:
    """Return the result of an earlier, equal request if the server carried it out but its answer was lost. Else `None`.

    Sending it again would withdraw other messages, since the first withdrawal changed the numbers of messages.

    Raises:
        Conflict: an earlier, different request was carried out, so messages have other numbers now.
    """
    session_id = project.session_id_of(asked.reference)
    found = state_db.rows("SELECT asked FROM withdrawals WHERE session_id = ?", session_id)
    if not found:
        return None
    kept = _UnansweredRequest.model_validate_json(found[0][0])
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
        return _apply_answer(project, said)
    _forget(session_id)
    raise Conflict(
        f"The earlier request is withdrawn ({kept.messages or 'the secrets'}). Its answer was lost.",
        f"Messages may have other numbers now: smart-fork team show {session_id}",
    )


def send_withdrawal(project: TeamProject, made: PlannedWithdrawal) -> WithdrawalResult:
    """Send a planned withdrawal to the server. Then remove the withdrawn text from the copies on this machine.

    Raises:
        Conflict: the session has changed since the plan.
        OSError: the request cannot be stored, so it was not sent.
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
    one = _UnansweredRequest(server=project.server, project=project.key, messages=made.messages, wanted=wanted)
    asked = one.model_dump_json(exclude_none=True)
    state_db.change("INSERT OR REPLACE INTO withdrawals VALUES (?, ?)", made.info.id, asked)
    said = project.client.rewrite(project.key, made.info.id, wanted)
    if said.session.revision == made.info.revision + 1 and said.session.head_digest != made.left:
        hint = f"Check the rest: smart-fork team show {made.info.id}"
        raise ServerUnavailable("The server keeps other records than planned.", hint)
    return _apply_answer(project, said)


def _apply_answer(project: TeamProject, said: wire.Rewritten) -> WithdrawalResult:
    """Remove the withdrawn text from copies here, then delete the stored request: after a kill, it can be repeated."""
    done = WithdrawalResult(said.session, said.descendants, apply_withdrawals(project.client, at_once=True))
    _forget(said.session.id)
    return done


def _chosen_turns(one: ReceivedSession, session: Transcript, text: str) -> set[str]:
    """Return the ids of the turns that the message numbers in `text` select, such as ``5-7,9``.

    A message includes the agent's turns up to the next message.
    """
    said = one.session.messages
    found: set[str] = set()
    try:
        wanted = lookup.parse_ranges(text, len(said) + 1)
    except Usage:
        what = f"{quoted(text)} is outside its messages, 1 to {len(said)}"
        raise Usage(what, "Use numbers from smart-fork team show, such as 5-7,9.") from None
    for low, high in wanted:
        if low < 1:
            raise Usage("Messages are numbered from 1", "smart-fork team show numbers them.")
        end = said[high][0] if high < len(said) else len(one.session.turns)
        found |= lookup.chosen_turns(session, f"{said[low - 1][0]}-{end - 1}")
    return found


def _edits(project: TeamProject, taken: Download, made: CutPlan) -> dict[bytes, bytes | None]:
    """Translate a planned cut of the downloaded log into edits of the server's records.

    The edits map the SHA-256 of each record to its replacement, or to `None` to remove the record.
    """
    converter, place = AGENTS.converter_of(taken.info.agent), HomePlace.of(project.place.root)
    gone: set[str] = set()
    new: dict[str, bytes] = {}
    for position, turn in enumerate(made.session.turns):
        if not (record := dict_in(json_in(turn.raw))):
            continue
        shared = converter.outgoing(record, place)
        if turn.id in made.gone:
            gone.add(log_register.record_key(shared))
        elif (line := made.edits.get(position)) is not None and (after := dict_in(json_in(line))):
            edited = canonical.encode(converter.outgoing(after, place))
            if edited != canonical.encode(shared):  # which parent it names is no part of it
                new[log_register.record_key(shared)] = edited
    edits: dict[bytes, bytes | None] = {}
    for one in taken.records:
        here = converter.arrived(canonical.decode(one), others=False)
        key = log_register.record_key(here) if here is not None else ""
        if key in gone:
            edits[sha256(one).digest()] = None
        elif key in new:
            edits[sha256(one).digest()] = new[key]
    return edits


def _title(info: wire.SessionInfo, made: CutPlan) -> str | None:
    """Return a new title if the session's title quotes withdrawn text; `None` if it does not.

    The new title is empty, or the old one with masked secrets.
    """
    title = str(mask(info.title)) if made.masked else info.title
    beginning = " ".join(titles.without_suffix(info.title).split())[:30].strip("… ")
    removed = [turn.raw for turn in made.removed]
    gone = words_and_runs(removed) - words_and_runs(turn.raw for turn in made.survivors if turn.role != "system")
    said = (" ".join(" ".join(searchable_texts(dict_in(json_in(line)))).split()) for line in removed)
    if telling_words([info.title.encode()], gone) or (beginning and any(beginning in one for one in said)):
        title = ""
    return title if title != info.title else None


class _UnansweredRequest(canonical.WireModel):
    """A request to withdraw messages that has no answer yet. `messages` are the message numbers that the user gave.

    A withdrawal changes the numbers of later messages. So after a lost answer, the same numbers would withdraw other
    messages.
    """

    server: str
    project: str
    messages: str
    wanted: wire.Rewrite


def _forget(session_id: str) -> None:
    state_db.change("DELETE FROM withdrawals WHERE session_id = ?", session_id)


#: The shortest time between two requests for withdrawals.
CHECK_INTERVAL = timedelta(minutes=10)


_MAX_PAGES = 1_000


@contextmanager
def opened_current(server: str | None, project: str | None, *, ask: bool = False) -> Iterator[TeamProject]:
    """Yield a project with a client of its server, after removing withdrawn text from the copies here.

    The server is asked for new withdrawals at most once in 10 minutes.
    """
    with opened(server, project, ask=ask) as one:
        if one.away is None:
            apply_withdrawals(one.client)
        else:
            apply_pending()
        yield one


def apply_withdrawals(client: Client, *, at_once: bool = False, remove: bool = False) -> AppliedWithdrawals:
    """Ask the server for withdrawals (removals of text by its owner), and remove the text from the copies here.

    With `remove`, delete the affected copies instead. With `at_once`, ask even if the last request was less than 10
    minutes ago.
    """
    fetch_withdrawals(client, at_once=at_once)
    return apply_pending(remove=remove)


def fetch_withdrawals(client: Client, *, at_once: bool = False) -> None:
    """Ask the server for new withdrawals, and store them. Copies do not change yet.

    The server is asked at most once in 10 minutes, unless `at_once` is set.
    """
    moment = datetime.now(UTC)
    name = f"changes of {client.account.origin}"
    asked = state_db.fact(name)
    if asked and not at_once and timedelta() <= moment - datetime.fromisoformat(asked["at"]) < CHECK_INTERVAL:
        return
    found, since = _new(client, asked["since"] if asked else None)
    owing = [(one, edits) for one in log_register.all_received() if (edits := _withdrawn_of(one, client, found))]
    records = _replacing(client, found, {new for _, edits in owing for new in edits.values() if new is not None})
    for one, edits in owing:
        known = {old: records.get(new) if new is not None else None for old, new in edits.items()}
        one.store_pending(known)
    state_db.keep(name, {"since": since, "at": moment.isoformat()})


def apply_withdrawals_to(path: Path, agent: AgentName) -> None:
    """Remove withdrawn text from a log that is about to be forked, if the log came from a server.

    First ask the server for new withdrawals, and wait at most 1.5 seconds. Raise `Conflict` if the log still contains
    withdrawn messages.
    """
    known = log_register.find(path, agent)
    if known is None:
        return
    if known.server:
        with suppress(NotAuthenticated, ServerUnavailable):
            client.ask_briefly(stored_logins.logged_in_account(known.server), fetch_withdrawals, "ask for withdrawals")
    apply_pending()
    provenance.refuse_pending_withdrawal(READERS[agent].id_of(path))


def _new(client: Client, since: str | None) -> tuple[list[wire.WithdrawnRecords], str | None]:
    """Return the withdrawals after the bookmark `since` (`None` at first), and the next bookmark."""
    found: list[wire.WithdrawnRecords] = []
    for _ in range(_MAX_PAGES):
        page = client.changes(since)
        since = page.next_page
        if not page.changes:
            break
        found += page.changes
    return found, since


def _withdrawn_of(
    one: log_register.ReceivedLog, client: Client, found: Sequence[wire.WithdrawnRecords]
) -> dict[str, str | None]:
    """Return the withdrawals in `found` that concern the log `one`, as edits of its records.

    An edit maps a record's digest to the digest of the record that replaces it, or to `None` if the record is removed.
    There are no edits if the log has no such records, or came from another server than the one of `client`.
    """
    if one.server != client.account.origin:
        return {}
    ends: dict[str, str | None] = {}
    for change in found:
        if not one.sessions or change.session_id in one.sessions:
            step = {edit.old: edit.new for edit in change.edits}
            ends = {old: step.get(new, new) if new is not None else None for old, new in ends.items()} | step
    return ends if not one.digests_with_pending.isdisjoint(ends) else {}


def _replacing(client: Client, found: Sequence[wire.WithdrawnRecords], wanted: Collection[str]) -> dict[str, bytes]:
    """Download the records that replace withdrawn ones, and return those with a digest in `wanted`, by digest.

    Sessions that the user may no longer read are skipped. The caller then removes the withdrawn records instead.
    """
    records: dict[str, bytes] = {}
    for project, session_id in {(change.project, change.session_id): None for change in reversed(found)}:
        if all(digest in records for digest in wanted):
            break
        with suppress(SmartForkError):
            taken = download(client, client.session(project, session_id)).records
            records |= {digest: one for one in taken if (digest := sha256(one).hexdigest()) in wanted}
    return records
