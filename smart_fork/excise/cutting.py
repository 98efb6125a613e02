"""The commands that cut turns out of a transcript or mask its secrets, undo that, and write a copy without turns."""

from __future__ import annotations

import shlex
import uuid
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexer.errors import what_failed
from indexer.lazy_compilation import dataclass
from indexer.log_changes import Progress
from indexer.repositories import recorded
from indexer.safe_files import DISK, Disk, index_db, remove
from indexer.transcripts.lines import decode_line
from indexer.transcripts.model import Session as Conversation
from indexer.transcripts.texts import title_of
from smart_fork import provenance
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.excision import snapshots, titles
from smart_fork.agents.excision.transcript import CutWarning, Transcript
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import ForkRefused, SmartForkError, Usage, advice
from smart_fork.excise import lookup
from smart_fork.excise.answer import CutRequest, Excised, Parent, Restored, RolledBack, Trimmed, UncutFile
from smart_fork.excise.cut_plan import CutPlan
from smart_fork.excise.cut_words import is_worker_of, words_in
from smart_fork.excise.erasure import note_cut_done, note_pending, run_pending
from smart_fork.excise.lookup import chosen_turns, derived_from, other_files, resolve_transcript
from smart_fork.excise.verification import cut_text_of, files_with_cut_text, has_cut_text, still_shared
from smart_fork.excise.writing import CutChange, change_of, cut_copies, refresh, write, written_path
from smart_fork.finding.index_access import kept_open
from smart_fork.finding.results import title as shown_title
from smart_fork.forking.branch import command_to_resume, new_title
from smart_fork.forking.family import Descendant, Descent
from smart_fork.forking.session_use import SessionUse
from smart_fork.system import call_context
from smart_fork.system.call_context import refuse_cancelled
from smart_fork.system.processes import Machine
from smart_fork.workers.registry import Registry

#: Is called with a planned cut before it is written. If it returns False, nothing is written.
Confirm = Callable[[CutPlan], bool]


def _steps(progress: Progress | None, total: int, stage: str = "cutting and erasing") -> Iterator[None]:
    """Report the progress of a cut: each `next` on this iterator reports one more of the `total` steps as done."""
    for done in range(total + 1):
        if progress:
            progress(stage, done, total)
        yield


@kept_open()
def cut(
    request: CutRequest, *, agree: Confirm = lambda _plan: True, disk: Disk = DISK, now: datetime | None = None,
    progress: Progress | None = None,
) -> Excised:  # fmt: skip
    """Cut turns out of a transcript, or mask the secrets in it. Then change copies, branches and the index too.

    `agree` is called with the plan before anything is written. If it returns False, nothing is written.

    Raises:
        Usage: something in the request is not acceptable.
        NotFound: no transcript matches.
        Refused: there is a warning or a problem, and `force` is not set.
        ForkRefused: the session is running, has changed meanwhile, or the turns belong to its parent.
        OSError: nothing was written.
    """
    if not request.dry_run:
        titles.keep_key()
    planned = plan_of(request, progress)
    outcome = planned.report(dry_run=request.dry_run)
    if request.dry_run:
        return outcome
    if not request.force:
        planned.refuse()
    _refuse_inherited(planned)
    if not planned.changes:
        return outcome
    if not agree(planned):
        return replace(outcome, aborted=True)
    refuse_cancelled()
    change = change_of(planned, request.command, disk, now or datetime.now(UTC), follows=request.follow)
    return _cut_everywhere(planned, change, outcome, progress)


def plan_of(request: CutRequest, progress: Progress | None = None) -> CutPlan:
    """Return the plan of the requested cut. Write nothing."""
    steps = _steps(progress, 2, "reading the session")
    next(steps)
    session = lookup.resolve_transcript(request.reference, request.tool, request.composer, numbered=True)
    next(steps)
    planned = _planned(session, request)
    next(steps)
    return planned


