"""Undoing a cut: every transcript that it has changed as the snapshots have it, byte for byte."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from indexer.disk import DISK, Disk
from smart_fork.cuts import snapshots
from smart_fork.cuts.lines import stamp_of
from smart_fork.cuts.model import UNKNOWN, Transcript
from smart_fork.cuts.snapshots import Snapshot
from smart_fork.errors import ForkRefused, SmartForkError, Usage
from smart_fork.excise import propagation
from smart_fork.excise.replacement import replace_transcript
from smart_fork.excise.writers import nobody_writing


@dataclass(frozen=True, slots=True)
class _Undoing:
    """What all files of one undoing have in common."""

    force: bool
    disk: Disk
    now: datetime
    change: str


def rollback(
    identity: str, *, to: Path | None = None, force: bool = False, disk: Disk = DISK, now: datetime | None = None
) -> dict[str, Any]:
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
    entry: dict[str, Any] = next((one for one in reversed(logged) if one.get("snapshot") == snapshot.id), {})
    undoing = _Undoing(force or to is not None, disk, now or datetime.now(UTC), uuid.uuid4().hex)
    session = _destination(snapshot, entry, to, disk)
    done = [_put_back(snapshot, session, entry, undoing)]
    left: list[dict[str, str]] = []
    for other in _changed_with(entry, logged) if to is None else ():
        try:
            done.append(_put_back_other(other, undoing))
        except (SmartForkError, OSError) as error:
            left.append({"path": str(other["source_path"]), "reason": str(error)})
    with suppress(OSError):
        snapshots.prune(undoing.now)
    paths = [Path(one["path"]) for one in done]
    index = propagation.refresh(session.tool, [*paths, *propagation.heirs(session)])
    return {**done[0], "followed": done[1:], "left": left, "index": index}


def _changed_with(entry: Mapping[str, Any], logged: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is noted of the other files that were changed together with one."""
    change, own = entry.get("change"), entry.get("source_path")
    others = (one for one in logged if change and one.get("change") == change and one.get("source_path") != own)
    return list({one["source_path"]: one for one in others if one.get("snapshot")}.values())


def _put_back_other(entry: Mapping[str, Any], undoing: _Undoing) -> dict[str, Any]:
    snapshot = snapshots.find(str(entry["snapshot"]))
    session = _destination(snapshot, entry, None, undoing.disk)
    if session.stamp is None:
        raise ForkRefused("it is not there any more")
    return _put_back(snapshot, session, entry, undoing)


def _put_back(snapshot: Snapshot, session: Transcript, entry: Mapping[str, Any], undoing: _Undoing) -> dict[str, Any]:
    target, disk = session.source_path, undoing.disk
    done = {"session_id": session.session_id, "restored": snapshot.id, "path": str(target), "snapshot": None}
    if _is_as_before(snapshot, session):
        return done
    if not undoing.force:
        _refuse_later(session, entry)
    with nobody_writing(session):
        before = snapshots.take(target, session.session_id, undoing.now, disk=disk)
        snapshots.note(
            session, snapshots.ROLLBACK, before, target, undoing.now,
            size_after=sum(map(len, snapshots.content(snapshot))), change=undoing.change, restored=snapshot.id,
        )  # fmt: skip
        replace_transcript(target, snapshots.content(snapshot), expected=session.stamp, disk=disk)
    return done | {"snapshot": before.id if before else None}


def _is_as_before(snapshot: Snapshot, session: Transcript) -> bool:
    """Whether the file is what was kept: an undone cut, or one that could not be made."""
    if session.stamp is None:
        return False
    with session.source_path.open("rb") as file:
        same = all(piece == file.read(len(piece)) for piece in snapshots.content(snapshot))
        return same and not file.read(1)


def _destination(snapshot: Snapshot, entry: Mapping[str, Any], to: Path | None, disk: Disk) -> Transcript:
    known = str(entry.get("source_path") or "")
    if to is None and not known:
        raise Usage(f"It is not known where snapshot {snapshot.id} belongs", "Say where: --to PATH.")
    target = (to or Path(known)).expanduser().resolve()
    tool = str(entry.get("tool") or UNKNOWN)
    session_id = str(entry.get("session_id") or snapshot.session_id)
    now = disk.look(target)
    return Transcript(tool, target, session_id, (), stamp=stamp_of(now) if now else None)


def _refuse_later(session: Transcript, entry: Mapping[str, Any]) -> None:
    after = entry.get("size_after")
    if session.stamp is not None and isinstance(after, int) and session.stamp.size > after:
        raise ForkRefused(
            f"The session has gone on since: {session.source_path}",
            "Undoing the cut would undo that as well: --force does, and keeps a snapshot of it.",
        )
