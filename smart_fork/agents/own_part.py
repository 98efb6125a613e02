"""What a worker has said itself: its log may begin with a copy of what its parent's says."""

from __future__ import annotations

from indexer.transcripts.model import Session, Turn
from smart_fork.registry.workers import WorkerRecord


def own_part(session: Session, worker: WorkerRecord) -> tuple[Turn, ...]:
    """The worker's own turns, in order: what agents copy keeps its time, so all from the start on are its own."""
    start = next((i for i, turn in enumerate(session.turns) if turn.timestamp >= worker.started_at), None)
    return session.turns[start:] if start is not None else ()