def _cut_everywhere(planned: CutPlan, change: CutChange, outcome: Excised, progress: Progress | None) -> Excised:
    """Cut the session and its copies, and erase the text from smart-fork's own data."""
    session = planned.session
    descent = derived_from(session, change.keys | change.masked)
    if not change.follows:
        snapshot, _ = write(planned, change, descent=descent)
        return _completed(replace(outcome, snapshot=snapshot), planned, {session.session_id}, descent)
    ids = {session.session_id, *(one.session_id for one in descent.logs)}
    others = [one for one in descent.siblings if not one.handed_over or has_cut_text(one, planned)]
    note = note_pending(session, ids, change.id)
    copies = descent.copies
    steps = _steps(progress, len(copies) + 4)
    next(steps)
    snapshot, beside = write(planned, change, descent=descent)
    followed, left = cut_copies(session, change, (copy for copy, _ in zip(copies, steps, strict=False)))
    next(steps)
    logs = [written_path(session), session.source_path, *(Path(one.path) for one in followed)]
    index = refresh(session.tool, logs)
    next(steps)
    indexed = index.updated or not index_db().exists()  # else it is owed until it is
    if indexed and not left:
        note_cut_done(note)
    now_there = lookup.load_for_cut(session.tool, session.source_path)
    gone = cut_text_of(now_there)
    erased = indexed and run_pending({note: gone.in_bytes}) and index.erased is not False
    next(steps)
    known = {one.path for one in left}
    there = [one for one in files_with_cut_text(now_there, gone) if one.path not in known]
    left += [UncutFile(one.path, one.reason) for one in (*there, *still_shared(session))]
    next(steps)
    outcome = replace(
        outcome, snapshot=snapshot, followed=(*beside, *followed), left=tuple(left), index=index,
        erased=erased and not left,
    )  # fmt: skip
    return _completed(outcome, planned, ids, descent, others)


def _completed(
    outcome: Excised, planned: CutPlan, ids: Collection[str], descent: Descent, others: Iterable[Descendant] = ()
) -> Excised:
    """Return a cut's answer with the places that may still have the text, and the `snapshots` with the old content."""
    kept = tuple(one.id for name in sorted(ids) for one in snapshots.snapshots(name))
    discard = shlex.join(["smart-fork", "excise", "discard", *kept])
    return replace(outcome, remains=tuple(_places_outside(planned, descent, others)), snapshots=kept, discard=discard)


def _places_outside(planned: CutPlan, descent: Descent, others: Iterable[Descendant]) -> list[str]:
    """Return places that smart-fork leaves alone and that can still have the cut text, such as prompt histories."""
    session = planned.session
    found = list(map(str, planned.beside))
    if session.tool in READERS.names:
        home = READERS[session.tool].home()
        asked = any(turn.prompt for turn in planned.removed) or planned.masked
        names = AGENTS.cutter_of(session.tool).histories if asked else ()
        found += [str(home / name) for name in names if (home / name).is_file()]
        found += sorted(map(str, home.glob("thread_history_*.sqlite")))
    if any(turn.tool_calls for turn in planned.removed) or planned.masked:
        found += map(str, AGENTS.cutter_of(session.tool).stores(session.session_id))
    changed = [*planned.edits, *(at for at, turn in enumerate(session.turns) if turn.id in planned.gone)]
    after = session.turns[min(changed, default=0) :]
    compacted = [turn.id for turn in after if turn.meta.get("compacts") and turn.id not in planned.gone]
    found += [f"turn {one}, a summary of the turns before it" for one in compacted]
    found += [
        f"session {one.session_id} of {AGENTS.title_of(one.agent)}, a hand-over of this one"
        for one in descent.descendants
        if one.handed_over  # else it is followed
    ]
    found += [
        f"session {one.session_id} of {AGENTS.title_of(one.agent)}, "
        "which has the same turns and was not made of this one"
        for one in others
    ]
    found += _named_after(planned)
    if call_context.limited():
        found.append("copies in projects that this client may not read, if any")
    return found


def _named_after(planned: CutPlan) -> Iterator[str]:
    """Yield a text about each worktree and branch of the session's workers that is named after a cut prompt."""
    words = words_in("\n".join(turn.preview for turn in planned.removed if turn.prompt))
    for worker in Registry.known_workers() if words else ():
        name = Path(worker.worktree).name if worker.worktree else ""
        if is_worker_of(worker, {planned.session.session_id}) and words & words_in(name):
            yield f"worktree {worker.worktree} and git branch {worker.branch}, named after the cut text"


