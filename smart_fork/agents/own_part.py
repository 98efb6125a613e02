"""A worker's own turns: its log may begin with a copy of its parent's."""

from __future__ import annotations

from indexer.transcripts.model import Session, Turn
from smart_fork.registry.workers import WorkerRecord


def own_part(session: Session, worker: WorkerRecord) -> tuple[Turn, ...]:
    """Return the worker's own turns in order. Copied turns keep their times, so turns since its start are its own."""
    start = next((i for i, turn in enumerate(session.turns) if turn.timestamp >= worker.started_at), None)
    return session.turns[start:] if start is not None else ()
