"""Removes withdrawn text (its owner took it back) from local copies, from sessions made of them, and from the index.

Removals are stored as pending first. A log that an agent has open is changed later, and is neither pushed nor forked
meanwhile. `still_shared` finds shared sessions that still have text that was cut on this machine.

Only records that a server has withdrawn are removed, and the agent's own records that quote them, such as titles. If an
agent's sessions cannot be cut, their copies are rewritten without the withdrawn records.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache, partial
from hashlib import sha256
from pathlib import Path

import orjson

from indexer.safe_files import replace_file
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.decoders import Record
from smart_fork.agents.excision import snapshots
from smart_fork.agents.excision.transcript import Transcript, searchable_texts
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace, TargetSession
from smart_fork.errors import Conflict, ForkRefused, NotFound, SmartForkError, advice
from smart_fork.excise import lookup, writing
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.cut_words import words_and_runs
from smart_fork.excise.verification import cut_lines
from smart_fork.sharing import log_register
from smart_fork.sharing.canonical import decode, url_of
from smart_fork.sharing.local_logs import ProjectLogs
from smart_fork.sharing.log_register import Edits, ReceivedLog
from smart_fork.sharing.outgoing import digests_of
from smart_fork.sharing.tracking import Alias, ProjectFolder, Tracked, Tracking
from smart_fork.sharing.withdrawn_content import (
    Loss,
    Planner,
    TimedLine,
    changed_files_beside,
    cut_log,
    erase_and_write,
    is_bookkeeping,
    record_in,
)
from smart_fork.system import call_context

#: The new bytes of each edited record, by the record's key in a log; `None` removes the record.
_EditsByKey = Mapping[str, bytes | None]


def is_rewritten(agent: str) -> bool:
    """Return True if withdrawn records cannot be cut out of this agent's logs, so that copies are rewritten."""
    found = AGENTS.find_cutter(agent)
    return found is None or not found.withdraws


def refuse_uncuttable(agent: str, session_id: str) -> None:
    """Raise `ForkRefused` if no messages can be cut out of this agent's logs, so that none can be withdrawn."""
    if is_rewritten(agent):
        raise ForkRefused(
            f"Messages of shared sessions of {AGENTS.title_of(agent)} cannot be withdrawn: {session_id}",
            f"To withdraw all of it: smart-fork team delete {session_id} --everywhere.",
        )


def _record_lines(one: ReceivedLog, keys: _EditsByKey) -> tuple[list[TimedLine], list[TimedLine]]:
    """Return the records of a copy before and after the edits `keys`, as two lists of (time, JSON line)."""
    before = _records(one, one.path)
    was, left = ([(log_register.record_time(record), orjson.dumps(record)) for record in some] for some in (
        before, list(_left(one, before, keys))
    ))  # fmt: skip
    return was, left


def _rewrite(one: ReceivedLog, keys: _EditsByKey, path: Path, *, remove: bool = False) -> bool:
    """Rewrite the log at `path`, which is the copy `one` or was made of it, with the edits `keys` of its records.

    With `remove`, delete the log. Return True if the log is deleted, also because no message remains.
    """
    session, before = _session(one, path), _records(one, path)
    converter, place = AGENTS.converter_of(one.agent), HomePlace.of(one.root)
    left = list(_left(one, before, keys))
    if left == before and not remove:
        writing.refresh(one.agent, [path])  # whoever was killed may have come no further than the log
        return False
    said = {turn.id for turn in session.turns if turn.role in ("user", "assistant")}
    gone = remove or not any(said.intersection(converter.ids(record)) for record in left)
    whole = lookup.load_with_tool(one.agent, path)
    words = words_and_runs(map(orjson.dumps, before)) - words_and_runs(map(orjson.dumps, left))
    becomes = TargetSession(session.session_id, place, session.parent_id or "")

    def write() -> None:
        replace_file(path, (orjson.dumps(record) + b"\n" for record in converter.anew(left, becomes)))

    beside = {} if gone else changed_files_beside(CutPlan.of(whole, ()), words)
    erase_and_write(whole, _said(before), None if gone else _said(left), beside, write)
    return gone


