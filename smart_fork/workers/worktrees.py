"""The worktrees that were made for workers: what is in each, and which can go, with copies staged there."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from indexer.files import remove
from indexer.project import Project
from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import AgentName
from indexer.values import Value, rare, value
from smart_fork.agents import AGENTS
from smart_fork.agents.copier import is_part_of
from smart_fork.agents.logs import logs_of, staged_paths
from smart_fork.agents.readers import READERS
from smart_fork.errors import SmartForkError
from smart_fork.finding.session_place import in_project
from smart_fork.repository.changes import difference
from smart_fork.repository.git import opened, opened_worktree
from smart_fork.repository.worktree import remove_if_saved, what_would_be_lost
from smart_fork.system.processes import Processes
from smart_fork.workers.liveness import lives
from smart_fork.workers.outcomes import note_outcomes
from smart_fork.workers.registry import Registry, WorkerRecord


@value
class WorkersTree(Value):
    """One worktree and the newest worker in it.

    `changed_files` is how many files differ from what the worker began with, `ahead` how many commits it made; `None`
    where that cannot be told. `reason` says why it is not `removable`.
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
    """The worktrees; from `removed` on what pruning did: directories and copies that are gone, and why some stay."""

    worktrees: tuple[WorkersTree, ...]
    removed: tuple[str, ...] | None = rare()
    copies: tuple[str, ...] | None = rare()
    notes: tuple[str, ...] | None = rare()


def worktrees(processes: Processes, within: Project | None) -> list[WorkersTree]:
    """Those of a project, or all, that are left, the newest first: as a directory, in git's list, or as a branch."""
    with Registry() as registry:
        workers = registry.workers()
    note_outcomes([one for one in workers if one.worktree and _is_within(one.worktree, within)], processes)
    in_each: dict[str, list[WorkerRecord]] = {}
    for worker in workers:
        if worker.worktree and worker.branch and _is_within(worker.worktree, within):
            in_each.setdefault(worker.worktree, []).append(worker)
    return [_tree(found, processes) for found in in_each.values() if _is_left(found[0], processes)]


def prune(processes: Processes, within: Project | None) -> tuple[list[WorkersTree], list[WorkersTree]]:
    """Remove those that hold nothing unsaved and whose workers have all ended: which are gone, and which are left."""
    gone: list[WorkersTree] = []
    left: list[WorkersTree] = []
    for tree in worktrees(processes, within):
        path = Path(tree.worktree)
        removed = tree.removable and remove_if_saved(path, tree.branch, tree.base_commit, processes) is None
        (gone if removed else left).append(tree)
    return gone, left


def remove_copies_of_gone(within: Project | None) -> tuple[list[Path], list[str]]:
    """Take away the copies of transcripts that were staged for worktrees of a project, or of all, that are gone.

    Which they were, and what is kept and why.
    """
    with Registry() as registry:
        made = {Path(one.worktree) for one in registry.workers() if one.worktree and _is_within(one.worktree, within)}
        return remove_copies([path for path in made if not path.exists()], registry)


def _tree(workers: Sequence[WorkerRecord], processes: Processes) -> WorkersTree:
    worker, path = workers[0], Path(workers[0].worktree or "")
    branch, base = worker.branch or "", worker.base_commit or ""
    ended = all(_has_ended(one, processes) for one in workers)
    reason = what_would_be_lost(path, branch, base, processes)
    if reason is None and not ended:
        reason = f"Its worker is still running: {next(one.id for one in workers if not _has_ended(one, processes))}"
    return WorkersTree(
        str(path), branch, base, worker.id, worker.session_id, worker.name, ended,
        _changed_files(path, base, processes), _ahead(path, branch, base, processes), reason is None, reason,
    )  # fmt: skip


def _is_within(worktree: str, project: Project | None) -> bool:
    return project is None or in_project(worktree, project)


def _is_left(worker: WorkerRecord, processes: Processes) -> bool:
    path = Path(worker.worktree or "")
    if path.is_dir():
        return True
    try:
        repository = opened(path.parent.parent, processes)
    except SmartForkError:
        return False
    return repository.git("show-ref", "--verify", "--quiet", f"refs/heads/{worker.branch}").ok


def _has_ended(worker: WorkerRecord, processes: Processes) -> bool:
    return not lives(worker, processes, os.environ, time.time())


def _changed_files(path: Path, base: str, processes: Processes) -> int | None:
    try:
        return len(difference(path, base, processes)[0]) if base and path.is_dir() else None
    except (SmartForkError, OSError):
        return None


def _ahead(path: Path, branch: str, base: str, processes: Processes) -> int | None:
    """A base that has carried changes is no commit of the branch: what the branch has beside it are the worker's."""
    try:
        where = opened_worktree(path, processes) if path.is_dir() else opened(path.parent.parent, processes)
    except SmartForkError:
        return None
    done = where.git("rev-list", "--count", "--end-of-options", f"refs/heads/{branch}", f"^{base}")
    return int(done.text) if done.ok else None


def remove_copies(worktrees: Iterable[Path], registry: Registry) -> tuple[list[Path], list[str]]:
    """Take away the copies that were staged for these worktrees, which are gone: which, and why others are kept.

    An original is none of them, and a copy that has turns of its own, or is all that is left of its session, stays.
    """
    storages = [(agent.name, agent.storage) for agent in AGENTS if agent.storage]
    agents = {folder: name for one in worktrees for name, storage in storages if (folder := storage.folder(one))}
    removed: list[Path] = []
    kept: list[str] = []
    for copy in registry.staged_copies():
        path = Path(copy.path)
        if path.parent not in agents:
            continue
        reason = _why_kept(agents[path.parent], path, copy.session_id) if path.is_file() else ""
        if reason:
            kept.append(f"{path} is kept: {reason}")
            continue
        if path.is_file():
            removed.append(path)
        _remove(path, copy.session_id)
        registry.forget_staged_copy(path)
    return removed, kept


def _why_kept(agent: AgentName, path: Path, session_id: str) -> str:
    """Why a copy must stay; empty where all of it is in the original as well."""
    ours = staged_paths(session_id)
    original = next((one for one in logs_of(READERS[agent], session_id) if str(one) not in ours), None)
    if original is None:
        return "it is the last copy of this session"
    try:
        if more := len(_turns(path) - _turns(original)):
            return f"the session continued in it, {more} records are only there"
    except OSError as error:
        return f"it cannot be compared with {original}: {error}"
    beside = path.with_suffix("")
    if beside.is_dir() and not is_part_of(beside, original.with_suffix("")):
        return f"{beside} contains files that the original does not have"
    return ""


def _turns(path: Path) -> set[str]:
    named = (line.record.get("uuid") for line in LineReader(path))
    return {one for one in named if isinstance(one, str)}


def _remove(path: Path, session_id: str) -> None:
    """The log first, so that it never stands without what is beside it; the folder where nothing else is in it."""
    remove(path)
    beside = path.with_suffix("")
    if beside.name == session_id and not beside.is_symlink():
        remove(beside)
    with suppress(OSError):
        path.parent.rmdir()
