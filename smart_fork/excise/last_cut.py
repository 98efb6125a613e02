"""The cut of a session that was made last and can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from smart_fork.cuts import snapshots


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
    sources = {str(one.get("source_path")) for one in logged if one.get("session_id") == session_id}
    found = [one for source in sources for one in snapshots.cuts(Path(source)) if one.get("snapshot") in kept]
    if not found:
        return None
    newest = max(found, key=lambda one: str(one.get("ts")))
    change = newest.get("change")
    together = {one.get("source_path") for one in logged if change and one.get("change") == change}
    turns = len(newest.get("removed_ids", ()))
    return Cut(str(newest["snapshot"]), str(newest.get("ts")), turns, max(1, len(together)))