def _session(one: ReceivedLog, path: Path) -> Session:
    session = READERS[one.agent].read(path).session
    if session is None:
        raise NotFound(f"No conversation in {path}")
    return session


def _records(one: ReceivedLog, path: Path) -> list[Record]:
    converter, place = AGENTS.converter_of(one.agent), HomePlace.of(one.root)
    return [converter.outgoing(record, place) for record in converter.records_of(_session(one, path))]


def _left(one: ReceivedLog, records: Iterable[Record], keys: _EditsByKey) -> Iterator[Record]:
    converter = AGENTS.converter_of(one.agent)
    for record in records:
        key = log_register.record_key(record)
        if key not in keys:
            yield record
        elif (new := keys[key]) is not None and (arrived := converter.arrived(decode(new), others=False)) is not None:
            yield arrived


def _said(records: Iterable[Record]) -> list[str]:
    return [text for record in records for text in searchable_texts(record)]


@dataclass(frozen=True, slots=True)
class AppliedWithdrawals:
    """The changed and removed logs with withdrawn text; `put_off` maps the logs to change later to the reasons."""

    changed: tuple[Path, ...] = ()
    removed: tuple[Path, ...] = ()
    put_off: Mapping[Path, str] | None = None


def apply_pending(*, remove: bool = False) -> AppliedWithdrawals:
    """Make all pending edits in logs with withdrawn text, and delete unfinished copies of sessions.

    With `remove`, delete these logs as a whole.
    """
    log_register.clear_unfinished()
    changed: list[Path] = []
    removed: list[Path] = []
    put_off: dict[Path, str] = {}
    for one in log_register.with_pending_edits():
        edits = one.pending_edits()
        try:
            gone = _settled(one, edits, changed, put_off, remove=remove)
        except (SmartForkError, OSError) as error:
            put_off[one.path] = str(error)
        else:
            if gone:
                removed.append(one.path)
            elif _has_of_others(one, edits):
                changed.append(one.path)
    return AppliedWithdrawals(tuple(changed), tuple(removed), put_off)


def _has_of_others(one: ReceivedLog, edits: Edits) -> bool:
    """Return True if `edits` changes records that the log received from another user or machine."""
    own = (digest for digest, key in one.records if key)
    return any(digest in edits for digest in (*own, *one.crossed_from))


def _settled(one: ReceivedLog, edits: Edits, changed: list[Path], put_off: dict[Path, str], *, remove: bool) -> bool:
    """Make the `edits` of withdrawn records in a log, and in everything made of it. Return True if the log is deleted.

    Changed logs that were made of it are added to `changed`. Those that cannot be changed now are added to `put_off`,
    with the reason. Raise `ForkRefused` if there are such logs, or if the log is a hand-over in which the withdrawn
    messages cannot be identified.
    """
    keys = {key: edits[digest] for digest, key in one.records if key and digest in edits}
    if not AGENTS.files_of(one.agent).has(one.path):
        if one.agent != log_register.RECORD_FILE:
            _follow(one, _removal_of_lost_log(one, keys, edits), changed, put_off, edits)
            lookup.remove_own_files(one.agent, READERS[one.agent].id_of(one.path))
        one.forget()
        return True
    if one.agent == log_register.RECORD_FILE:
        return _settled_file(one, keys, remove=remove)
    is_crossed = any(digest in edits for digest in one.crossed_from)
    is_known = all(map(one.time, edits.keys() & {*one.crossed_from}))
    if (log_register.CONVERTED in keys or (is_crossed and not is_known)) and not remove:
        raise ForkRefused(
            "The messages that were withdrawn are not known in this hand-over. Cut them with smart-fork excise cut, or "
            "remove it with smart-fork team sync --remove."
        )
    logs = ProjectLogs(one.root)
    before = one.counted(lambda: len(here.records) if (here := logs.tracked(one.path, one.agent)) else 0)
    gone = False
    for way in _removals(one, keys, edits, is_crossed=is_crossed):
        _follow(one, way, changed, put_off, edits)
        gone = way.cut(one.path, remove=remove)
        if gone:
            break
    _track(one, edits, before, gone=gone)
    if gone:
        one.forget()
    else:
        (log_register.find(one.path, one.agent) or one).edited(edits).save(settled=True)
    return gone


