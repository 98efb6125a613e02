"""Ends workers (agents that smart-fork started)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from functools import partial

from indexer.errors import joined
from indexer.project import Project
from smart_fork.display_text import printable
from smart_fork.errors import ForkRefused, ProgramFailed, SmartForkError
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.system.call_context import refuse_cancelled
from smart_fork.system.processes import Machine
from smart_fork.workers.observation import require
from smart_fork.workers.recovery import tree_of
from smart_fork.workers.registry import LIVE_STATES, Registry, WorkerRecord
from smart_fork.workers.results import WorkerClosed
from smart_fork.workers.terminals import place_of
from smart_fork.workers.verdicts import note_outcomes
from smart_fork.workers.worker_place import location_of
from smart_fork.workers.worktree_cleanup import remove_copies

#: Seconds for a worker to end by itself, and to end when killed.
GRACE_SECONDS, FORCE_SECONDS = 10.0, 5.0
LOOK_SECONDS = 0.05


def close_workers(
    references: Sequence[str], *, remove_worktree: bool = False, around: Machine | None = None
) -> tuple[WorkerClosed, ...]:
    """End the named workers. With `remove_worktree`, also remove their worktrees without unsaved changes.

    If one of the workers does not exist, do not end the others either.
    """
    around = around or Machine()
    with Registry() as registry:
        workers = require(references, registry)
        return tuple(_close(worker, registry, around, remove_worktree=remove_worktree) for worker in workers)


def stop_workers(project: Project | None, *, remove_worktree: bool = False) -> tuple[WorkerClosed, ...]:
    """End all running workers of `project`, or of all projects if `None`; see `close_workers`."""
    around = Machine()
    with Registry() as registry:
        running = [
            worker
            for worker in registry.workers(states=LIVE_STATES)
            if project is None or WorkDirectory(worker.cwd).is_in(project)
        ]
        return tuple(_close(worker, registry, around, remove_worktree=remove_worktree) for worker in running)


def _close(worker: WorkerRecord, registry: Registry, around: Machine, *, remove_worktree: bool) -> WorkerClosed:
    closed, failed, note = False, False, ""
    refuse_cancelled()
    try:
        closed = _end(worker, around)
        note = "" if closed else "It had ended already"
        registry.set_closed(worker.id)
    except SmartForkError as error:
        failed, note = True, joined(error.message, error.hint)
    removed = None
    note_outcomes([worker], around.processes)
    if remove_worktree and not failed:
        removed, notes = _remove_worktree(worker, registry, around)
        note = joined(note, *notes)
    return WorkerClosed(
        worker.id, worker.session_id, worker.agent, worker.kind, printable(worker.name), closed, removed, note, failed
    )


def _end(worker: WorkerRecord, around: Machine) -> bool:
    """End a worker, by force if necessary. Return True if the worker was still running.

    Raises:
        ForkRefused: the process may be another program's, or it does not end.
    """
    place, started = place_of(worker), location_of(worker)
    if worker.state == "starting":
        raise ForkRefused(f"{worker.id} is just being started", "Try again.")
    if not _runs(worker, around):
        if not place.headless and not place.replaces:  # the window of one that has ended is still there
            with suppress(ForkRefused):
                place.close(started, around)
        return False
    kill = partial(around.processes.end, started.pid, force=True) if started.pid else bool
    with suppress(ProgramFailed):  # a tmux that does not answer keeps no process of ours
        place.close(started, around)
    if not _gone(worker, around, GRACE_SECONDS):
        kill()
        if not _gone(worker, around, FORCE_SECONDS):
            raise ForkRefused(f"Process {started.pid} does not end")
    kill()  # what it has left behind in its group
    return True


def _runs(worker: WorkerRecord, around: Machine) -> bool:
    return place_of(worker).runs(location_of(worker), around)


def _gone(worker: WorkerRecord, around: Machine, seconds: float) -> bool:
    deadline = around.clock.now() + seconds
    while _runs(worker, around):
        if around.clock.now() >= deadline:
            return False
        around.clock.sleep(LOOK_SECONDS)
    return True


def _remove_worktree(worker: WorkerRecord, registry: Registry, around: Machine) -> tuple[bool, list[str]]:
    """Remove a worker's worktree and log copies. Return True if the worktree is gone, and notes on kept files."""
    if (tree := tree_of(worker)) is None:
        return False, ["No worktree was made for it"]
    if (problem := tree.remove_if_saved(around.processes)) is not None:
        return False, [problem]
    return True, remove_copies([tree.path], registry)[1]