def _planned(session: Transcript, request: CutRequest) -> CutPlan:
    named = bool(request.turns or request.ids)
    if not named and not request.secrets:
        raise Usage(
            "nothing to cut was named",
            advice(
                "Give a range such as 5-7,9, or --id, or --secrets.",
                tool="Give turns, such as 5-7,9, or ids, or secrets.",
            ),
        )
    ids = lookup.chosen_turns(session, request.turns, request.ids) if named else set()
    if not request.secrets:
        planned = CutPlan.of(session, ids, relink=request.relink)
        first = min((int(turn.id) for turn in planned.removed if turn.id.isdigit()), default=0)
        files = {turn.place.path for turn in planned.removed if turn.place} if session.padded else ()
        ids_of = (READERS[session.tool].id_of(path) for path in lookup.dependent_logs(session.tool, files, first))
        forks = [one for one in ids_of if one != session.session_id]
        if not forks:
            return planned
        lost = f"{len(forks)} forks read these turns from this file and lose them as well: {', '.join(forks)}"
        return replace(planned, problems=(*planned.problems, lost))
    planned = CutPlan.masking(session, (), ids if named else None, relink=request.relink)
    keys = lookup.keys_of(turn for turn in session.turns if turn.id in ids)
    kinds, apart = Counter(planned.masked), set[str]()
    for other in filter(None, (lookup.load_copy(session, path) for path in other_files(session))):
        there = CutPlan.masking(other, (), lookup.matching_turns(other, keys) if named else None)
        kinds.update(there.masked)
        apart |= {other.turns[position].key or other.turns[position].id for position in there.edits}
    return replace(planned, masked=dict(kinds), apart=frozenset(apart))


def _refuse_inherited(planned: CutPlan) -> None:
    inherited = [turn.id for turn in planned.removed if turn.is_parents]
    if inherited:
        raise ForkRefused(
            f"{len(inherited)} of these turns belong to its parent session: {planned.session.base}",
            advice(
                "Cut a copy with --branch, or cut them there.",
                tool="Cut them there, or use branch_session first and cut the copy.",
            ),
        )


@dataclass(frozen=True, slots=True)
class LastCut:
    """A cut that can be undone, in all `files` that it changed, by a rollback to `snapshot`."""

    snapshot: str
    made: str
    turns: int
    files: int


def last_cut(session_id: str) -> LastCut | None:
    """Return the newest cut of a session's log or of its copies, if it can still be undone."""
    kept = {one.id for one in snapshots.snapshots(session_id)}
    logged = snapshots.noted_changes()
    sources = {one.source_path for one in logged if one.session_id == session_id and not one.beside}
    found = [one for source in sources for one in snapshots.cuts(Path(source)) if one.snapshot in kept]
    if not found:
        return None
    newest = max(found, key=lambda one: one.ts)
    together = {one.source_path for one in logged if newest.change and one.change == newest.change}
    return LastCut(newest.snapshot, newest.ts, len(newest.removed_ids), max(1, len(together)))


@dataclass(frozen=True, slots=True)
class _Undoing:
    """The options of one rollback (undoing of a cut), for each file that it restores."""

    force: bool
    disk: Disk
    now: datetime
    change: str


def rollback(
    identity: str, *, to: Path | None = None, force: bool = False, disk: Disk = DISK, now: datetime | None = None
) -> RolledBack:
    """Restore a transcript, and all files that the same cut or rollback changed, from a snapshot (their old content).

    The present content becomes a new snapshot. With `to`, only one file is written, at that path.

    Raises:
        NotFound, Usage: no snapshot matches, or the path of its file is unknown.
        ForkRefused: the session is running, or has continued since the cut.
        OSError: nothing was written.
    """
    snapshot = snapshots.find(identity)
    logged = snapshots.noted_changes()
    entry = next((one for one in reversed(logged) if one.snapshot == snapshot.id), snapshots.NotedChange())
    undoing = _Undoing(force or to is not None, disk, now or datetime.now(UTC), uuid.uuid4().hex)
    session = _destination(snapshot, entry, to, disk)
    done = [_put_back(snapshot, session, entry, undoing)]
    left: list[UncutFile] = []
    for other in _changed_with(entry, logged) if to is None else ():
        try:
            done.append(_put_back_other(other, undoing))
        except (SmartForkError, OSError) as error:
            left.append(UncutFile(other.source_path, what_failed(error)))
    with suppress(OSError):
        snapshots.prune(undoing.now)
    paths = [Path(one.path) for one in done]
    index = refresh(session.tool, paths)
    named = done[0]
    return RolledBack(
        session_id=named.session_id, restored=named.restored, path=named.path, snapshot=named.snapshot,
        followed=tuple(done[1:]), left=tuple(left), index=index,
    )  # fmt: skip


def _changed_with(entry: snapshots.NotedChange, logged: Iterable[snapshots.NotedChange]) -> list[snapshots.NotedChange]:
    """Return the newest change of each other file that the cut or rollback of `entry` changed."""
    together = (one for one in logged if entry.change and one.change == entry.change)
    others = (one for one in together if one.source_path != entry.source_path)
    return list({one.source_path: one for one in others if one.snapshot or one.beside}.values())


