"""Whether an agent is at work in a session: what is known of our workers, and what the end of its log looks like."""

from __future__ import annotations

from indexer.paths import state_home
from indexer.transcripts.model import Session
from smart_fork.errors import ForkRefused
from smart_fork.registry import Registry

#: An unfinished answer to which nothing was added for so long has been given up, or waits for a person.
QUIET_SECONDS = 60.0
IN_PROGRESS = (
    "Cannot branch while a response or tool call is in progress. "
    "Wait for it to finish or resolve the pending tool call."
)


def is_unfinished(session: Session) -> bool:
    """Whether a call or a prompt at its end has no answer."""
    points = session.branch_points()
    done = [i for i, turn in enumerate(session.turns) if turn.prompt or turn.tool_calls or turn.tool_results]
    return not points or (bool(done) and done[-1] > points[-1])


def refuse_while_working(session: Session, now: float) -> None:
    """Nothing is copied of what is just being written (B-026, B-057).

    Raises:
        ForkRefused: the agent is answering, or one of its tools runs.
    """
    quiet = now - session.source_path.stat().st_mtime >= QUIET_SECONDS
    if (is_unfinished(session) and not quiet) or _is_a_working_worker(session.session_id):
        raise ForkRefused(
            IN_PROGRESS,
            "An earlier message can be branched at meanwhile: --at N, as `smart-fork show` numbers them.",
        )


def _is_a_working_worker(session_id: str) -> bool:
    if not (state_home() / "workers.db").exists():
        return False
    with Registry() as registry:
        running = registry.workers(states=("starting", "running"))
    return any(worker.session_id == session_id and worker.status == "working" for worker in running)
