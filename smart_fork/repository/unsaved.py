"""What would be lost with a worktree. It is asked before one is removed, so every doubt counts as a loss."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from indexer.project import is_within, resolve
from indexer.shapes import dataclass
from smart_fork.errors import ProgramFailed, SmartForkError
from smart_fork.repository.changes import difference
from smart_fork.repository.git import FOLDER, Repository, opened, opened_worktree
from smart_fork.repository.submodules import submodules
from smart_fork.system.processes import Processes, every_process

_OURS = re.compile(r"smart-fork/[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True, slots=True)
class Listed:
    """A worktree as git knows it. `branch` is the full name of what is checked out; `locked` why it must stay."""

    path: Path
    branch: str
    locked: str | None


def listed(repository: Repository) -> list[Listed]:
    """The linked worktrees of a repository, without the main working directory."""
    found = []
    for block in os.fsdecode(repository.git("worktree", "list", "--porcelain").stdout).split("\n\n")[1:]:
        lines = [line.partition(" ")[::2] for line in block.splitlines()]
        said = dict(lines)
        if lines and lines[0][0] == "worktree":
            found.append(Listed(Path(said["worktree"]), said.get("branch", ""), said.get("locked")))
    return found


def what_would_be_lost(worktree: Path, branch: str, base: str, processes: Processes) -> str | None:
    """Why a worktree of ours and its branch must not be removed, in one sentence that says how to do it by hand.

    `None` where everything in it is also elsewhere. `base` is the commit that its worker began with.
    """
    if worktree.parent.name != FOLDER or ".." in worktree.parts or not _OURS.fullmatch(branch):
        return f"{worktree} was not made by smart-fork and stays."
    try:
        repository = opened(worktree.parent.parent, processes)
    except ProgramFailed as error:
        return f"{worktree} stays: {error.message}"
    known = listed(repository)
    mine = next((one for one in known if one.path == worktree), None)
    elsewhere = next((one.path for one in known if one.branch == f"refs/heads/{branch}" and one != mine), None)
    if elsewhere:
        return f"The branch {branch} is checked out in {elsewhere}; {_by_hand(repository.top, elsewhere, branch)}"
    if mine is None and os.path.lexists(worktree):
        return f"{worktree} is not a git worktree and stays."
    if mine and not worktree.is_dir():
        prune = f"git -C {shlex.quote(str(repository.top))} worktree prune"
        return f"{worktree} is missing; if it was deleted: {prune}, and if it was moved: git worktree repair, there."
    try:
        there = opened_worktree(worktree, processes) if mine else None
    except ProgramFailed as error:
        return f"{worktree} cannot be read ({error.message}); {_by_hand(repository.top, worktree, branch)}"
    reasons = _in_it(mine, there, branch, base, known) if mine and there else iter(())
    reason = next(reasons, None) or _commits(repository, there, branch)
    return f"{worktree} {reason}; {_by_hand(repository.top, worktree, branch)}" if reason else None


def _in_it(mine: Listed, there: Repository, branch: str, base: str, known: list[Listed]) -> Iterator[str]:
    worktree = mine.path
    if mine.locked is not None:
        yield f"is locked{f' ({mine.locked})' if mine.locked else ''}"
    for other in known:
        if other != mine and is_within(other.path, worktree):
            yield f"has another worktree in it, {other.path}"
    if somebody := _somebody_in(worktree):
        yield f"is the working directory of process {somebody}"
    how = ("status", "--porcelain", "-z", "--untracked-files=all", "--no-renames", "--ignore-submodules=dirty")
    status = there.git(*how)
    if not status.ok:
        yield f"cannot be read ({status.complaint})"
    if number := status.stdout.count(b"\0"):
        carried = ", as copied at the start" if _as_it_began(there, base) else ""
        yield f"has {_counted(number, 'uncommitted or new file')}{carried}"
    if changed := next((one.name for one in submodules(there) if one.changed), None):
        yield f"has changes in the submodule {changed}"
    if hidden := _hidden_from_status(there):
        yield f"has files that git does not check (assume-unchanged), such as {hidden}"
    stashes = there.git("stash", "list", "--format=%gs").text.splitlines()
    made_there = [line for line in stashes if line.startswith((f"WIP on {branch}:", f"On {branch}:"))]
    if made_there:
        yield f"has {_counted(len(made_there), 'stash', 'stashes')}"


def _commits(repository: Repository, there: Repository | None, branch: str) -> str | None:
    """Of what is checked out there and of its branch: those that no other branch has, here or elsewhere."""
    tips = []
    if repository.git("show-ref", "--verify", "--quiet", f"refs/heads/{branch}").ok:
        tips.append(f"refs/heads/{branch}")
    if there:
        tips.append(there.git("rev-parse", "HEAD").text)
    if not tips:
        return None
    others = ("--not", f"--exclude={branch}", "--branches", "--remotes")
    done = repository.git("rev-list", "--count", *tips, *others)
    if not done.ok:
        return f"cannot be read ({done.complaint})"
    return f"has {_counted(int(done.text), 'commit')} on no other branch" if done.text != "0" else None


def _as_it_began(there: Repository, base: str) -> bool:
    try:
        return bool(base) and not difference(there.top, base, there.processes)[0]
    except SmartForkError:
        return False


def _hidden_from_status(there: Repository) -> str | None:
    """A file that is there and that ``git status`` passes over: it was marked with ``git update-index``."""
    for line in there.git("ls-files", "-z", "-v").stdout.split(b"\0"):
        flag, name = line[:1], os.fsdecode(line[2:])
        if (flag == b"S" or flag.islower()) and os.path.lexists(there.top / name):
            return name
    return None


def _somebody_in(worktree: Path) -> str | None:
    """Return the number and name of a process that works in there, if we may see it."""
    import psutil  # takes a while

    there = resolve(worktree)
    for process in every_process():
        with contextlib.suppress(psutil.Error, OSError):  # it has ended, or is somebody else's
            if is_within(process.cwd(), there):
                return f"{process.pid} ({process.name()})"
    return None


def _by_hand(repository: Path, worktree: Path, branch: str) -> str:
    git_there = f"git -C {shlex.quote(str(repository))}"
    path = shlex.quote(str(worktree))
    return f"to remove it anyway: {git_there} worktree remove --force {path} && {git_there} branch -D {branch}"


def _counted(number: int, one: str, several: str = "") -> str:
    return f"{number} {one if number == 1 else several or one + 's'}"