def _settled_file(one: ReceivedLog, edits: Edits, *, remove: bool) -> bool:
    """Make the `edits` in a file of shared records, and empty the title, tags and summary in its first line.

    With `remove`, delete the file. Return True if the file is deleted.
    """
    if remove:
        one.path.unlink()
        one.forget()
        return True
    head, *lines = one.path.read_bytes().splitlines()
    said = orjson.loads(head)  # it goes on without words of the session's own: they may be made of what went
    head = orjson.dumps(said | {"session": said["session"] | {"title": "", "summary": "", "tags": []}})
    digests = ((sha256(line).hexdigest(), line) for line in lines)
    left = [line for digest, was in digests if (line := edits.get(digest, was)) is not None]
    replace_file(one.path, [line + b"\n" for line in (head, *left)])
    fresh = tuple((digest, digest) for line in left if (digest := sha256(line).hexdigest()))
    replace(one, records=fresh).save(settled=True)
    return False


@dataclass(frozen=True, slots=True)
class _Removal:
    """One step of a withdrawal: the content that a log loses, and a function that cuts this content out of a log."""

    lost: Loss
    cut: Callable[..., bool]


def _removals(one: ReceivedLog, keys: _EditsByKey, edits: Edits, *, is_crossed: bool) -> Iterator[_Removal]:
    """Yield the steps that remove withdrawn content from a log. Carry out each step before requesting the next."""
    if keys and is_rewritten(one.agent):
        yield _Removal(_loss_of(one, edits, *_record_lines(one, keys)), partial(_rewrite, one, keys))
    elif keys:
        session, planner = lookup.load_with_tool(one.agent, one.path), _of_records(one, keys)
        planned, new = planner(session, ())
        turns = [(at, turn) for at, turn in enumerate(session.turns) if not is_bookkeeping(turn)]
        before = [(turn.timestamp, turn.raw) for _, turn in turns]
        after = [(turn.timestamp, new.get(at, turn.raw)) for at, turn in turns if turn.id not in planned.gone]
        known = lookup.keys_of(turn for at, turn in turns if turn.id in planned.gone or at in new)
        lost = _loss_of(one, edits, [*before, *_kept_lines(one, keys)], after, known)
        yield _Removal(lost, partial(cut_log, one.agent, planner, lost.words))
    if is_crossed:
        lost = _loss_of(one, edits, (), ())
        yield _Removal(lost, partial(cut_log, one.agent, lost.planned, lost.words))


def _removal_of_lost_log(one: ReceivedLog, keys: _EditsByKey, edits: Edits) -> _Removal:
    """Return the withdrawn content of a deleted log, and a function that cuts it out of sessions made of it."""
    lost = _loss_of(one, edits, _kept_lines(one, keys), (), (key.removeprefix("id:") for key in keys))
    if is_rewritten(one.agent):
        return _Removal(lost, partial(_rewrite, one, keys))
    return _Removal(lost, partial(cut_log, one.agent, _of_records(one, keys), lost.words))


def _kept_lines(one: ReceivedLog, keys: _EditsByKey) -> list[TimedLine]:
    """Return the withdrawn records in the log's snapshots (its contents before cuts), each with its time."""
    converter, place = AGENTS.converter_of(one.agent), HomePlace.of(one.root)
    kept = snapshots.snapshots(READERS[one.agent].id_of(one.path))
    lines = (line for snapshot in kept for line in snapshots.lines(snapshot))
    records = ((line, record) for line in lines if (record := record_in(line)) is not None)
    return [
        (log_register.record_time(one), line)
        for line, one in records
        if log_register.record_key(converter.outgoing(one, place)) in keys
    ]


