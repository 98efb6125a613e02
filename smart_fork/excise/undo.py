"""Undoing a cut: each transcript that it changed as the snapshots have it, byte for byte. Also finds the last one."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from indexer.disk import DISK, Disk
from indexer.failures import what_failed
from indexer.shapes import dataclass
from smart_fork.agents import AGENTS
from smart_fork.agents.cuts import snapshots
from smart_fork.agents.cuts.model import UNKNOWN, Transcript
from smart_fork.agents.cuts.snapshots import Noted, Snapshot
from smart_fork.errors import ForkRefused, SmartForkError, Usage
from smart_fork.excise import propagation
from smart_fork.excise.answer import NotFollowed, Restored, RolledBack
from smart_fork.forking.occupation import Occupation


@dataclass(frozen=True, slots=True)
class Cut:
    """A cut that stands. `snapshot` undoes it, in all `files` that it has changed."""

    snapshot: str
    made: str
    turns: int
    files: int


def last_cut(session_id: str) -> Cut | None:
    """The newest cut in the log of a session, or in a copy, that has a snapshot; what was undone is none."""
    kept = {one.id for one in snapshots.snapshots(session_id)}
    logged = snapshots.logged()
    sources = {one.source_path for one in logged if one.session_id == session_id and not one.beside}
    found = [one for source in sources for one in snapshots.cuts(Path(source)) if one.snapshot in kept]
    if not found:
        return None
    newest = max(found, key=lambda one: one.ts)
    together = {one.source_path for one in logged if newest.change and one.change == newest.change}
    return Cut(newest.snapshot, newest.ts, len(newest.removed_ids), max(1, len(together)))


@dataclass(frozen=True, slots=True)
class _Undoing:
    """What all files of one undoing have in common."""

    force: bool
    disk: Disk
    now: datetime
    change: str


def rollback(
    identity: str, *, to: Path | None = None, force: bool = False, disk: Disk = DISK, now: datetime | None = None
) -> RolledBack:
    """Put a transcript back as a snapshot has it, and with it all that was changed by the same cut or rollback.

    What is there now is kept as a snapshot itself. With `to` that one file is written there. What cannot be put back of
    the others is named in `left`.

    Raises:
        NotFound, Usage: there is no such snapshot, or it is not known where it belongs.
        ForkRefused: the session is running, or has gone on since.
        OSError: nothing was written.
    """
    snapshot = snapshots.find(identity)
    logged = snapshots.logged()
    entry = next((one for one in reversed(logged) if one.snapshot == snapshot.id), Noted())
    undoing = _Undoing(force or to is not None, disk, now or datetime.now(UTC), uuid.uuid4().hex)
    session = _destination(snapshot, entry, to, disk)
    done = [_put_back(snapshot, session, entry, undoing)]
    left: list[NotFollowed] = []
    for other in _changed_with(entry, logged) if to is None else ():
        try:
            done.append(_put_back_other(other, undoing))
        except (SmartForkError, OSError) as error:
            left.append(NotFollowed(other.source_path, what_failed(error)))
    with suppress(OSError):
        snapshots.prune(undoing.now)
    paths = [Path(one.path) for one in done]
    index = propagation.refresh(session.tool, paths)
    named = done[0]
    return RolledBack(
        session_id=named.session_id, restored=named.restored, path=named.path, snapshot=named.snapshot,
        followed=tuple(done[1:]), left=tuple(left), index=index,
    )  # fmt: skip


def _changed_with(entry: Noted, logged: Iterable[Noted]) -> list[Noted]:
    """What is noted of the other files that were changed together with one."""
    together = (one for one in logged if entry.change and one.change == entry.change)
    others = (one for one in together if one.source_path != entry.source_path)
    return list({one.source_path: one for one in others if one.snapshot or one.beside}.values())


def _put_back_other(entry: Noted, undoing: _Undoing) -> Restored:
    if not entry.snapshot:
        return _taken_away(entry, undoing)
    snapshot = snapshots.find(entry.snapshot)
    session = _destination(snapshot, entry, None, undoing.disk)
    if session.stamp is None and not entry.beside:
        raise ForkRefused("it no longer exists")
    return _put_back(snapshot, session, entry, undoing)


def _taken_away(entry: Noted, undoing: _Undoing) -> Restored:
    """Take away once more what went beside a transcript, and came back with a rollback."""
    session, path = Transcript(entry.tool, Path(entry.source_path), entry.session_id, ()), Path(entry.source_path)
    before = snapshots.take(path, entry.session_id, undoing.now, disk=undoing.disk)
    snapshots.note(
        session, snapshots.ROLLBACK, before, path, undoing.now, size_after=0, change=undoing.change, beside="yes"
    )
    path.unlink(missing_ok=True)
    return Restored(session_id=entry.session_id, restored="", path=str(path), snapshot=before.id if before else None)


def _put_back(snapshot: Snapshot, session: Transcript, entry: Noted, undoing: _Undoing) -> Restored:
    target, disk = session.source_path, undoing.disk
    files = AGENTS.files_of(session.tool)
    done = Restored(session_id=session.session_id, restored=snapshot.id, path=str(target))
    if _is_as_before(snapshot, session):
        return done
    if not undoing.force:
        _refuse_later(session, entry)
    with Occupation(session.tool, session.session_id, session.source_path).kept_out():
        before = snapshots.take(target, session.session_id, undoing.now, disk=disk, files=files)
        snapshots.note(
            session, snapshots.ROLLBACK, before, target, undoing.now,
            size_after=sum(map(len, snapshots.content(snapshot))), change=undoing.change, restored=snapshot.id,
            beside="yes" if entry.beside else "",
        )  # fmt: skip
        files.replace(target, snapshots.content(snapshot), session.stamp, disk)
    return replace(done, snapshot=before.id if before else None)


def _is_as_before(snapshot: Snapshot, session: Transcript) -> bool:
    """Whether the file is what was kept: an undone cut, or one that could not be made."""
    if session.stamp is None:
        return False
    files = AGENTS.files_of(session.tool)
    return session.stamp.size == sum(map(len, snapshots.content(snapshot))) and files.begins_with(
        session.source_path, snapshots.content(snapshot)
    )


def _destination(snapshot: Snapshot, entry: Noted, to: Path | None, disk: Disk) -> Transcript:
    known = entry.source_path
    if to is None and not known:
        raise Usage(f"The original path is unknown for snapshot {snapshot.id}", "Give a path: --to PATH.")
    target = (to or Path(known)).expanduser().resolve()
    tool, session_id = entry.tool or UNKNOWN, entry.session_id or snapshot.session_id
    return Transcript(tool, target, session_id, (), stamp=AGENTS.files_of(tool).stamp(target, disk))


def _refuse_later(session: Transcript, entry: Noted) -> None:
    after = entry.size_after
    if session.stamp is not None and after is not None and session.stamp.size > after:
        raise ForkRefused(
            f"The session continued after the cut: {session.source_path}",
            "Undoing would also remove the newer turns. --force does it, and keeps a snapshot.",
        )
