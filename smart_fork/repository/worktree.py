"""A git worktree of its own for a worker, so that two agents do not edit the same files: made, and removed again."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path

from indexer.project import project_of
from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.processes import Completed, Processes
from smart_fork.repository import changes
from smart_fork.repository.git import git
from smart_fork.repository.unsaved import what_would_be_lost

#: Beside the files of the main working directory, so that agents which trust that directory trust its worktrees.
FOLDER = ".worktrees"
BRANCHES = "smart-fork/"
MAX_NAME_CHARACTERS = 30
_MOST = 99
#: git fails while another one makes a worktree in the same repository: what that has half written cannot be read.
_TRIES = 5


@dataclass(frozen=True, slots=True)
class Worktree:
    """A working directory and its branch. `repository` is the directory that it was made from.

    `base` is the commit that its worker's own work is on top of: the one that was checked out, or, where uncommitted
    changes were carried over, one that has these as well.
    """

    path: Path
    branch: str
    repository: Path
    base: str


def plain_name(name: str | None) -> str:
    """`name` as a folder and as the end of a branch: ``[A-Za-z0-9._-]``, at most 30 characters."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", name or "")
    text = re.sub(r"\.{2,}", ".", text)
    while text != (text := text[:MAX_NAME_CHARACTERS].strip("-._").removesuffix(".lock")):
        pass
    return text or "fork"


def plan_worktree(repository: Path, name: str | None, processes: Processes, *, with_changes: bool = False) -> Worktree:
    """The worktree that `create_worktree` would make: the first free of ``name``, ``name-1``, ``name-2`` … (F-120).

    Raises:
        ForkRefused: `repository` is not in a git repository or has no commit, 99 worktrees have that name, or the
            changes cannot be carried over.
        ProgramFailed: git does not read the repository.
    """
    project = project_of(repository)
    if not project.git:
        raise ForkRefused(f"Not in a git repository: {repository}", "A worktree needs one; fork without --worktree.")
    folder = Path(project.root) / FOLDER
    if folder.is_symlink():
        raise ForkRefused(f"{folder} is a symbolic link", "Remove it, or fork without --worktree.")
    head = git(repository, processes, "rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not head.ok and head.complaint:
        raise ProgramFailed(f"git cannot read {repository}: {head.complaint}", "Fork without --worktree.")
    if not head.ok:
        raise ForkRefused(f"There is no commit yet in {repository}", "Make the first one, or fork without --worktree.")
    if with_changes:
        changes.check(repository, processes)
    for number in range(_MOST + 1):
        free = _numbered(plain_name(name), number)
        branch = BRANCHES + free
        if os.path.lexists(folder / free):
            continue
        if not git(repository, processes, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}").ok:
            return Worktree(folder / free, branch, repository, head.text)
    raise ForkRefused(f"{_MOST} worktrees are named {plain_name(name)}", "Remove some: smart-fork worktrees --prune")


def create_worktree(
    repository: Path, name: str | None, processes: Processes, *, with_changes: bool = False
) -> Worktree:
    """Make a worktree of the commit that is checked out in `repository`, on a new branch.

    With `with_changes` it also has, uncommitted as they are there, the changes of `repository`, which stays untouched:
    what is staged and what is not, and new files that are not ignored.

    Raises:
        ForkRefused: see `plan_worktree`, or the changes cannot be carried over.
        ProgramFailed: git could not.
    """
    planned = plan_worktree(repository, name, processes)
    _exclude(Path(project_of(repository).key))
    carried = changes.take(repository, planned.base, processes) if with_changes else None
    made = _add(planned, name, processes)
    if carried is None:
        return made
    try:
        return replace(made, base=changes.put(carried, made.path, processes))
    except BaseException:
        remove_worktree(made, processes)
        raise


def remove_worktree(worktree: Worktree, processes: Processes) -> None:
    """Take away a worktree that was just made, for a fork that was not started after all."""
    git(worktree.repository, processes, "worktree", "remove", "--force", str(worktree.path))
    git(worktree.repository, processes, "branch", "--quiet", "-D", worktree.branch)
    changes.forget_base(worktree.repository, worktree.path, processes)


def remove_if_saved(worktree: Path, branch: str, base: str, processes: Processes) -> str | None:
    """Remove a worktree of ours and its branch, if nothing in it would be lost; else say in one sentence what.

    Nothing is forced: git looks once more, and the branch goes only if it is still where it was looked at.
    """
    repository, ref = worktree.parent.parent, f"refs/heads/{branch}"
    tip = git(repository, processes, "rev-parse", "--verify", "--quiet", "--end-of-options", ref).text
    loss = what_would_be_lost(worktree, branch, base, processes)
    if loss:
        return loss
    if worktree.exists():
        removed = git(repository, processes, "worktree", "remove", str(worktree))
        if not removed.ok:
            return f"git does not remove {worktree}: {removed.complaint}"
    if tip:
        removed = git(repository, processes, "update-ref", "-d", ref, tip)
        if not removed.ok:
            return f"{worktree} is removed, but not its branch {branch}: {removed.complaint}"
        git(repository, processes, "config", "--remove-section", f"branch.{branch}")
    changes.forget_base(repository, worktree, processes)
    return None


def _add(planned: Worktree, name: str | None, processes: Processes) -> Worktree:
    failed = 0
    while not (done := _made(planned, processes)).ok:
        again = replace(plan_worktree(planned.repository, name, processes), base=planned.base)
        failed += again == planned  # else somebody else took the name meanwhile
        if failed == _TRIES:
            raise ProgramFailed(f"git worktree add failed: {done.complaint}", "Fork without --worktree.")
        planned = again
    return planned


def _made(planned: Worktree, processes: Processes) -> Completed:
    """Its branch first, so that it is known whose it is: git, when it fails, leaves behind the one that it made."""
    ref = f"refs/heads/{planned.branch}"
    branch = git(planned.repository, processes, "update-ref", ref, planned.base, "")
    if not branch.ok:
        return branch
    done = git(planned.repository, processes, "worktree", "add", "--quiet", str(planned.path), planned.branch)
    if not done.ok:
        git(planned.repository, processes, "update-ref", "-d", ref, planned.base)
    return done


def _numbered(name: str, number: int) -> str:
    if not number:
        return name
    end = f"-{number}"
    return name[: MAX_NAME_CHARACTERS - len(end)] + end


def _exclude(common: Path) -> None:
    """Keep the worktrees out of ``git status``, in the repository's private list and not in its files."""
    line = f"/{FOLDER}/"
    path = common / "info" / "exclude"
    path.parent.mkdir(exist_ok=True)
    known = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if line not in known.splitlines():
        with path.open("a", encoding="utf-8") as file:
            file.write(line + "\n" if not known or known.endswith("\n") else f"\n{line}\n")