def _loss_of(
    one: ReceivedLog, edits: Edits, before: Sequence[TimedLine], after: Sequence[TimedLine], keys: Iterable[str] = ()
) -> Loss:
    """Return the content that a log loses by the `edits` of its records.

    `before` and `after` are the log's lines with their times, without and with the edits. `before` may also have
    records that were cut here earlier. `keys` are the keys of removed records.
    """
    stays = {one.time(digest) for digest in one.digests if digest not in edits}
    gone = {one.time(old) for old, new in edits.items() if new is None}
    converter, here = AGENTS.converter_of(one.agent), HomePlace.of(one.root)
    timed = [(time, new) for old, new in edits.items() if new is not None and (time := one.time(old))]
    replacements = [(time, orjson.dumps(converter.incoming(decode(new), here))) for time, new in timed]
    return Loss.of(before, after, keys, gone - stays - {""}, replacements=replacements, known=one.times.values())


def _follow(one: ReceivedLog, way: _Removal, changed: list[Path], put_off: dict[Path, str], edits: Edits) -> None:
    """Remove withdrawn content from a log's forks, hand-overs (copies for other agents) and snapshots.

    Changed hand-overs are added to `changed`. If one of these logs cannot be cut now, add the reason to `put_off` and
    raise `ForkRefused`.
    """
    whole = _whole(one)
    descent = lookup.derived_from(whole, way.lost.keys)
    behind: dict[Path, str] = {}
    others = (
        () if _is_author(edits) else (*descent.unclear, *(other for other in descent.siblings if not other.handed_over))
    )
    for other in (
        *descent.descendants,
        *(other for other in others if not log_register.find(other.path, other.agent)),
    ):
        try:
            if other.handed_over:
                before = AGENTS.files_of(other.agent).stamp(other.path)
                cut_log(other.agent, way.lost.planned, way.lost.words, other.path)
                changed += [other.path] if AGENTS.files_of(other.agent).stamp(other.path) != before else []
            elif is_rewritten(one.agent) or lookup.load_copy(whole, other.path):
                way.cut(other.path)
        except (SmartForkError, OSError) as error:
            behind[other.path] = str(error)
    for session_id in {whole.session_id, *(other.session_id for other in (*descent.descendants, *others))}:
        way.lost.forget_snapshots(session_id)
    for agent, session_id in descent.without_log:
        lookup.remove_own_files_with(agent, session_id, way.lost.words)
    if behind:
        put_off |= behind
        raise ForkRefused("Logs that came of it still have withdrawn text.", "It is cut after these.")


def _whole(one: ReceivedLog) -> Transcript:
    """Return a transcript without turns, to find the logs made from the log `one`, which need not exist any more."""
    return Transcript(one.agent, one.path, READERS[one.agent].id_of(one.path), ())


def _is_author(edits: Edits) -> bool:
    """Return True if this machine pushed some edited records: then logs with equal records may be the originals."""
    return any(digest in edits and not key for one in log_register.all_received() for digest, key in one.records)


def _of_records(one: ReceivedLog, keys: _EditsByKey) -> Planner:
    """Return a function that plans to remove or replace the records that `keys` edits in a log."""
    converter, place = AGENTS.converter_of(one.agent), HomePlace.of(one.root)

    def planned(session: Transcript, more: Collection[str]) -> tuple[CutPlan, dict[int, bytes]]:
        found: dict[int, str] = {}
        for position, turn in enumerate(session.turns):
            record = None if turn.inherited else record_in(turn.raw)
            if record is not None and (key := log_register.record_key(converter.outgoing(record, place))) in keys:
                found[position] = key
        cut = {session.turns[position].id for position, key in found.items() if keys[key] is None}
        planned = CutPlan.of(session, cut | set(more))
        edits = {at: line for at, line in planned.edits.items() if session.turns[at].id not in planned.gone}
        for position, key in found.items():
            new = keys[key]
            if new is None or session.turns[position].id in planned.gone:
                continue
            was = record_in(edits.get(position, session.turns[position].raw)) or {}
            arrived = converter.arrived(decode(new), others=False)
            if arrived is not None:
                edits[position] = orjson.dumps(converter.incoming(arrived, place, converter.own_fields(was)))
        return planned, edits

    return planned


