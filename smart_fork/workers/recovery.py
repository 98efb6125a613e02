"""Brings the worker registry up to date after crashes, and deletes what unfinished starts have left."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import apsw

from indexer.environment import WORKER_ID
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.liveness import is_alive, note_ends
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.registry_path import has_registry
from smart_fork.workers.session_matching import find_sessions
from smart_fork.workers.terminals import Panes
from smart_fork.workers.worktree import Worktree

log = logging.getLogger(__name__)


def reconcile(registry: Registry, machine: Machine) -> tuple[list[WorkerRecord], list[WorkerRecord]]:
    """Change the registry to match what runs on this machine. A second call changes nothing.

    Return two lists: the workers found ended, and the workers of which the session was found. Workers that cannot be
    checked stay unchanged.
    """
    panes = Panes(machine)
    for worker in registry.workers(states=["starting"]):
        if worker.pid is None and (pid := _marked(worker)):
            registry.set_found(worker.id, pid=pid, terminal_id=panes.pane_of(pid))
    ended, now = note_ends(registry, machine), machine.clock.now()
    return ended, [registry.set_session_id(worker.id, one) for worker, one in find_sessions(registry, now)]


def tree_of(worker: WorkerRecord) -> Worktree | None:
    """Return the git worktree that was made, or planned, for a worker; `None` if there is none."""
    return Worktree.of(worker.worktree, worker.branch, worker.base_commit) if worker.worktree else None


def undo_cut_off(registry: Registry, around: Machine) -> None:
    """Delete worktrees and log copies that a cut-off start has left: smart-fork died before the worker's agent ran.

    What cannot be deleted now is left to the next call.
    """
    for worker in registry.workers(states=["starting", "failed"]):
        tree, copy = tree_of(worker), Path(worker.copied_to) if worker.copied_to else None
        if worker.pid is not None or worker.maker is None:
            continue
        if worker.state == "starting":
            if is_alive(worker, around) or _marked(worker):
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
            reconcile(registry, Machine())
    except (SmartForkError, apsw.Error, OSError) as error:
        log.warning("the registry of workers could not be brought up to date: %s", error)


def _marked(worker: WorkerRecord) -> int | None:
    """Return the id of the one process, children aside, that has the worker's id in its environment, or `None`."""
    import psutil  # takes a while, and only a server asks

    above: dict[int, int] = {}
    for process in Processes.each():
        with suppress(psutil.Error, OSError):  # somebody else's, or gone by now
            if process.environ().get(WORKER_ID) == worker.id:
                above[process.pid] = process.ppid()
    first = [pid for pid, parent in above.items() if parent not in above]
    return first[0] if len(first) == 1 else None
