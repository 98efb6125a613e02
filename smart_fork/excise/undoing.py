"""Undoing a cut: a transcript as a snapshot has it, byte for byte (E-062, E-064)."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from smart_fork.errors import ForkRefused, Usage
from smart_fork.excise import following, snapshots
from smart_fork.excise.disk import DISK, Disk
from smart_fork.excise.model import Session
from smart_fork.excise.running import nobody_writing
from smart_fork.excise.writing import replace_file


def rollback(
    identity: str, *, to: Path | None = None, force: bool = False, disk: Disk = DISK, now: datetime | None = None
) -> dict[str, Any]:
    """Put a transcript back as a snapshot has it; what is there now is kept as a snapshot itself.

    Raises:
        NotFound, Usage: there is no such snapshot, or it is not known where it belongs.
        ForkRefused: the session is running, or has gone on since.
        OSError: nothing was written.
    """
    snapshot = snapshots.find(identity)
    entry: dict[str, Any] = next(
        (one for one in reversed(snapshots.logged()) if one.get("snapshot") == snapshot.id), {}
    )
    session = _destination(snapshot, entry, to, disk)
    if to is None and not force:
        _refuse_later(session, entry)
    target, moment = session.source_path, now or datetime.now(UTC)
    with nobody_writing(session):
        before = snapshots.take(target, session.session_id, moment, disk=disk)
        replace_file(target, snapshots.content(snapshot), expected=session.stamp, disk=disk)
    snapshots.note(session, "rollback", before, target, moment, removed=[], seeds=[])
    with suppress(OSError):
        snapshots.prune(moment)
    index = following.refresh([target, *following.heirs(session)])
    return {"restored": snapshot.id, "path": str(target), "snapshot": before.id if before else None, "index": index}


def _destination(snapshot: snapshots.Snapshot, entry: dict[str, Any], to: Path | None, disk: Disk) -> Session:
    known = str(entry.get("source_path") or "")
    if to is None and not known:
        raise Usage(f"It is not known where snapshot {snapshot.id} belongs", "Say where: --to PATH.")
    target = (to or Path(known)).expanduser().resolve()
    tool: Any = entry.get("tool") or "unknown"
    session_id = str(entry.get("session_id") or snapshot.session_id)
    return Session(tool, target, session_id, (), stamp=disk.stamp(target))


def _refuse_later(session: Session, entry: dict[str, Any]) -> None:
    after = entry.get("size_after")
    if session.stamp is not None and isinstance(after, int) and session.stamp.size > after:
        raise ForkRefused(
            f"The session has gone on since: {session.source_path}",
            "Undoing the cut would undo that as well: --force does, and keeps a snapshot of it.",
        )
