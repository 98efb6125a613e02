"""Whether one more worker may run: a limit for all of them, and one agent at a time in a session."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from indexer.settings import MAX_WORKERS
from smart_fork.agents.starter import Launch
from smart_fork.errors import ForkRefused, Usage, advice
from smart_fork.places.liveness import lives
from smart_fork.registry.workers import WorkerRecord
from smart_fork.system.processes import Machine


class WorkerLimit(ForkRefused):
    """As many workers as may run are running."""

    code = "worker_limit"
    http_status = 429


class AlreadyRuns(ForkRefused):
    """The session is being gone on with by a worker, which is where to go."""

    code = "already_runs"

    def __init__(self, worker: WorkerRecord, session_id: str) -> None:
        see = advice(
            f"Go there: {worker.attach}" if worker.attach else "`smart-fork active` shows it.",
            tool=f"Send the prompt there: message_worker, with worker {worker.id}.",
        )
        super().__init__(f"{session_id} is running already, as worker {worker.id}", see)
        self.worker = worker


def limit(env: Mapping[str, str]) -> int:
    """How many workers may run at once.

    Raises:
        Usage: the setting is not a number.
    """
    if fault := MAX_WORKERS.fault(env):
        raise Usage(fault)
    return MAX_WORKERS.number(env)


def admission(request: Launch, machine: Machine, *, counts: bool) -> Callable[[Sequence[WorkerRecord]], None]:
    """What refuses the requested worker, given those that run. A terminal that a person sits at does not count.

    Raises:
        Usage: the limit is not a number.
    """
    most = limit(machine.env)

    def admit(running: Sequence[WorkerRecord]) -> None:
        if request.form == "resume" and (worker := occupant(request.session_id, running, machine)):
            raise AlreadyRuns(worker, request.session_id)
        others = [worker for worker in running if worker.place != "here"]
        if counts and len(others) >= most and sum(_lives(worker, machine) for worker in others) >= most:
            raise WorkerLimit(
                f"{most} workers are running, and {MAX_WORKERS} allows no more",
                advice(
                    "Wait until one ends, or end one. `smart-fork active` lists them.",
                    tool="Wait until one ends (list_workers, wait_workers), or let the user end one.",
                ),
            )

    return admit


def occupant(session_id: str, running: Sequence[WorkerRecord], machine: Machine) -> WorkerRecord | None:
    """The living worker that goes on in that session."""
    return next((worker for worker in running if session_id in _sessions(worker) and _lives(worker, machine)), None)


def _lives(worker: WorkerRecord, machine: Machine) -> bool:
    return lives(worker, machine.processes, machine.env, machine.clock.now())


def _sessions(worker: WorkerRecord) -> tuple[str | None, ...]:
    # Its session is noted as its own only once it runs.
    return (worker.session_id, worker.source_session_id if worker.kind in ("resume", "continue") else None)
