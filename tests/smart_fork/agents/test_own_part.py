"""The worker's own part of its log."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexer.transcripts.model import Session, Turn
from smart_fork.workers.registry import Registry

COPIED, STARTED, OWN = (f"2026-01-01T00:00:0{second}.000Z" for second in (1, 2, 3))


@pytest.fixture
def worker(home):
    with Registry() as registry:
        return registry.add("claude", source_session_id="x", place="tmux", cwd=Path("/"), now=1767225602.0)


def session(*times: str) -> Session:
    turns = tuple(Turn(str(i), None, "user", time) for i, time in enumerate(times))
    return Session("claude", "s", Path("/s"), turns, "/")


@pytest.mark.parametrize(
    ("times", "own"), [((COPIED, COPIED, OWN), 1), ((COPIED,), 0), ((), 0), ((STARTED, OWN), 2), ((COPIED, OWN, ""), 2)]
)
def test_what_was_said_before_the_worker_started_is_its_parents(worker, times, own):
    """F-105."""
    assert STARTED == worker.started_at
    assert own == len(worker.own_part(session(*times)))
