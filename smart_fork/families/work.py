"""Whether an agent is at work in a session: what is known of our workers, and what the log says of its tasks."""

from __future__ import annotations

from collections.abc import Sequence

from indexer.runs import born
from indexer.transcripts.model import Session
from indexer.transcripts.state import utc
from smart_fork.agents import READERS
from smart_fork.agents.facets import tail_of
from smart_fork.agents.logs import changed_at
from smart_fork.agents.tail import running_tasks
from smart_fork.errors import ForkRefused, joined
from smart_fork.forking.occupation import looks_occupied, parents_in, process_in
from smart_fork.forking.world import World, world_of
from smart_fork.places.liveness import lives
from smart_fork.registry.workers import OVER, WorkerRecord, known_workers
from smart_fork.text.advice import advice

#: An unfinished answer to which nothing was added for so long has been given up, or waits for a person.
QUIET_SECONDS = 60.0
IN_PROGRESS = (
    "Cannot branch while a response or tool call is in progress. "
    "Wait for it to finish or resolve the pending tool call."
)
TASKS_RUN = "Stop the current session's running background tasks before branching the conversation."
#: Of the tasks that run, how many are named.
NAMED = 3


def is_unfinished(session: Session) -> bool:
    """Whether a call or a prompt at its end has no answer."""
    points = session.branch_points()
    done = [i for i, turn in enumerate(session.turns) if turn.prompt or turn.tool_calls or turn.tool_results]
    return not points or (bool(done) and done[-1] > points[-1])


def earlier_message() -> str:
    """What can be done meanwhile."""
    return advice(
        "Or branch at an earlier message: --at N, numbered as in `smart-fork show`.",
        tool="Or branch at an earlier message: at, numbered as in read_session.",
    )


def refuse_while_working(session: Session, now: float, hint: str) -> None:
    """Nothing is copied of what is just being written.

    Raises:
        ForkRefused: the agent is answering, or one of its tools runs.
    """
    quiet = now - changed_at(READERS[session.agent], session.source_path) >= QUIET_SECONDS
    world = world_of(session.agent)
    at_work = [worker for worker in _workers_of(session) if worker.status == "working"]
    if (is_unfinished(session) and not quiet) or any(_lives(worker, world) for worker in at_work):
        raise ForkRefused(IN_PROGRESS, hint)


def refuse_while_tasks_run(session: Session, hint: str, *, caller: str | None = None) -> None:
    """What the agent has in the background would go on in the original alone.

    `caller` is the session that asks, whose agent is there. What an agent has left undone ended with it.

    Raises:
        ForkRefused: shells, monitors or sub-agents of the session still run.
    """
    since = _at_home_since(session, world_of(session.agent), caller)
    if since is None:
        return
    tasks = running_tasks(session.agent, tail_of(session.agent).records(session.source_path), since)
    if tasks:
        named = "; ".join(f"{task.what} ({task.id})" if task.what != task.id else task.id for task in tasks[:NAMED])
        more = f" and {len(tasks) - NAMED} more" if len(tasks) > NAMED else ""
        raise ForkRefused(TASKS_RUN, joined(f"In the background: {named}{more}", hint))


def _at_home_since(session: Session, world: World, caller: str | None) -> str | None:
    """Since when the agent that is in the session has run, empty where that is not known; `None` where none is seen."""
    workers = _workers_of(session)
    ours = next((worker for worker in workers if _lives(worker, world)), None)
    if ours:
        return max(ours.started_at, _started(ours.pid))
    agents = parents_in(session.session_id)
    if number := process_in(session.session_id, world):
        agents.add(int(number))
    if agents:
        return min(map(_started, agents))
    occupied = looks_occupied(session.session_id, session.source_path, world, just_ended=bool(workers))
    return "" if occupied or session.session_id == caller else None


def _started(pid: int | None) -> str:
    return utc(born(pid)) if pid is not None else ""


def _workers_of(session: Session) -> Sequence[WorkerRecord]:
    """Those that have it now, ended ones too: one that wrote last makes a log look as if somebody were there."""
    return [worker for worker in known_workers() if worker.session_id == session.session_id]


def _lives(worker: WorkerRecord, world: World) -> bool:
    return worker.state not in OVER and lives(worker, world.processes, world.env, world.clock.now())
