"""Cutting a transcript: what the command line and the server offer."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from indexer.changes import Progress
from indexer.disk import DISK, Disk
from indexer.paths import index_db
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import snapshots, titles
from smart_fork.agents.cuts.model import CutWarning, Place, Transcript
from smart_fork.agents.readers import READERS
from smart_fork.errors import ForkRefused, Usage, advice
from smart_fork.excise import erasure, propagation
from smart_fork.excise.answer import Excised, NotFollowed, Request
from smart_fork.excise.following import beside_of, change_of, follow, write
from smart_fork.excise.plan import Plan, plan, refuse
from smart_fork.excise.remnants import says
from smart_fork.excise.replacement import written_path
from smart_fork.excise.secrets import masked
from smart_fork.excise.soundness import gone_of, remaining
from smart_fork.excise.traces import related, words_in
from smart_fork.excise.transcript import chosen, load_for_cut, meant
from smart_fork.forking.family import Descendant, Descent
from smart_fork.system import permission
from smart_fork.system.cancellation import refuse_cancelled
from smart_fork.workers.registry import known_workers

#: Asked between what would be done and doing it; whoever answers no has nothing written.
Agree = Callable[[Plan], bool]


def _steps(progress: Progress | None, total: int, stage: str = "cutting and erasing") -> Iterator[None]:
    """Tell how many steps of a cut are done: each log that is cut, then indexing, erasing and searching."""
    for done in range(total + 1):
        if progress:
            progress(stage, done, total)
        yield


def cut(
    request: Request, *, agree: Agree = lambda _plan: True, disk: Disk = DISK, now: datetime | None = None,
    progress: Progress | None = None,
) -> Excised:  # fmt: skip
    """Cut turns out of a transcript, or mask the secrets in it; what else holds them follows.

    Raises:
        Usage: something in the request is not acceptable.
        NotFound: there is no such transcript.
        Refused: a warning or a problem, and it was not insisted on.
        ForkRefused: the session is running, has changed meanwhile, or the turns are another one's.
        OSError: nothing was written.
    """
    if not request.dry_run:
        titles.keep_key()
    steps = _steps(progress, 2, "reading the session")
    next(steps)
    session = meant(request.reference, request.tool, request.composer, numbered=True)
    next(steps)
    planned = _planned(session, request)
    next(steps)
    outcome = report(planned, dry_run=request.dry_run)
    if request.dry_run:
        return outcome
    if not request.force:
        refuse(planned)
    _refuse_inherited(planned)
    if not planned.changes:
        return outcome
    if not agree(planned):
        return replace(outcome, aborted=True)
    refuse_cancelled()
    moment = now or datetime.now(UTC)
    change = change_of(planned, request.command, disk, moment, follows=request.follow)
    descent = propagation.descent_of(session, change.keys | change.masked)
    if not request.follow:
        snapshot, _ = write(planned, change, descent=descent)
        return _told(replace(outcome, snapshot=snapshot), planned, {session.session_id}, descent)
    ids = {session.session_id, *(one.session_id for one in descent.logs)}
    others = [one for one in descent.beside if not one.told or says(one, planned)]
    note = erasure.owe(session, ids, change.id)
    copies = descent.copies
    steps = _steps(progress, len(copies) + 4)
    next(steps)
    snapshot, beside = write(planned, change, descent=descent)
    followed, left = follow(session, change, (copy for copy, _ in zip(copies, steps, strict=False)))
    next(steps)
    logs = [written_path(session), session.source_path, *(Path(one.path) for one in followed)]
    index = propagation.refresh(session.tool, logs)
    next(steps)
    indexed = index.updated or not index_db().exists()  # else it is owed until it is
    if indexed and not left:
        erasure.owe_no_cut(note)
    now_there = load_for_cut(session.tool, session.source_path)
    gone = gone_of(now_there)
    erased = indexed and erasure.settle({note: gone.in_bytes}) and index.erased is not False
    next(steps)
    known = {one.path for one in left}
    left += [NotFollowed(one.path, one.reason) for one in remaining(now_there, gone) if one.path not in known]
    next(steps)
    outcome = replace(
        outcome, snapshot=snapshot, followed=(*beside, *followed), left=tuple(left), index=index,
        erased=erased and not left,
    )  # fmt: skip
    return _told(outcome, planned, ids, descent, others)


def _told(
    outcome: Excised, planned: Plan, ids: Collection[str], descent: Descent, others: Iterable[Descendant] = ()
) -> Excised:
    """What a person should know of what was written."""
    kept = tuple(one.id for name in sorted(ids) for one in snapshots.snapshots(name))
    discard = shlex.join(["smart-fork", "excise", "discard", *kept])
    return replace(outcome, remains=tuple(_remains(planned, descent, others)), snapshots=kept, discard=discard)


def report(planned: Plan, *, dry_run: bool) -> Excised:
    """A cut in words and figures."""
    session = planned.session
    gone = [turn.id for turn in planned.removed]
    turns = zip(session.numbers, session.turns, strict=True)
    return Excised(
        session_id=session.session_id,
        tool=session.tool,
        path=str(session.source_path),
        dry_run=dry_run,
        removed=tuple(gone),
        seeds=tuple(one for one in gone if one in planned.seeds),
        dependents=tuple(one for one in gone if one in planned.dependents),
        repeated=tuple(one for one in gone if one in planned.repeated),
        numbers=tuple(number for number, turn in turns if turn.id in planned.gone),
        warnings=(*planned.warnings, *(CutWarning("", reason) for reason in planned.problems)),
        relinked=planned.relinked,
        masked=dict(planned.masked),
        tokens_before=session.tokens,
        tokens_after=planned.tokens_after,
    )


def _remains(planned: Plan, descent: Descent, others: Iterable[Descendant]) -> list[str]:
    """Where what was cut can still be, that is not ours to change."""
    session = planned.session
    found = list(map(str, beside_of(planned)))
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
        for one in descent.below
        if one.told  # else it is followed
    ]
    found += [
        f"session {one.session_id} of {AGENTS.title_of(one.agent)}, "
        "which has the same turns and was not made of this one"
        for one in others
    ]
    found += _named_after(planned)
    if permission.limited():
        found.append("copies in projects that this client may not read, if any")
    return found


def _named_after(planned: Plan) -> Iterator[str]:
    """The worktrees of workers, with their git branches, that are named after a prompt which goes."""
    words = words_in("\n".join(turn.preview for turn in planned.removed if turn.prompt))
    for worker in known_workers() if words else ():
        name = Path(worker.worktree).name if worker.worktree else ""
        if related(worker, {planned.session.session_id}) and words & words_in(name):
            yield f"worktree {worker.worktree} and git branch {worker.branch}, named after the cut text"


def _planned(session: Transcript, request: Request) -> Plan:
    named = bool(request.turns or request.ids)
    if not named and not request.secrets:
        raise Usage(
            "nothing to cut was named",
            advice(
                "Give a range such as 5-7,9, or --id, or --secrets.",
                tool="Give turns, such as 5-7,9, or ids, or secrets.",
            ),
        )
    ids = chosen(session, request.turns, request.ids) if named else set()
    if not request.secrets:
        planned = plan(session, ids, relink=request.relink)
        first = min((int(turn.id) for turn in planned.removed if turn.id.isdigit()), default=0)
        files = {turn.kept.path for turn in planned.removed if isinstance(turn.kept, Place)} if session.padded else ()
        reads_on = propagation.heirs(session.tool, files, first)
        ids_of = (READERS[session.tool].id_of(path) for path in reads_on)
        heirs = [one for one in ids_of if one != session.session_id]
        if not heirs:
            return planned
        lost = f"{len(heirs)} forks read these turns from this file and lose them as well: {', '.join(heirs)}"
        return replace(planned, problems=(*planned.problems, lost))
    planned = masked(session, (), ids if named else None, relink=request.relink)
    keys = propagation.keys_of(turn for turn in session.turns if turn.id in ids)
    kinds, apart = Counter(planned.masked), set[str]()
    for other in filter(None, (propagation.load_copy(session, path) for path in propagation.others(session))):
        there = masked(other, (), propagation.matching(other, keys) if named else None)
        kinds.update(there.masked)
        apart |= {other.turns[position].key or other.turns[position].id for position in there.edits}
    return replace(planned, masked=dict(kinds), apart=frozenset(apart))


def _refuse_inherited(planned: Plan) -> None:
    inherited = [turn.id for turn in planned.removed if turn.is_parents]
    if inherited:
        raise ForkRefused(
            f"{len(inherited)} of these turns belong to its parent session: {planned.session.base}",
            advice(
                "Cut a copy with --branch, or cut them there.",
                tool="Cut them there, or use branch_session first and cut the copy.",
            ),
        )
