"""Ends workers (agents that smart-fork started), and removes their worktrees and the log copies made for them.

The agents' own logs are not deleted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from indexer.errors import joined
from indexer.project import Project
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, value
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import printable
from smart_fork.errors import ForkRefused, ProgramFailed, SmartForkError
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.repository.worktree import Worktree
from smart_fork.system.call_context import refuse_cancelled
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.answers import WorkerClosed
from smart_fork.workers.comparison import note_outcomes
from smart_fork.workers.liveness import is_alive, tree_of, undo_cut_off
from smart_fork.workers.observation import require
from smart_fork.workers.registry import LIVE_STATES, Registry, WorkerRecord
from smart_fork.workers.terminals import place_of
from smart_fork.workers.worker_terminal import location_of

#: Seconds for a worker to end by itself, and to end when killed.
GRACE_SECONDS, FORCE_SECONDS = 10.0, 5.0
LOOK_SECONDS = 0.05


def close_workers(
    references: Sequence[str], *, remove_worktree: bool = False, around: Machine | None = None
) -> tuple[WorkerClosed, ...]:
    """End the named workers. With `remove_worktree`, also remove their worktrees without unsaved changes.

    If a worker does not exist, none is ended.
    """
    around = around or Machine()
    with Registry() as registry:
        workers = require(references, registry)
        return tuple(_close(worker, registry, around, remove_worktree=remove_worktree) for worker in workers)


def stop_workers(project: Project | None, *, remove_worktree: bool = False) -> tuple[WorkerClosed, ...]:
    """End all running workers of `project`, or of all projects if `None`; see `close_workers`."""
    around = Machine()
    with Registry() as registry:
        running = [worker for worker in registry.workers(states=LIVE_STATES) if _is_within(worker.cwd, project)]
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
                place.close(started, around.processes, around.env)
        return False
    kill = partial(around.processes.end, started.pid, force=True) if started.pid else bool
    with suppress(ProgramFailed):  # a tmux that does not answer keeps no process of ours
        place.close(started, around.processes, around.env)
    if not _gone(worker, around, GRACE_SECONDS):
        kill()
        if not _gone(worker, around, FORCE_SECONDS):
            raise ForkRefused(f"Process {started.pid} does not end")
    kill()  # what it has left behind in its group
    return True


def _runs(worker: WorkerRecord, around: Machine) -> bool:
    return place_of(worker).runs(location_of(worker), around.processes, around.env)


def _gone(worker: WorkerRecord, around: Machine, seconds: float) -> bool:
    deadline = around.clock.now() + seconds
    while _runs(worker, around):
        if around.clock.now() >= deadline:
            return False
        around.clock.sleep(LOOK_SECONDS)
    return True


def _remove_worktree(worker: WorkerRecord, registry: Registry, around: Machine) -> tuple[bool, list[str]]:
    """Remove a worker's worktree, and the log copies made for it. Return True on success, and notes on what is left."""
    if (tree := tree_of(worker)) is None:
        return False, ["No worktree was made for it"]
    if (problem := tree.remove_if_saved(around.processes)) is not None:
        return False, [problem]
    return True, remove_copies([tree.path], registry)[1]


@value
class WorkersTree(Value):
    """A git worktree made for workers (agents that smart-fork started), and the newest worker in it.

    `changed_files` and `ahead` count changed files and commits since the worker's start, if known. `reason` says why
    the worktree is not `removable`.
    """

    worktree: str
    branch: str
    base_commit: str
    worker_id: str
    session_id: str | None
    name: str
    ended: bool
    changed_files: int | None
    ahead: int | None
    removable: bool
    reason: str | None


@value
class WorkersTrees(Value):
    """The answer that lists workers' worktrees and, after a removal, what was removed.

    `copies` are deleted log copies, `notes` the reasons for what was kept.
    """

    worktrees: tuple[WorkersTree, ...]
    removed: tuple[str, ...] | None = rare()
    copies: tuple[str, ...] | None = rare()
    notes: tuple[str, ...] | None = rare()


