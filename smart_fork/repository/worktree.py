"""A git worktree of its own for a worker, so that two agents do not edit the same files: made, and removed again."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

from indexer.checkout import bare_at, content
from indexer.project import project_of, resolve
from indexer.shapes import dataclass
from smart_fork.errors import ForkRefused, ProgramFailed
from smart_fork.repository import changes
from smart_fork.repository.git import FOLDER, opened, opened_worktree
from smart_fork.repository.unsaved import what_would_be_lost
from smart_fork.system.processes import Completed, Processes
from smart_fork.text.advice import advice
from smart_fork.text.snippets import printable

BRANCHES = "smart-fork/"
MAX_NAME_CHARACTERS = 30
_MOST = 99
#: git fails while another one makes a worktree in the same repository: what that has half written cannot be read.
_TRIES = 5


def _without() -> str:
    return advice("fork without --worktree.", tool="leave worktree out.")


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
    """The worktree that `create_worktree` would make: the first free of ``name``, ``name-1``, ``name-2`` ….

    Raises:
        ForkRefused: `repository` is not in a git repository or has no commit, 99 worktrees have that name, or the
            changes cannot be carried over.
        ProgramFailed: git does not read the repository.
    """
    project = project_of(repository)
    if not project.git:
        if bare := bare_at(resolve(repository)):
            hint = f"Make it from one of its worktrees or a clone, or {_without()}"
            raise ForkRefused(f"{bare} is a bare repository: it has no files to work on", hint)
        why = f" ({printable(project.doubt)})" if project.doubt else ""
        hint = f"A worktree needs one; {_without()}"
        raise ForkRefused(f"Not in a git repository: {repository}{why}", hint)
    folder = Path(project.root) / FOLDER
    if folder.is_symlink():
        raise ForkRefused(f"{folder} is a symbolic link", f"Remove it, or {_without()}")
    there = opened(repository, processes)
    head = there.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}")
    if not head.ok and head.complaint:
        raise ProgramFailed(f"git cannot read {repository}: {head.complaint}", _without().capitalize())
    if not head.ok:
        raise ForkRefused(f"No commit yet in {repository}", f"Make the first one, or {_without()}")
    if with_changes:
        changes.check(repository, processes)
    for number in range(_MOST + 1):
        free = _numbered(plain_name(name), number)
        branch = BRANCHES + free
        if os.path.lexists(folder / free):
            continue
        if not there.git("show-ref", "--verify", "--quiet", f"refs/heads/{branch}").ok:
            return Worktree(folder / free, branch, repository, head.text)
    raise ForkRefused(
        f"{_MOST} worktrees are named {plain_name(name)}",
        advice("Remove some: smart-fork worktrees --prune", tool="Choose another worktree name."),
    )


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
    _exclude(opened(repository, processes).place.common)
    carried = changes.take(repository, planned.base, processes) if with_changes else None
    made = _add(planned, name, processes)
    if carried is None:
        return made
    try:
        return replace(made, base=changes.put(carried, made.path, processes))
    except BaseException:
        remove_worktree(made, processes)
        raise


def left_unfiltered(worktree: Worktree, processes: Processes) -> str:
    """What a person should know of the files that a filter makes, such as large ones kept elsewhere; empty if none."""
    there = opened_worktree(worktree.path, processes)
    if not there.has_filters:
        return ""
    files = there.git("ls-files", "-z").stdout
    said = iter(there.git("check-attr", "-z", "--cached", "--stdin", "filter", given=files).stdout.split(b"\0"))
    made = [(os.fsdecode(name), os.fsdecode(value)) for name, _, value in zip(said, said, said, strict=False)]
    made = [one for one in made if one[1] not in ("unspecified", "unset")]
    if not made:
        return ""
    name, driver = map(printable, made[0])
    pull = " (git lfs pull, there, fetches them)" if driver == "lfs" else ""
    return f"Filters are not run: {len(made)} files, such as {name}, are in the worktree as git stores them{pull}"


def remove_worktree(worktree: Worktree, processes: Processes) -> None:
    """Take away a worktree that was just made, for a fork that was not started after all."""
    there = opened(worktree.repository, processes)
    there.git("worktree", "remove", "--force", str(worktree.path))
    there.git("branch", "--quiet", "-D", worktree.branch)
    changes.forget_base(there, worktree.path)


def remove_if_saved(worktree: Path, branch: str, base: str, processes: Processes) -> str | None:
    """Remove a worktree of ours and its branch, if nothing in it would be lost; else say in one sentence what.

    Nothing is forced: git looks once more, and the branch goes only if it is still where it was looked at.
    """
    try:
        there, ref = opened(worktree.parent.parent, processes), f"refs/heads/{branch}"
    except ProgramFailed as error:
        return f"{worktree} stays: {error.message}"
    tip = there.git("rev-parse", "--verify", "--quiet", "--end-of-options", ref).text
    if loss := what_would_be_lost(worktree, branch, base, processes):
        return loss
    if worktree.exists():
        # As the worktree itself is configured: git looks into it once more.
        removed = opened_worktree(worktree, processes).git("worktree", "remove", str(worktree), within=there.top)
        if not removed.ok:
            return f"git does not remove {worktree}: {removed.complaint}"
    if tip:
        removed = there.git("update-ref", "-d", ref, tip)
        if not removed.ok:
            return f"{worktree} is removed, but not its branch {branch}: {removed.complaint}"
        there.git("config", "--remove-section", f"branch.{branch}")
    changes.forget_base(there, worktree)
    return None


def _add(planned: Worktree, name: str | None, processes: Processes) -> Worktree:
    failed = 0
    while not (done := _made(planned, processes)).ok:
        again = replace(plan_worktree(planned.repository, name, processes), base=planned.base)
        failed += again == planned  # else somebody else took the name meanwhile
        if failed == _TRIES:
            raise ProgramFailed(f"git worktree add failed: {done.complaint}", _without().capitalize())
        planned = again
    return planned


def _made(planned: Worktree, processes: Processes) -> Completed:
    """Its branch first, so that it is known whose it is: git, when it fails, leaves behind the one that it made."""
    there = opened(planned.repository, processes)
    ref = f"refs/heads/{planned.branch}"
    branch = there.git("update-ref", ref, planned.base, "")
    if not branch.ok:
        return branch
    done = there.git("worktree", "add", "--quiet", "--no-checkout", str(planned.path), planned.branch)
    if not done.ok:
        there.git("update-ref", "-d", ref, planned.base)
        return done
    try:
        # Filled as the worktree itself is configured, which may be otherwise than where it is made from.
        done = opened_worktree(planned.path, processes).git("read-tree", "--reset", "-u", planned.base)
        if done.ok:
            return done
    except BaseException:
        remove_worktree(planned, processes)
        raise
    remove_worktree(planned, processes)
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
    try:
        known = content(path) if os.path.lexists(path) else ""
        # Neither through a symbolic link, to a file that is not git's, nor into a pipe, which would never end.
        if line in known.splitlines() or path.is_symlink():
            return
    except OSError:
        return
    with path.open("a", encoding="utf-8") as file:
        file.write(line + "\n" if not known or known.endswith("\n") else f"\n{line}\n")
