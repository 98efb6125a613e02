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
from functools import cached_property

import apsw
import psutil

from indexer.paths import state_home
from smart_fork.births import find_sessions, moment
from smart_fork.errors import SmartForkError
from smart_fork.plan import WORKER_ID
from smart_fork.processes import Processes, SystemProcesses
from smart_fork.registry import Registry, Worker
from smart_fork.workers.tmux import SOCKET

log = logging.getLogger(__name__)

#: A process that began later after its worker was registered has only got the same number (R-042).
START_SECONDS = 60.0
#: A start that is not written down after so long was cut off.
STARTING_SECONDS = 120.0
_SECONDS = 10.0


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
    panes = _Panes(processes, env)
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


def _is_gone(worker: Worker, processes: Processes, panes: _Panes, now: float) -> bool:
    began = moment(worker.started_at)
    if worker.pid is None:
        return worker.state == "starting" and began is not None and now - began > STARTING_SECONDS
    if not processes.alive(worker.pid):
        return True
    since = process_start(worker.pid)
    if since is not None and began is not None:
        return since > began + START_SECONDS
    # The pane's number alone says nothing: a new tmux server counts from the beginning.
    return worker.place == "tmux" and panes.pid_in(worker.terminal_id) not in (None, worker.pid)


class _Panes:
    """The panes of the tmux server, looked up once, when they are first asked for."""

    def __init__(self, processes: Processes, env: Mapping[str, str]) -> None:
        self._processes, self._env = processes, env

    def pid_in(self, pane: str | None) -> int | None:
        """The process in that pane; `None` where there is no such pane, or nobody tells."""
        return self._pids.get(pane or "")

    def pane_of(self, pid: int) -> str | None:
        """The pane in which that process is."""
        return next((pane for pane, other in self._pids.items() if other == pid), None)

    @cached_property
    def _pids(self) -> dict[str, int]:
        socket = self._env.get(SOCKET)
        command = ["tmux", *(["-L", socket] if socket else []), "list-panes", "-a", "-F", "#{pane_id} #{pane_pid}"]
        try:
            done = self._processes.run(command, env=self._env, timeout=_SECONDS)
        except SmartForkError:
            return {}
        pairs = (line.partition(" ") for line in done.text.splitlines() if done.ok)
        return {pane: int(pid) for pane, _, pid in pairs if pid.isdigit()}


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
