"""What a fork has from the session that it was forked from: a new session begins without it."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.shapes import dataclass
from indexer.transcripts.model import Turn
from smart_fork.agents.births import own_part
from smart_fork.forking.price import instructions
from smart_fork.page.phrases import time_of
from smart_fork.registry.workers import WorkerRecord
from smart_fork.workers.observation import WorkerWatch
from smart_fork.workers.roster import own_session


@dataclass(frozen=True, slots=True)
class Inherited:
    """About so many tokens of conversation, the exchanges in them, and how long their agent worked on those."""

    tokens: int
    exchanges: int
    seconds: float


def inherited(worker: WorkerRecord, watch: WorkerWatch) -> Inherited | None:
    """What a fork began with, as its own log has it; `None` where that has nothing of another session.

    Instructions and tools are not counted: a new session loads them too.
    """
    session = own_session(worker, watch) if worker.kind == "fork" else None
    start = len(session.turns) - len(own_part(session, worker)) if session else 0
    if session is None or not start:
        return None
    had = [exchange.turns[: start - exchange.start] for exchange in session.exchanges() if exchange.start < start]
    tokens = max(0, session.loads()[start - 1] - instructions(session))
    return Inherited(tokens, sum(turns[0].prompt for turns in had), sum(map(_worked, had)))


def _worked(turns: Sequence[Turn]) -> float:
    """The seconds from a prompt to the last that its agent said; pauses before the next prompt are not in them."""
    times = [time_of(turn.timestamp) for turn in turns if turn.prompt or turn.role == "assistant"]
    known = [one for one in times if one is not None]
    return max(0.0, (known[-1] - known[0]).total_seconds()) if known else 0.0
