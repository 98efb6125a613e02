"""Cutting a transcript: what the command line and the server offer."""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from indexer.disk import DISK, Disk
from indexer.paths import index_db
from indexer.shapes import dataclass
from smart_fork import handovers, permission
from smart_fork.advice import advice
from smart_fork.agents.facets import cutter, title_of
from smart_fork.cuts import snapshots
from smart_fork.cuts.answer import Excised, Followed, NotFollowed
from smart_fork.cuts.model import CutWarning, Transcript
from smart_fork.errors import ForkRefused, SmartForkError, Usage
from smart_fork.excise import erasure, propagation
from smart_fork.excise.loader import load_with_tool, located
from smart_fork.excise.message_numbers import numbered
from smart_fork.excise.plan import Plan, plan, refuse
from smart_fork.excise.ranges import chosen
from smart_fork.excise.replacement import write_lines, written_path, written_size
from smart_fork.excise.secrets import masked
from smart_fork.excise.writers import nobody_writing, writer_of

#: Writes what was planned, as the command says.
_Write = Callable[[Plan, str], str | None]
#: Asked between what would be done and doing it; whoever answers no has nothing written.
Agree = Callable[[Plan], bool]


@dataclass(frozen=True, slots=True)
class Request:
    """What is to be cut. `follow` is whether copies, branches and the index follow."""

    reference: str | None = None
    turns: str = ""
    ids: Sequence[str] = ()
    secrets: bool = False
    force: bool = False
    dry_run: bool = False
    relink: bool = True
    follow: bool = True
    tool: str = "auto"
    composer: str = ""
    command: str = "cut"


def cut(
    request: Request, *, agree: Agree = lambda _plan: True, disk: Disk = DISK, now: datetime | None = None
) -> Excised:
    """Cut turns out of a transcript, or mask the secrets in it; what else holds them follows.

    Raises:
        Usage: something in the request is not acceptable.
        NotFound: there is no such transcript.
        Refused: a warning or a problem, and it was not insisted on.
        ForkRefused: the session is running, has changed meanwhile, or the turns are another one's.
        OSError: nothing was written.
    """
    path = located(request.reference, request.tool)
    session = numbered(load_with_tool(request.tool, path, request.composer))
    planned = _planned(session, request)
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
    moment = now or datetime.now(UTC)
    followers = propagation.copies(session) if request.follow else []
    ids = {session.session_id, *propagation.ids_of(session, followers)}
    if request.follow:
        erasure.owe(session, ids)
    change = uuid.uuid4().hex
    write = partial(_write, disk=disk, now=moment, change=change)
    outcome = replace(outcome, snapshot=write(planned, request.command))
    keys = propagation.keys_of(planned.removed)
    done = [_follow(session, copy, keys, request, write) for copy in followers]
    followed = tuple(one for one in done if isinstance(one, Followed))
    left = tuple(one for one in done if isinstance(one, NotFollowed))
    outcome = replace(outcome, followed=followed, left=left)
    if request.follow:
        written = [written_path(session), *(Path(one.path) for one in followed), session.source_path]
        index = propagation.refresh(session.tool, [*written, *propagation.heirs(session)])
        indexed = index.updated or not index_db().exists()  # else it is owed until it is
        outcome = replace(outcome, index=index, erased=indexed and erasure.settle() and index.erased is not False)
    kept = tuple(one.id for name in sorted(ids) for one in snapshots.snapshots(name))
    discard = shlex.join(["smart-fork", "excise", "discard", *kept])
    return replace(outcome, remains=tuple(remains(planned)), snapshots=kept, discard=discard)


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


def remains(planned: Plan) -> list[str]:
    """Where what was cut can still be, that is not ours to change."""
    session = planned.session
    found = list(map(str, beside(planned)))
    home = propagation.home_of(session.tool)
    if home is not None:
        names = ["history.jsonl"] if any(turn.prompt for turn in planned.removed) or planned.masked else []
        found += [str(home / name) for name in names if (home / name).is_file()]
        found += sorted(map(str, home.glob("thread_history_*.sqlite")))
    changed = [*planned.edits, *(at for at, turn in enumerate(session.turns) if turn.id in planned.gone)]
    after = session.turns[min(changed) :]
    compacted = [turn.id for turn in after if turn.meta.get("compacts") and turn.id not in planned.gone]
    found += [f"turn {one}, a summary of what was before it" for one in compacted]
    told = handovers.told_of(session.session_id)
    found += [
        f"session {one.session_id} of {title_of(one.agent)}, which was told of this one"
        for one in told
        if not one.copied  # else it is followed
    ]
    if permission.limited():
        found.append("copies in projects that this client may not ask about, if there are any")
    return found


def beside(planned: Plan) -> list[Path]:
    """The files beside the transcript that hold what goes."""
    return cutter(planned.session.tool).beside(planned.session.source_path, planned.removed)


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
        heirs = propagation.heirs(session, first) if session.padded and planned.changes else []
        return replace(planned, problems=(*planned.problems, *_shared(heirs)))
    return masked(session, (), ids if named else None, relink=request.relink)


def _shared(heirs: Sequence[Path]) -> list[str]:
    if not heirs:
        return []
    names = ", ".join(path.stem[-36:] for path in heirs)
    return [f"{len(heirs)} forks read these turns from this file and lose them as well: {names}"]


def _refuse_inherited(planned: Plan) -> None:
    inherited = [turn.id for turn in planned.removed if turn.inherited]
    if inherited:
        raise ForkRefused(
            f"{len(inherited)} of these turns stand in the session that it was forked from: {planned.session.base}",
            advice(
                "Cut a copy instead: --branch writes one with a session id of its own; or cut them there.",
                tool="Cut them there, or use branch_session first and cut the copy.",
            ),
        )


def _write(planned: Plan, command: str, disk: Disk, now: datetime, change: str = "") -> str | None:
    session = planned.session
    target = written_path(session)
    gone = {position for position, turn in enumerate(session.turns) if turn.id in planned.gone}
    seeds = [turn.id for turn in planned.removed if turn.id in planned.seeds]
    removed = [turn.id for turn in planned.removed]
    with nobody_writing(session):
        snapshot = snapshots.take(target, session.session_id, now, disk=disk)
        note = partial(snapshots.note, session, snapshot=snapshot, target=target, now=now, change=change)
        size = written_size(session, gone, planned.edits)
        try:
            note(command, size_after=size, removed_ids=removed, seed_ids=seeds, orphaned=sorted(planned.orphaned))
            write_lines(session, gone, planned.edits, disk=disk)
        except BaseException:
            with suppress(OSError):
                note(snapshots.FAILED, size_after=target.stat().st_size)
            raise
    with suppress(OSError):
        snapshots.prune(now)
    return snapshot.id if snapshot else None


def _follow(
    session: Transcript, copy: Path, keys: set[str], request: Request, write: _Write
) -> Followed | NotFollowed | None:
    """The same cut in a copy or branch; why it cannot be made there; `None` where there is nothing to cut."""
    other = propagation.load_copy(session, copy)
    if other is None:
        return NotFollowed(str(copy), "cannot be read")
    same = propagation.matching(other, keys)
    planned = masked(other, same, None) if request.secrets else plan(other, same)
    if not planned.changes:
        return None
    if who := writer_of(other):
        return NotFollowed(str(copy), f"it is running: {who}")
    try:
        snapshot = write(planned, f"{request.command} (followed {session.session_id})")
    except (SmartForkError, OSError) as error:
        return NotFollowed(str(copy), str(error))
    return Followed(other.session_id, str(copy), len(planned.removed), snapshot)
