"""A git worktree of its own for a fork, so that two agents do not edit the same files."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path

from indexer.project import project_of
from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.processes import Completed, Processes

#: Beside the files of the main working directory, so that agents which trust that directory trust its worktrees.
FOLDER = ".worktrees"
BRANCHES = "smart-fork/"
MAX_NAME_CHARACTERS = 30
GIT_SECONDS = 120.0
_MOST = 99
#: Set by git for its hooks: it would take them for the repository that is meant.
_GITS_OWN = ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_COMMON_DIR", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX")


@dataclass(frozen=True, slots=True)
class Worktree:
    """A working directory and its branch. `repository` is the directory that it was made from."""

    path: Path
    branch: str
    repository: Path


def plain_name(name: str | None) -> str:
    """`name` as a folder and as the end of a branch: ``[A-Za-z0-9._-]``, at most 30 characters."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", name or "")
    text = re.sub(r"\.{2,}", ".", text)
    while text != (text := text[:MAX_NAME_CHARACTERS].strip("-._").removesuffix(".lock")):
        pass
    return text or "fork"


def plan_worktree(repository: Path, name: str | None, processes: Processes) -> Worktree:
    """The worktree that `create_worktree` would make: the first free of ``name``, ``name-1``, ``name-2`` … (F-120).

    Raises:
        ForkRefused: `repository` is not in a git repository, or 99 worktrees have that name.
    """
    project = project_of(repository)
    if not project.git:
        raise ForkRefused(f"Not in a git repository: {repository}", "A worktree needs one; fork without --worktree.")
    folder = Path(project.root) / FOLDER
    if folder.is_symlink():
        raise ForkRefused(f"{folder} is a symbolic link", "Remove it, or fork without --worktree.")
    for number in range(_MOST + 1):
        free = _numbered(plain_name(name), number)
        branch = BRANCHES + free
        if os.path.lexists(folder / free):
            continue
        if not _git(repository, processes, "show-ref", "--verify", "--quiet", f"refs/heads/{branch}").ok:
            return Worktree(folder / free, branch, repository)
    raise ForkRefused(f"{_MOST} worktrees are named {plain_name(name)}", "Remove some: git worktree list")


def create_worktree(repository: Path, name: str | None, processes: Processes) -> Worktree:
    """Make a worktree of the commit that is checked out in `repository`, on a new branch.

    Raises:
        ForkRefused: see `plan_worktree`.
        ProgramFailed: git could not.
    """
    planned = plan_worktree(repository, name, processes)
    _exclude(Path(project_of(repository).key))
    while True:
        done = _git(repository, processes, "worktree", "add", "--quiet", "-b", planned.branch, str(planned.path))
        if done.ok:
            return planned
        again = plan_worktree(repository, name, processes)
        if again == planned:
            raise ProgramFailed(f"git worktree add failed: {done.complaint}", "Fork without --worktree.")
        planned = again  # somebody else took the name meanwhile


def remove_worktree(worktree: Worktree, processes: Processes) -> None:
    """Take away a worktree that was just made, for a fork that was not started after all."""
    _git(worktree.repository, processes, "worktree", "remove", "--force", str(worktree.path))
    _git(worktree.repository, processes, "branch", "--quiet", "-D", worktree.branch)


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


def _git(repository: Path, processes: Processes, *arguments: str) -> Completed:
    env = {key: value for key, value in os.environ.items() if key not in _GITS_OWN} | {"GIT_TERMINAL_PROMPT": "0"}
    return processes.run(["git", "-C", str(repository), *arguments], env=env, timeout=GIT_SECONDS)