def _put_back_other(entry: snapshots.NotedChange, undoing: _Undoing) -> Restored:
    if not entry.snapshot:
        return _delete_again(entry, undoing)
    snapshot = snapshots.find(entry.snapshot)
    session = _destination(snapshot, entry, None, undoing.disk)
    if session.stamp is None and not entry.beside:
        raise ForkRefused("it no longer exists")
    return _put_back(snapshot, session, entry, undoing)


def _delete_again(entry: snapshots.NotedChange, undoing: _Undoing) -> Restored:
    session, path = Transcript(entry.tool, Path(entry.source_path), entry.session_id, ()), Path(entry.source_path)
    before = snapshots.save(path, entry.session_id, undoing.now, disk=undoing.disk)
    snapshots.note(
        session, snapshots.ROLLBACK, before, path, undoing.now, size_after=0, change=undoing.change, beside="yes"
    )
    path.unlink(missing_ok=True)
    return Restored(session_id=entry.session_id, restored="", path=str(path), snapshot=before.id if before else None)


def _put_back(
    snapshot: snapshots.Snapshot, session: Transcript, entry: snapshots.NotedChange, undoing: _Undoing
) -> Restored:
    target, disk = session.source_path, undoing.disk
    files = AGENTS.files_of(session.tool)
    done = Restored(session_id=session.session_id, restored=snapshot.id, path=str(target))
    if _is_as_before(snapshot, session):
        return done
    if not undoing.force:
        _refuse_later(session, entry)
    with SessionUse(session.tool, session.session_id, session.source_path).kept_out():
        before = snapshots.save(target, session.session_id, undoing.now, disk=disk, files=files)
        snapshots.note(
            session, snapshots.ROLLBACK, before, target, undoing.now,
            size_after=sum(map(len, snapshots.content(snapshot))), change=undoing.change, restored=snapshot.id,
            beside="yes" if entry.beside else "",
        )  # fmt: skip
        files.replace(target, snapshots.content(snapshot), session.stamp, disk)
    return replace(done, snapshot=before.id if before else None)


def _is_as_before(snapshot: snapshots.Snapshot, session: Transcript) -> bool:
    if session.stamp is None:
        return False
    files = AGENTS.files_of(session.tool)
    return session.stamp.size == sum(map(len, snapshots.content(snapshot))) and files.begins_with(
        session.source_path, snapshots.content(snapshot)
    )


def _destination(snapshot: snapshots.Snapshot, entry: snapshots.NotedChange, to: Path | None, disk: Disk) -> Transcript:
    known = entry.source_path
    if to is None and not known:
        raise Usage(
            f"The original path is unknown for snapshot {snapshot.id}",
            advice("Give a path: --to PATH.", tool="Name the path to restore."),
        )
    target = (to or Path(known)).expanduser().resolve()
    tool, session_id = entry.tool or Transcript.UNKNOWN, entry.session_id or snapshot.session_id
    return Transcript(tool, target, session_id, (), stamp=AGENTS.files_of(tool).stamp(target, disk))


def _refuse_later(session: Transcript, entry: snapshots.NotedChange) -> None:
    after = entry.size_after
    if session.stamp is not None and after is not None and session.stamp.size > after:
        raise ForkRefused(
            f"The session continued after the cut: {session.source_path}",
            advice(
                "Undoing would also remove the newer turns. --force does it, and keeps a snapshot.",
                tool="Undoing would also remove the newer turns.",
            ),
        )


