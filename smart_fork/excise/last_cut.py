"""The cut of a session that was made last and can be undone."""

from __future__ import annotations

from pathlib import Path

from indexer.shapes import dataclass
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
    sources = {one.source_path for one in logged if one.session_id == session_id and not one.beside}
    found = [one for source in sources for one in snapshots.cuts(Path(source)) if one.snapshot in kept]
    if not found:
        return None
    newest = max(found, key=lambda one: one.ts)
    together = {one.source_path for one in logged if newest.change and one.change == newest.change}
    return Cut(newest.snapshot, newest.ts, len(newest.removed_ids), max(1, len(together)))