def worktrees(processes: Processes, within: Project | None) -> list[WorkersTree]:
    """Return the existing worktrees of workers, newest first: in the project `within`, or in all projects.

    A worktree exists if its directory, its entry in git's list, or its branch does.
    """
    with Registry() as registry:
        undo_cut_off(registry, Machine(processes))
        workers = [one for one in registry.workers() if one.worktree and _is_within(one.worktree, within)]
    note_outcomes(workers, processes)
    in_each: dict[str | None, list[WorkerRecord]] = {}
    for worker in workers:
        if worker.branch:
            in_each.setdefault(worker.worktree, []).append(worker)
    return [
        _tree(tree, found, processes)
        for found in in_each.values()
        if (tree := tree_of(found[0])) and tree.is_left(processes)
    ]


def prune(processes: Processes, within: Project | None) -> tuple[list[WorkersTree], list[WorkersTree]]:
    """Remove workers' worktrees without unsaved changes and running workers, in `within` or all projects.

    Return the removed and the remaining worktrees.
    """
    left = worktrees(processes, within)
    here = [(tree, Worktree.of(tree.worktree, tree.branch, tree.base_commit)) for tree in left if tree.removable]
    gone = [tree for tree, made in here if made.remove_if_saved(processes) is None]
    return gone, [tree for tree in left if tree not in gone]


def remove_copies_of_gone(within: Project | None) -> tuple[list[Path], list[str]]:
    """Delete the log copies made for worktrees that no longer exist, in the project `within`, or in all projects."""
    with Registry() as registry:
        made = {Path(one.worktree) for one in registry.workers() if one.worktree and _is_within(one.worktree, within)}
        return remove_copies([path for path in made if not path.exists()], registry)


def _tree(tree: Worktree, workers: Sequence[WorkerRecord], processes: Processes) -> WorkersTree:
    worker = workers[0]
    files = tree.changes(processes)
    runs_there = next((one.id for one in workers if is_alive(one, processes, os.environ, time.time())), None)
    reason = tree.what_would_be_lost(processes)
    if reason is None and runs_there:
        reason = f"Its worker is still running: {runs_there}"
    return WorkersTree(
        str(tree.path), tree.branch, tree.base, worker.id, worker.session_id, worker.name, runs_there is None,
        None if files is None else len(files), tree.ahead(processes), reason is None, reason,
    )  # fmt: skip


def _is_within(folder: str, project: Project | None) -> bool:
    return project is None or WorkDirectory(folder).is_in(project)


def remove_copies(worktrees: Iterable[Path], registry: Registry) -> tuple[list[Path], list[str]]:
    """Delete the log copies that were made for `worktrees`, which no longer exist. Original logs are not deleted.

    A copy is kept if the session continued in it, or if it is the session's last log. Return the deleted paths, and
    notes on the kept copies.
    """
    storages = [(agent.name, agent.storage) for agent in AGENTS if agent.storage]
    agents = {folder: name for one in worktrees for name, storage in storages if (folder := storage.folder(one))}
    removed: list[Path] = []
    kept: list[str] = []
    for path, session_id in registry.staged_copies().items():
        if path.parent not in agents:
            continue
        reason = _why_kept(agents[path.parent], path, session_id) if path.is_file() else ""
        if reason:
            kept.append(f"{path} is kept: {reason}")
            continue
        if path.is_file():
            removed.append(path)
        AGENTS.storage_of(agents[path.parent]).remove_copy(path, session_id)
        registry.forget_staged_copy(path)
    return removed, kept


def _why_kept(agent: AgentName, path: Path, session_id: str) -> str:
    """Return why the log copy at `path` must be kept; empty if the original log has all its records."""
    ours = READERS.staged_copies(session_id)
    original = next((one for one in READERS.logs_of(agent, session_id) if str(one) not in ours), None)
    if original is None:
        return "it is the last copy of this session"
    try:
        if more := len(_turns(path) - _turns(original)):
            return f"the session continued in it, {more} records are only there"
    except OSError as error:
        return f"it cannot be compared with {original}: {error}"
    if AGENTS.storage_of(agent).has_more_beside(path, original):
        return f"{path.with_suffix('')} contains files that the original does not have"
    return ""


def _turns(path: Path) -> set[str]:
    named = (line.record.get("uuid") for line in LineReader(path))
    return {one for one in named if isinstance(one, str)}