def branch(
    reference: str, turns: str = "", ids: Sequence[str] = (), *, secrets: bool = False, new_session_id: str = "",
    target_cwd: Path | None = None, force: bool = False, now: datetime | None = None,
) -> Trimmed:  # fmt: skip
    """Write a copy of a session without the named turns, with a new id, where its agent finds it.

    With `secrets`, mask the secrets in the named turns instead, or in all turns if no turn is named.

    Raises:
        Usage, NotFound: something in the request is not acceptable.
        Refused: there is a warning or a problem, and `force` is not set.
        ForkRefused: the agent is answering, the session has no prompt, or a session of the new id exists.
    """
    session = resolve_transcript(reference, numbered=True)
    if session.tool not in READERS.names:
        raise Usage(f"There are no branches of {session.tool} sessions")
    planned = _planned_copy(session, turns, ids, secrets=secrets)
    if not force:
        planned.refuse()
    agent = session.tool
    moment = now or datetime.now()  # noqa: DTZ005 - Codex names its files by local time
    parent = _conversation(session, moment)
    new = AGENTS.check_id(agent, new_session_id or AGENTS.starter_of(agent).new_id(), "new")
    target = AGENTS.copier_of(agent).place(session.source_path, NewSession(new, target_cwd, moment))
    cwd = str(target_cwd) if target_cwd else parent.cwd
    with new_title(_name(planned, parent), recorded(cwd) or target.parent, moment.timestamp()) as title:
        notes = _write(planned, parent, target, NewSession(new, target_cwd, moment, title))
    provenance.remember_handover(provenance.HandedOver(new, agent, agent, session.session_id))
    made, written = Transcript(session.tool, target, new, ()), AGENTS.files_of(agent).stamp(target)
    snapshots.note(
        made, "branch", None, target, moment.astimezone(), size_after=written.size if written else 0,
        removed_ids=[turn.id for turn in planned.removed], seed_ids=sorted(planned.seeds),
        orphaned=sorted(planned.orphaned),
    )  # fmt: skip
    cut = planned.report(dry_run=False)
    known = {one.name: getattr(cut, one.name) for one in fields(cut)}
    return Trimmed(**known | {
        "session_id": new,
        "path": str(target),
        "warnings": (*cut.warnings, *(CutWarning("", note) for note in notes)),
        "agent_type": agent,
        "title": shown_title(title),
        "parent": Parent(session.session_id, shown_title(parent.title)),
        "working_directory": cwd,
        "resume_command": command_to_resume(agent, new, cwd),
        "resume_original": command_to_resume(agent, session.session_id, parent.cwd),
        "new_session_id": new,
        "new_path": str(target),
    })  # fmt: skip


def _planned_copy(session: Transcript, turns: str, ids: Sequence[str], *, secrets: bool) -> CutPlan:
    named = chosen_turns(session, turns, ids) if turns or ids else set[str]()
    planned = CutPlan.masking(session, (), named or None) if secrets else CutPlan.of(session, named)
    if not planned.changes:
        raise Usage(
            "there are no secrets to mask" if secrets else "nothing to cut was named",
            advice("Give a range such as 5-7,9, or --id.", tool="Give turns, such as 5-7,9, or ids."),
        )
    return planned


def _name(planned: CutPlan, parent: Conversation) -> str:
    """Return the parent's title; if that quotes a cut prompt, a title made from a remaining prompt."""
    staying = planned.survivors
    gone = titles.marks(key for turn in planned.removed for key in turn.says)
    gone -= titles.marks(key for turn in staying for key in turn.says)
    if gone.isdisjoint(titles.mark_of_title(parent.title)):
        return parent.title
    return title_of("", (turn.preview for turn in staying if turn.prompt))


def _conversation(session: Transcript, now: datetime) -> Conversation:
    conversation = session.conversation
    if conversation is None:
        raise ForkRefused("No conversation to branch.", "It has no prompt.")
    SessionUse.refuse_while_working(
        conversation, now.timestamp(), "Try again when the agent has answered.", "Try again when they have ended."
    )
    return conversation


def _write(planned: CutPlan, parent: Conversation, target: Path, new: NewSession) -> list[str]:
    """Write the copy and the files next to it. After an error, delete what was written.

    Return a sentence for each file that is missing next to the parent's log.
    """
    source = planned.session.source_path
    original = replace(parent, session_id=planned.session.session_id, source_path=source)
    copy = AGENTS.copier_of(parent.agent).of_records(original, _records(planned), new)
    if copy is None:
        what = f"Exchanges of a {AGENTS[parent.agent].title} session cannot be dropped"
        raise ForkRefused(what, "Fork it at a message instead.")

    def without_what_is_gone() -> None:
        for path in filter(lambda one: one.is_relative_to(source.with_suffix("")), planned.beside):
            remove(target.with_suffix("") / path.relative_to(source.with_suffix("")))

    return list(AGENTS.copier_of(parent.agent).write(copy, target, new, Machine(), without_what_is_gone).warnings)


def _records(planned: CutPlan) -> Iterator[tuple[bytes, dict[str, Any]]]:
    """Yield the records that stay in the copy: the bytes of each line, and its JSON object."""
    for position, turn in enumerate(planned.session.turns):
        if turn.id not in planned.gone:
            yield from decode_line(planned.edits.get(position, turn.raw))[0]
