"""Checks that workers (agents that smart-fork started) are alive, and records their ends."""

from __future__ import annotations

from contextlib import suppress

from indexer.environment import WORKER_ID
from indexer.json_values import seconds_in
from indexer.runs import start_time
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.registry import LIVE_STATES, Registry, WorkerRecord
from smart_fork.workers.terminals import Panes, place_of
from smart_fork.workers.worker_place import location_of

#: A process that began later than this after its worker's registration only reuses the process id.
START_SECONDS = 60.0
#: A worker without process or window after this time was never started: its starter was killed.
STARTING_SECONDS = 300.0
#: Time in which a terminal's process may still be becoming the agent.
BECOMING_SECONDS = 60.0


def is_alive(worker: WorkerRecord, machine: Machine, *, panes: Panes | None = None) -> bool:
    """Return True if a worker still has a process or a window. The system is asked: the registry can be out of date."""
    if worker.is_over:
        return False
    began, now, processes = seconds_in(worker.started_at), machine.clock.now(), machine.processes
    if worker.pid is None:
        cut_off = worker.state == "starting" and began is not None and not _is_being_made(worker, processes, now, began)
        return not cut_off and not _window_is_gone(worker, machine)
    if not processes.alive(worker.pid):
        return False
    environment, panes = processes.environment(worker.pid), panes or Panes(machine)
    if environment:
        return environment.get(WORKER_ID) == worker.id or _is_becoming(worker, now, began, panes)
    since = start_time(worker.pid)  # the system does not tell what it was started with
    if since is not None and began is not None:
        return since <= began + START_SECONDS
    # The pane's number alone says nothing: a new tmux server counts from the beginning.
    return worker.place != "tmux" or panes.pid_in(worker.terminal_id) in (None, worker.pid)


def note_ends(registry: Registry, machine: Machine) -> list[WorkerRecord]:
    """Mark the workers that no longer run as ended in the registry. Return these workers."""
    panes = Panes(machine)
    gone = [worker for worker in registry.workers(states=LIVE_STATES) if not is_alive(worker, machine, panes=panes)]
    return [worker for one in gone if (worker := registry.note_end(one, now=machine.clock.now()))]


def _is_being_made(worker: WorkerRecord, processes: Processes, now: float, began: float) -> bool:
    if worker.maker is None:
        return now - began <= STARTING_SECONDS
    # Another process may have its number by now.
    return processes.alive(worker.maker) and (start_time(worker.maker) or 0.0) <= began + START_SECONDS


def _is_becoming(worker: WorkerRecord, now: float, began: float | None, panes: Panes) -> bool:
    """Return True if the worker's process began just now in a terminal, and may be about to become the agent.

    Until then, its environment lacks the worker's id, by which the agent's process is recognized.
    """
    if began is None or now - began >= BECOMING_SECONDS:
        return False
    return worker.place in ("here", "iterm2") or (
        worker.place == "tmux" and panes.pid_in(worker.terminal_id) == worker.pid
    )


def _window_is_gone(worker: WorkerRecord, machine: Machine) -> bool:
    if worker.terminal_id is None:
        return False
    with suppress(SmartForkError):
        return place_of(worker).ended(location_of(worker), machine) is not None
    return False
