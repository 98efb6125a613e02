"""Ending workers: asked first, then ended by the system. Their logs stay, and nobody else's is touched."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from indexer.errors import joined
from indexer.project import Project
from smart_fork.errors import ForkRefused, SmartForkError
from smart_fork.finding.session_place import in_project
from smart_fork.repository import worktree
from smart_fork.snippets import printable
from smart_fork.system.cancellation import refuse_cancelled
from smart_fork.system.processes import Machine
from smart_fork.workers.outcomes import note_outcomes
from smart_fork.workers.place import runs, whereabouts
from smart_fork.workers.places import place_of
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.roster import LIVING, require
from smart_fork.workers.state import WorkerClosed
from smart_fork.workers.worktrees import remove_copies

#: How long a worker may take to end by itself, and to be ended.
GRACE_SECONDS, FORCE_SECONDS = 10.0, 5.0
LOOK_SECONDS = 0.05


def close_workers(
    references: Sequence[str], *, remove_worktree: bool = False, around: Machine | None = None
) -> tuple[WorkerClosed, ...]:
    """End these workers; with `remove_worktree`, take their worktrees away too where these hold nothing unsaved.

    Each answer says whether it was ended now (`closed`), or in `note` why not.

    Raises:
        Usage: none is named.
        NotFound: one does not exist; then none is ended.
    """
    around = around or Machine()
    with Registry() as registry:
        workers = require(references, registry)
        return tuple(_close(worker, registry, around, remove_worktree=remove_worktree) for worker in workers)


def stop_workers(project: Project | None, *, remove_worktree: bool = False) -> tuple[WorkerClosed, ...]:
    """End all workers of a project that run, or of all projects where `None`."""
    around = Machine()
    with Registry() as registry:
        running = [
            worker for worker in registry.workers(states=LIVING) if project is None or in_project(worker.cwd, project)
        ]
        return tuple(_close(worker, registry, around, remove_worktree=remove_worktree) for worker in running)


def _close(worker: WorkerRecord, registry: Registry, around: Machine, *, remove_worktree: bool) -> WorkerClosed:
    closed, note = False, ""
    refuse_cancelled()
    try:
        closed = _end(worker, around)
        note = "" if closed else "It had ended already"
        registry.set_state(worker.id, "ended")
    except SmartForkError as error:
        note = joined(error.message, error.hint)
    removed = None
    note_outcomes([worker], around.processes)
    if remove_worktree and (closed or not runs(whereabouts(worker), around.processes)):
        removed, notes = _remove_worktree(worker, registry, around)
        note = joined(note, *notes)
    return WorkerClosed(
        worker.id, worker.session_id, worker.agent, worker.kind, printable(worker.name), closed, removed, note
    )


def _end(worker: WorkerRecord, around: Machine) -> bool:
    """Whether it ran until now.

    Raises:
        ForkRefused: it is not ours to end, or does not end.
    """
    place, started = place_of(worker), whereabouts(worker)
    if worker.state == "starting":
        raise ForkRefused(f"{worker.id} is just being started", "Try again.")
    if started.pid is None or not runs(started, around.processes):
        if not place.headless and not place.replaces:  # the window of one that has ended is still there
            with suppress(ForkRefused):
                place.close(started, around.processes, around.env)
        return False
    place.close(started, around.processes, around.env)
    if not _gone(worker, around, GRACE_SECONDS):
        around.processes.end(started.pid, force=True)
        if not _gone(worker, around, FORCE_SECONDS):
            raise ForkRefused(f"Process {started.pid} does not end")
    around.processes.end(started.pid, force=True)  # what it has left behind in its group
    return True


def _gone(worker: WorkerRecord, around: Machine, seconds: float) -> bool:
    deadline = around.clock.now() + seconds
    while runs(whereabouts(worker), around.processes):
        if around.clock.now() >= deadline:
            return False
        around.clock.sleep(LOOK_SECONDS)
    return True


def _remove_worktree(worker: WorkerRecord, registry: Registry, around: Machine) -> tuple[bool, list[str]]:
    """Whether it is gone, with the copies of transcripts that were staged into it; and what is kept, and why."""
    if not worker.worktree:
        return False, ["No worktree was made for it"]
    path = Path(worker.worktree)
    problem = worktree.remove_if_saved(path, worker.branch or "", worker.base_commit or "", around.processes)
    if problem is not None:
        return False, [problem]
    return True, remove_copies([path], registry)[1]
