"""Checks that workers (agents that smart-fork started) are alive, and recovery after crashes."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import apsw

from indexer.runs import start_time
from indexer.settings import WORKER_ID
from indexer.values import seconds_in
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.repository.worktree import Worktree
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.registry import LIVE_STATES, Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry
from smart_fork.workers.session_matching import find_sessions
from smart_fork.workers.terminals import Panes, place_of
from smart_fork.workers.worker_terminal import location_of

log = logging.getLogger(__name__)

#: A process that began later than this after its worker's registration only reuses the process id.
START_SECONDS = 60.0
#: A worker without process or window after this time was never started: its starter was killed.
STARTING_SECONDS = 300.0
#: Time in which a terminal's process may still be becoming the agent.
BECOMING_SECONDS = 60.0


def is_alive(
    worker: WorkerRecord, processes: Processes, env: Mapping[str, str], now: float, *, panes: Panes | None = None
) -> bool:
    """Return True if a worker still has a process or a window. The system is asked: its row can be out of date."""
    if worker.is_over:
        return False
    began = seconds_in(worker.started_at)
    if worker.pid is None:
        cut_off = worker.state == "starting" and began is not None and not _is_being_made(worker, processes, now, began)
        return not cut_off and not _window_is_gone(worker, processes, env)
    if not processes.alive(worker.pid):
        return False
    environment, panes = processes.environment(worker.pid), panes or Panes(processes, env)
    if environment:
        return environment.get(WORKER_ID) == worker.id or _is_becoming(worker, now, began, panes)
    since = start_time(worker.pid)  # the system does not tell what it was started with
    if since is not None and began is not None:
        return since <= began + START_SECONDS
    # The pane's number alone says nothing: a new tmux server counts from the beginning.
    return worker.place != "tmux" or panes.pid_in(worker.terminal_id) in (None, worker.pid)


def note_ends(registry: Registry, processes: Processes, env: Mapping[str, str], now: float) -> list[WorkerRecord]:
    """Mark the workers that no longer run as ended in the registry. Return these workers."""
    panes = Panes(processes, env)
    gone = [
        worker
        for worker in registry.workers(states=LIVE_STATES)
        if not is_alive(worker, processes, env, now, panes=panes)
    ]
    return [worker for one in gone if (worker := registry.note_end(one, now=now))]


def _is_being_made(worker: WorkerRecord, processes: Processes, now: float, began: float) -> bool:
    if worker.maker is None:
        return now - began <= STARTING_SECONDS
    # Another process may have its number by now.
    return processes.alive(worker.maker) and (start_time(worker.maker) or 0.0) <= began + START_SECONDS


def _is_becoming(worker: WorkerRecord, now: float, began: float | None, panes: Panes) -> bool:
    """Return True if the worker's process, which has just begun in a terminal, may be about to become the agent.

    It lacks the worker's id in its environment, by which the agent's process is recognized later.
    """
    if began is None or now - began >= BECOMING_SECONDS:
        return False
    return worker.place in ("here", "iterm2") or (
        worker.place == "tmux" and panes.pid_in(worker.terminal_id) == worker.pid
    )


def _window_is_gone(worker: WorkerRecord, processes: Processes, env: Mapping[str, str]) -> bool:
    if worker.terminal_id is None:
        return False
    with suppress(SmartForkError):
        return place_of(worker).ended(location_of(worker), processes, env) is not None
    return False


def reconcile(
    registry: Registry, processes: Processes, env: Mapping[str, str], *, now: float | None = None
) -> tuple[list[WorkerRecord], list[WorkerRecord]]:
    """Change the registry to match what runs on this machine. A second call changes nothing.

    Return the workers that have ended, and those whose session was identified now. Workers that cannot be checked stay
    unchanged.
    """
    moment_now = time.time() if now is None else now
    panes = Panes(processes, env)
    for worker in registry.workers(states=["starting"]):
        if worker.pid is None and (pid := _marked(worker)):
            registry.set_found(worker.id, pid=pid, terminal_id=panes.pane_of(pid))
    ended = note_ends(registry, processes, env, moment_now)
    identified = [registry.set_session_id(worker.id, one) for worker, one in find_sessions(registry, moment_now)]
    return ended, identified


def tree_of(worker: WorkerRecord) -> Worktree | None:
    """Return the git worktree that was made, or planned, for a worker."""
    return Worktree.of(worker.worktree, worker.branch, worker.base_commit) if worker.worktree else None


def undo_cut_off(registry: Registry, around: Machine) -> None:
    """Delete the worktrees and log copies made for workers whose start was cut off, or leave them to the next call.

    A start is cut off if smart-fork dies before the agent runs.
    """
    for worker in registry.workers(states=["starting", "failed"]):
        tree, copy = tree_of(worker), Path(worker.copied_to) if worker.copied_to else None
        if worker.pid is not None or worker.maker is None:
            continue
        if worker.state == "starting":
            if is_alive(worker, around.processes, around.env, around.clock.now()) or _marked(worker):
                continue
        elif not (tree and tree.path.exists()) and not (copy and copy.exists()):
            continue  # else a git that its process did not outlive may have made it
        try:
            if copy and copy.parent.is_dir():  # else it is in a database
                _undo_copy(worker, copy, registry)
            if tree and worker.cwd != str(tree.path):  # else its agent was about to be started
                tree.undo(around.processes)
        except (OSError, SmartForkError) as error:
            log.warning("what was made for %s is left: %s", worker.id, error)
            continue
        registry.set_state(worker.id, "failed")


def _undo_copy(worker: WorkerRecord, copy: Path, registry: Registry) -> None:
    """Delete the log copy made for a worker, unless its session was continued in it, or no other log has it."""
    reader = READERS[worker.agent]
    if copy.is_file():
        session = reader.read(copy).session
        if (session and worker.own_part(session)) or not READERS.original_of(worker.agent, reader.id_of(copy)):
            return
    AGENTS.storage_of(worker.agent).remove_copy(copy, reader.id_of(copy))
    registry.forget_staged_copy(copy)


def recover() -> None:
    """Change the worker registry, if it exists, to match what runs on this machine, as servers do when they start."""
    if not has_registry():
        return
    try:
        with Registry() as registry:
            reconcile(registry, Processes(), os.environ)
    except (SmartForkError, apsw.Error, OSError) as error:
        log.warning("the registry of workers could not be brought up to date: %s", error)


def _marked(worker: WorkerRecord) -> int | None:
    """Return the id of the only process, besides its children, that has the worker's id in its environment."""
    import psutil  # takes a while, and only a server asks

    above: dict[int, int] = {}
    for process in Processes.each():
        with suppress(psutil.Error, OSError):  # somebody else's, or gone by now
            if process.environ().get(WORKER_ID) == worker.id:
                above[process.pid] = process.ppid()
    first = [pid for pid, parent in above.items() if parent not in above]
    return first[0] if len(first) == 1 else None
