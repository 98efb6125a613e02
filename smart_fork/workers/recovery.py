"""After a crash: what is left of the workers that the registry knows.

The registry is written before and after each start, so nothing has to be guessed about what we did; only what happened
since is looked up. Nothing is started or ended here, and what lives is not written over.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress

import apsw
import psutil

from indexer.settings import WORKER_ID
from indexer.shapes import dataclass
from smart_fork.agents.births import find_sessions
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Processes
from smart_fork.workers.liveness import note_ends
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_file import has_registry
from smart_fork.workers.tmux import Panes

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Recovered:
    """What `reconcile` has found out: the workers that are no more, and those whose session is known now."""

    ended: tuple[WorkerRecord, ...] = ()
    identified: tuple[WorkerRecord, ...] = ()


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
    ended = note_ends(registry, processes, env, moment_now)
    identified = [
        registry.set_session_id(worker.id, session_id) for worker, session_id in find_sessions(registry, moment_now)
    ]
    return Recovered(tuple(ended), tuple(identified))


def recover() -> None:
    """Reconcile the registry, if there is one, with this machine: what each server does first, once."""
    if not has_registry():
        return
    try:
        with Registry() as registry:
            reconcile(registry, Processes(), os.environ)
    except (SmartForkError, apsw.Error, OSError) as error:
        log.warning("the registry of workers could not be brought up to date: %s", error)


def _marked(worker: WorkerRecord) -> int | None:
    """The only process that bears the worker's mark and was not started by one that does."""
    above: dict[int, int] = {}
    for process in Processes.each():
        with suppress(psutil.Error, OSError):  # somebody else's, or gone by now
            if process.environ().get(WORKER_ID) == worker.id:
                above[process.pid] = process.ppid()
    first = [pid for pid, parent in above.items() if parent not in above]
    return first[0] if len(first) == 1 else None
