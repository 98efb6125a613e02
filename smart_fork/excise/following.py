"""Writes a cut into its session, and into everything that was made of that: copies, branches, forks of forks."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

from indexer.disk import DISK, Disk
from indexer.failures import what_failed
from indexer.files import replace_file
from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import Transcript
from smart_fork.errors import SmartForkError, advice
from smart_fork.excise import propagation
from smart_fork.excise.answer import Followed, NotFollowed
from smart_fork.excise.plan import Plan, plan
from smart_fork.excise.replacement import write_lines, written_path, written_size
from smart_fork.excise.secrets import masked
from smart_fork.forking.family import Descent
from smart_fork.forking.occupation import Occupation

NOTHING = Descent()


@dataclass(frozen=True, slots=True)
class Change:
    """What all files of one cut have in common. `keys` are those of the records that go, `masked` those of records that
    lose their secrets.

    `follows` says whether what lies beside a log goes with it.
    """

    keys: frozenset[str]
    masked: frozenset[str]
    command: str
    id: str
    now: datetime
    disk: Disk = DISK
    follows: bool = True


def change_of(planned: Plan, command: str, disk: Disk, now: datetime, *, follows: bool) -> Change:
    """The change that a plan for a session is."""
    keys, masks = frozenset(propagation.keys_of(planned.removed)), frozenset(_masked(planned))
    return Change(keys, masks, command, uuid.uuid4().hex, now, disk, follows)


def write(
    planned: Plan, change: Change, command: str = "", descent: Descent = NOTHING
) -> tuple[str | None, list[Followed]]:
    """Cut one transcript, and take away what lies beside it and goes. Its `descent` is noted.

    Return the snapshot of before, and the files beside it that went.

    Raises:
        ForkRefused: it is running, or has changed.
        OSError: nothing was written.
    """
    session, disk, agent = planned.session, change.disk, AGENTS.cutter_of(planned.session.tool)
    target = written_path(session)
    gone = {position for position, turn in enumerate(session.turns) if turn.id in planned.gone}
    with Occupation(session.tool, session.session_id, session.source_path).kept_out():
        snapshot = snapshots.take(
            target, session.session_id, change.now, disk=disk, files=AGENTS.cutter_of(session.tool)
        )
        note = partial(snapshots.note, session, snapshot=snapshot, target=target, now=change.now, change=change.id)
        try:
            note(
                command or change.command, size_after=written_size(session, gone, planned.edits),
                removed_ids=[turn.id for turn in planned.removed],
                seed_ids=[turn.id for turn in planned.removed if turn.id in planned.seeds],
                orphaned=sorted(planned.orphaned),
                keys=sorted(propagation.keys_of(planned.removed)), masked=_masked(planned),
                below=sorted({one.session_id for one in descent.below if not one.told}), above=sorted(descent.above),
                unclear=sorted({one.session_id for one in descent.unclear if not one.told}),
            )  # fmt: skip
            changed = changed_beside(planned, change.keys | change.masked) if change.follows else {}
            beside = [_noted(session, path, change, len(new)) for path, new in changed.items()]
            agent.forget(session)
            write_lines(session, gone, planned.edits, disk=disk)
        except BaseException:
            with suppress(OSError):
                now = AGENTS.cutter_of(session.tool).stamp(target)
                note(snapshots.FAILED, size_after=now.size if now else 0)
            raise
        for path, new in changed.items():
            bring(path, new)
    with suppress(OSError):
        snapshots.prune(change.now)
    return snapshot.id if snapshot else None, beside


def follow(session: Transcript, change: Change, copies: Iterable[Path]) -> tuple[list[Followed], list[NotFollowed]]:
    """Make the same cut in copies and branches of a session; those that have nothing of it are in neither list."""
    done = [one for copy in copies for one in _followed(session, change, copy)]
    left = [one for one in done if isinstance(one, NotFollowed)]
    return [one for one in done if isinstance(one, Followed)], left


def resume(session: Transcript, change_id: str) -> tuple[list[Followed], list[NotFollowed]]:
    """Finish a cut of a session where it was ended in the middle; nothing where it was not made, or was undone."""
    made = next((one for one in snapshots.cuts(written_path(session)) if one.change == change_id), None)
    if made is None or _is_as_before(session, made):
        return [], []
    AGENTS.cutter_of(session.tool).finish(session.source_path)
    keys, masks = frozenset(made.keys), frozenset(made.masked)
    change = Change(keys, masks, made.command, made.change, datetime.now(UTC))
    together = [one for one in snapshots.logged() if one.change == change_id]
    for one in together:
        if one.beside and not one.size_after:
            bring(Path(one.source_path), b"")
    for log in (Path(one.source_path) for one in together if not one.beside):
        for path, new in AGENTS.cutter_of(session.tool).revised(log, keys | masks).items():
            bring(path, new)
    return follow(session, change, propagation.descent_of(session, keys | masks).copies)


def beside_of(planned: Plan) -> list[Path]:
    """The files beside the transcript that hold what goes."""
    return AGENTS.cutter_of(planned.session.tool).beside(planned.session.source_path, planned.removed)


def _followed(session: Transcript, change: Change, copy: Path) -> Sequence[Followed | NotFollowed]:
    other = propagation.load_copy(session, copy)
    if other is None:
        return [NotFollowed(str(copy), "cannot be read")]
    same = propagation.matching(other, change.keys)
    planned = masked(other, same, None) if change.masked else plan(other, same)
    if not planned.changes:
        return ()
    again = advice("the next `smart-fork index run` cuts it", tool="the next index run cuts it")
    if who := Occupation(other.tool, other.session_id, other.source_path).writer:
        return [NotFollowed(str(copy), f"it is running: {who}. End it: {again}.")]
    try:
        snapshot, beside = write(planned, change, f"{change.command} (followed {session.session_id})")
    except (SmartForkError, OSError) as error:
        return [NotFollowed(str(copy), f"{what_failed(error).rstrip('.')}: {again}.")]
    return [Followed(other.session_id, str(copy), len(planned.removed), snapshot), *beside]


def changed_beside(planned: Plan, keys: Collection[str]) -> dict[Path, bytes]:
    """Return the new content of each file beside a transcript that changes; of a file that goes, nothing."""
    session = planned.session
    revised = AGENTS.cutter_of(session.tool).revised(session.source_path, keys)
    return {**dict.fromkeys(beside_of(planned), b""), **revised}


def bring(path: Path, new: bytes) -> None:
    """Give a file beside a log its new content; delete it if that is empty."""
    if new:
        replace_file(path, [new], like_before=True)
    else:
        path.unlink(missing_ok=True)


def _noted(session: Transcript, path: Path, change: Change, size: int) -> Followed:
    """Keep a file beside a log before it is changed or deleted, and note that."""
    snapshot = snapshots.take(path, session.session_id, change.now, disk=change.disk)
    command = f"{change.command} (beside {session.session_id})"
    snapshots.note(session, command, snapshot, path, change.now, size_after=size, change=change.id, beside="yes")
    return Followed(session.session_id, str(path), 0, snapshot.id if snapshot else None)


def _masked(planned: Plan) -> list[str]:
    """The keys of the lines that stay without their secrets; of those without one their ids."""
    turns = planned.session.turns
    own = [turns[at].key or turns[at].id for at in sorted(planned.edits)] if planned.masked else []
    return [*own, *sorted(planned.apart)]


def _is_as_before(session: Transcript, made: snapshots.Noted) -> bool:
    """Whether a file still begins with all that was there before a cut: it was only about to be made."""
    kept = next((one for one in snapshots.snapshots(made.session_id) if one.id == made.snapshot), None)
    return kept is not None and AGENTS.cutter_of(session.tool).begins_with(session.source_path, snapshots.content(kept))