def _track(one: ReceivedLog, edits: Edits, before: int, *, gone: bool) -> None:
    """Update the aliases (named shared sessions) of a log in the tracking file, after `edits` of the log's records.

    If the log is `gone`, delete its alias. `before` is the number of the log's records before the edits.
    """
    tracking = Tracking(ProjectFolder(one.root, one.project))
    if not tracking.path.is_file():
        return

    def change(tracked: Tracked) -> Tracked:
        for name, alias in tracked.aliases.items():
            if alias.file != one.path:
                continue
            if gone:
                return tracked.without(name)
            tracked = tracked.with_alias(name, _moved(one, alias, edits, before), current=False)
        return tracked

    with suppress(NotFound, Conflict):  # what is tracked there by now is of another project
        tracking.change(change)


def _moved(one: ReceivedLog, alias: Alias, edits: Edits, before: int) -> Alias:
    """Return the alias of a log after `edits` of its records: with new counts and digests, and an empty title.

    The log and its register entry give counts and digests. The server gives the title with its next answer.
    """
    alias = alias.model_copy(update={"title": ""})  # it may be made of what went; the next answer of the server has it
    if not alias.base_digest or one.digest(alias.base_count) != alias.base_digest:
        return alias
    count = sum(edits.get(digest, b"") is not None for digest, _ in one.records[: alias.base_count])
    after = one.edited(edits)
    logs = ProjectLogs(one.root)
    here = logs.records(logs.read(one.path, one.agent))
    known = max(0, len(here.records) - max(0, before - alias.local_count))
    base = {"base_count": count, "base_digest": after.digest(count)}
    return alias.model_copy(update=base | {"local_count": known, "local_digest": here.digest(known)})


def still_shared(path: Path, tool: str) -> dict[str, str]:
    """Find shared sessions with a record that was cut out of the transcript at `path` or a log made of it.

    Also find logs that still contain withdrawn text. Return the next step for each, by its path or address.
    """
    if call_context.limited():
        return {}
    shared = [one for one in log_register.all_received() if one.server]
    found = dict(_owing(path.resolve()))
    for log_cut in _cut_logs(path, tool) if shared else ():
        found |= _holding(log_cut, shared)
    return found


def _owing(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (log, next step) for the log at `path`, and for logs it was made of, if they have withdrawn text."""
    for one in log_register.with_pending_edits():
        if path in {one.path, *(other.path for other in lookup.derived_from(_whole(one)).logs)}:
            again = advice("Take it out: smart-fork team sync.", tool="The next team sync takes it out.")
            yield str(one.path), f"Withdrawn text is still in it. {again}"


def _cut_logs(path: Path, tool: str) -> Iterator[Transcript]:
    session = lookup.load_for_cut(tool, path)
    yield session
    for one in lookup.derived_from(session).descendants:
        if snapshots.noted_changes(one.path):
            with suppress(SmartForkError, OSError):
                yield lookup.load_for_cut(one.agent, one.path)


def _holding(session: Transcript, shared: list[log_register.ReceivedLog]) -> Iterator[tuple[str, str]]:
    if session.tool not in AGENTS or not AGENTS[session.tool].has("converter"):
        return
    lines, agent = cut_lines(session), session.tool

    @cache
    def gone(root: Path) -> frozenset[str]:
        return digests_of(lines, agent, root)

    @cache
    def staying(root: Path) -> frozenset[str]:
        return digests_of({turn.raw for turn in session.turns}, agent, root)

    for one in shared if lines else ():
        there = gone(one.root).intersection(one.digests)
        if there and there - staying(one.root):  # a record that names another parent since is the same one
            yield from _named(one)


def _named(one: log_register.ReceivedLog) -> Iterator[tuple[str, str]]:
    for session_id in one.sessions:
        again = advice(
            f"smart-fork team excise cut RANGE {session_id} withdraws it from all users.",
            tool=f"Its owner can withdraw it: team session {session_id}.",
        )
        yield url_of(one.server, one.project, session_id), f"It is still shared. {again}"
    if one.agent == log_register.RECORD_FILE:
        yield str(one.path), "It is a file of a shared session. Delete it, or withdraw it there."
