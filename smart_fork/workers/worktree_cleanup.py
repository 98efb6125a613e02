"""Lists and removes workers' git worktrees and the log copies made for them. Original logs are not deleted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from indexer.json_values import Value, rare, value
from indexer.project import Project
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import AgentName
from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.finding.session_place import WorkDirectory
from smart_fork.system.processes import Machine, Processes
from smart_fork.workers.liveness import is_alive
from smart_fork.workers.recovery import tree_of, undo_cut_off
from smart_fork.workers.registry import Registry, WorkerRecord
from smart_fork.workers.verdicts import note_outcomes
from smart_fork.workers.worktree import Worktree


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

    `copies` are deleted log copies. `notes` say why others were kept.
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
    """Remove worktrees that have no unsaved changes and no running worker, in the project `within` or in all projects.

    Return the removed and the remaining worktrees.
    """
    left = worktrees(processes, within)
    here = [(tree, Worktree.of(tree.worktree, tree.branch, tree.base_commit)) for tree in left if tree.removable]
    gone = [tree for tree, made in here if made.remove_if_saved(processes) is None]
    return gone, [tree for tree in left if tree not in gone]


def remove_copies_of_gone(within: Project | None) -> tuple[list[Path], list[str]]:
    """Delete the log copies of worktrees in `within`, or in all projects, that no longer exist; see `remove_copies`."""
    with Registry() as registry:
        made = {Path(one.worktree) for one in registry.workers() if one.worktree and _is_within(one.worktree, within)}
        return remove_copies([path for path in made if not path.exists()], registry)


def _tree(tree: Worktree, workers: Sequence[WorkerRecord], processes: Processes) -> WorkersTree:
    worker = workers[0]
    files = tree.changes(processes)
    runs_there = next((one.id for one in workers if is_alive(one, Machine(processes))), None)
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
    """Return why the log copy at `path` must be kept; "" if the original log has all its records."""
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
