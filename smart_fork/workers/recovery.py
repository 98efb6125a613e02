"""After a crash: what is left of the workers that the registry knows (R-040…R-046).

The registry is written before and after each start, so nothing has to be guessed about what we did; only what happened
since is looked up. A worker is its process. Nothing is started or ended here, and what lives is not written over.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass

import apsw
import psutil

from indexer.paths import state_home
from smart_fork.agents.births import find_sessions, moment
from smart_fork.agents.plan import WORKER_ID
from smart_fork.errors import SmartForkError
from smart_fork.places.tmux import Panes
from smart_fork.processes import Processes, SystemProcesses
from smart_fork.registry import Registry, Worker

log = logging.getLogger(__name__)

#: A process that began later after its worker was registered has only got the same number (R-042).
START_SECONDS = 60.0
#: A start that is not written down after so long was cut off.
STARTING_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `reconcile` has found out: the workers that are no more, and those whose session is known now."""

    ended: tuple[Worker, ...] = ()
    identified: tuple[Worker, ...] = ()


def reconcile(
    registry: Registry, processes: Processes, env: Mapping[str, str], *, now: float | None = None
) -> Recovered:
    """Bring the registry up to date with the machine. A second time finds nothing more to do.

    What cannot be checked is left as it is.
    """
    moment_now = time.time() if now is None else now
    panes = Panes(processes, env)
    for worker in registry.workers(states=["starting"]):
        if worker.pid is None and (pid := _marked(worker)):
            registry.set_found(worker.id, pid=pid, terminal_id=panes.pane_of(pid))
    ended = [
        registry.set_state(worker.id, "failed" if worker.pid is None else "ended", now=moment_now)
        for worker in registry.workers(states=["starting", "running"])
        if _is_gone(worker, processes, panes, moment_now)
    ]
    identified = [
        registry.set_session_id(worker.id, session_id) for worker, session_id in find_sessions(registry, moment_now)
    ]
    return Recovered(tuple(ended), tuple(identified))


def recover() -> None:
    """Reconcile the registry, if there is one, with this machine: what each server does first, once (R-043)."""
    if not (state_home() / "workers.db").is_file():
        return
    try:
        with Registry() as registry:
            reconcile(registry, SystemProcesses(), os.environ)
    except (SmartForkError, apsw.Error, OSError) as error:
        log.warning("the registry of workers could not be brought up to date: %s", error)


def _is_gone(worker: Worker, processes: Processes, panes: Panes, now: float) -> bool:
    began = moment(worker.started_at)
    if worker.pid is None:
        return worker.state == "starting" and began is not None and now - began > STARTING_SECONDS
    if not processes.alive(worker.pid):
        return True
    mark = (processes.environment(worker.pid) or {}).get(WORKER_ID)
    if mark is not None:  # one that was taken up again began long after it was registered
        return mark != worker.id
    since = process_start(worker.pid)
    if since is not None and began is not None:
        return since > began + START_SECONDS
    # The pane's number alone says nothing: a new tmux server counts from the beginning.
    return worker.place == "tmux" and panes.pid_in(worker.terminal_id) not in (None, worker.pid)


def _marked(worker: Worker) -> int | None:
    """The only process that bears the worker's mark and was not started by one that does."""
    above: dict[int, int] = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):  # somebody else's, or gone by now
            if process.environ().get(WORKER_ID) == worker.id:
                above[process.pid] = process.ppid()
    first = [pid for pid, parent in above.items() if parent not in above]
    return first[0] if len(first) == 1 else None


def process_start(pid: int) -> float | None:
    """When that process began, in seconds since the epoch; `None` where the system does not tell."""
    try:
        return float(psutil.Process(pid).create_time())
    except psutil.Error:
        return None
