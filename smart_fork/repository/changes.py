"""What is not committed in a working directory of git: kept as objects, put into another one, compared with a commit.

The directory itself, its index and the stashes stay as they are: git works on a copy of the index.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from smart_fork.errors import ForkRefused
from smart_fork.processes import Processes
from smart_fork.repository.git import asked, git, paths

#: Keeps what was carried into a worktree from being collected as garbage. Git forgets those of the worktree's own.
BASES = "refs/smart-fork-base/"
_US = ("-c", "user.name=smart-fork", "-c", "user.email=smart-fork@localhost")


@dataclass(frozen=True, slots=True)
class Changes:
    """The uncommitted state on top of a commit: a tree of what is staged, and a tree of all files.

    `announced` are new files of which the index knows only that they will be added (``git add -N``).
    """

    commit: str
    staged: str
    files: str
    announced: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FileChange:
    """One file that differs. `added` and `removed` count lines, and are `None` for what is not text."""

    path: str
    added: int | None
    removed: int | None


def check(folder: Path, processes: Processes) -> None:
    """See that the uncommitted state can be carried over, as far as can be told without doing it.

    Raises:
        ForkRefused: it cannot.
        ProgramFailed: git failed.
    """
    top = _top(folder, processes)
    with _index_of_our_own(top, processes) as env:
        _refuse_the_impossible(top, processes, env)


def take(folder: Path, commit: str, processes: Processes) -> Changes:
    """The uncommitted state of the working directory that `folder` is in, kept in the repository's objects.

    Raises:
        ForkRefused: it cannot be carried over as it is.
        ProgramFailed: git failed.
    """
    top = _top(folder, processes)
    with _index_of_our_own(top, processes) as env:
        _refuse_the_impossible(top, processes, env)
        announced = asked(top, processes, "diff-files", "-z", "--name-only", "--diff-filter=A", env=env)
        staged = asked(top, processes, "write-tree", env=env).text
        return Changes(commit, staged, _all_files(top, processes, env), tuple(paths(announced)))


def put(changes: Changes, worktree: Path, processes: Processes) -> str:
    """Make a clean `worktree` of the same commit look like what was taken; the commit that compares start from.

    Raises:
        ForkRefused: something could not be carried over.
        ProgramFailed: git failed.
    """
    asked(worktree, processes, "read-tree", "-m", "-u", changes.commit, changes.files)
    asked(worktree, processes, "read-tree", "--reset", changes.staged)
    if changes.announced:
        names = b"\0".join(map(os.fsencode, changes.announced))
        where = ("--pathspec-from-file=-", "--pathspec-file-nul")
        asked(worktree, processes, "--literal-pathspecs", "add", "--force", "--intent-to-add", *where, given=names)
    git(worktree, processes, "update-index", "-q", "--refresh")  # it fails where something differs, as it may here
    if take(worktree, changes.commit, processes) != changes:
        raise ForkRefused(
            "Not all uncommitted changes could be carried over, such as those outside of a sparse checkout",
            "Commit them, or fork without --with-changes.",
        )
    words = ("commit-tree", changes.files, "-p", changes.commit, "-m", "Uncommitted changes that were carried over")
    base = asked(worktree, processes, *_US, *words).text
    asked(worktree, processes, "update-ref", BASES + worktree.name, base)
    return base


def forget_base(repository: Path, worktree: Path, processes: Processes) -> None:
    """Let go of what was carried into a worktree that is no longer there."""
    git(repository, processes, "update-ref", "-d", BASES + worktree.name)


def difference(
    worktree: Path, base: str, processes: Processes, *, patch: bool = False
) -> tuple[tuple[FileChange, ...], bytes]:
    """How the files of `worktree` differ from commit `base`: committed, uncommitted and new ones together.

    With `patch` also as a patch. Nothing is written to the repository.

    Raises:
        ProgramFailed: git failed, or there is no such commit.
    """
    top = _top(worktree, processes)
    with _index_of_our_own(top, processes) as index, _objects_of_our_own(top, processes) as objects:
        env = dict(index) | dict(objects)
        files = _all_files(top, processes, env)
        how = ("diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--end-of-options", base, files)
        counted = asked(top, processes, how[0], "-z", "--numstat", *how[1:], env=env).stdout
        text = asked(top, processes, how[0], "-p", *how[1:], env=env).stdout if patch else b""
    return tuple(_counted(counted)), text


def _top(folder: Path, processes: Processes) -> Path:
    # git ends what it says with one newline; the name itself may end with another.
    return Path(os.fsdecode(asked(folder, processes, "rev-parse", "--show-toplevel").stdout[:-1]))


def _git_path(top: Path, name: str, processes: Processes) -> Path:
    # Relative to where it was asked, except for what is shared or in a linked worktree.
    return top / os.fsdecode(asked(top, processes, "rev-parse", "--git-path", name).stdout[:-1])


@contextmanager
def _index_of_our_own(top: Path, processes: Processes) -> Iterator[Mapping[str, str]]:
    """A copy of the index, for as long as it is needed."""
    index = _git_path(top, "index", processes)
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        copy = Path(folder) / "index"
        if index.exists():
            # With its time: files that are as young as the index are looked at again, however alike they seem.
            shutil.copy2(index, copy)
        yield {"GIT_INDEX_FILE": str(copy)}


@contextmanager
def _objects_of_our_own(top: Path, processes: Processes) -> Iterator[Mapping[str, str]]:
    """A place for new objects, so that looking leaves nothing behind."""
    objects = _git_path(top, "objects", processes).resolve()
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        yield {"GIT_OBJECT_DIRECTORY": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": _quoted(str(objects))}


def _quoted(path: str) -> str:
    """A path in a list that is separated by colons, as git reads it."""
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _all_files(top: Path, processes: Processes, env: Mapping[str, str]) -> str:
    sparse = git(top, processes, "config", "--type=bool", "core.sparseCheckout").text == "true"
    asked(top, processes, "add", "--all", *(["--sparse"] if sparse else []), env=env)
    return asked(top, processes, "write-tree", env=env).text


def _refuse_the_impossible(top: Path, processes: Processes, env: Mapping[str, str]) -> None:
    hint = "Commit or put away those changes, or fork without --with-changes."
    if git(top, processes, "ls-files", "--unmerged", env=env).stdout:
        raise ForkRefused(f"A merge with conflicts is going on in {top}", hint)
    others = paths(asked(top, processes, "ls-files", "-z", "--others", "--exclude-standard", env=env))
    inner = next((name for name in others if name.endswith("/")), None)
    if inner:
        raise ForkRefused(
            f"{top / inner} is a repository of its own, whose files cannot be carried over",
            "Name it in .gitignore or .git/info/exclude, or fork without --with-changes.",
        )
    status = ("status", "--porcelain=v2", "-z", "--untracked-files=no", "--no-renames", "--ignore-submodules=none")
    for line in asked(top, processes, *status, env=env).stdout.split(b"\0"):
        fields = line.split(b" ", 8)
        if len(fields) == 9 and fields[2].startswith(b"S") and fields[2] != b"S...":
            raise ForkRefused(f"There are changes in the submodule {os.fsdecode(fields[8])}", hint)


def _counted(numstat: bytes) -> Iterator[FileChange]:
    """What ``--numstat -z`` says: a renamed file has an empty name, and its old and new ones behind that."""
    fields = iter(numstat.split(b"\0"))
    for field in fields:
        if not field:
            continue
        added, removed, name = field.split(b"\t", 2)
        if not name:
            next(fields)
            name = next(fields)
        yield FileChange(os.fsdecode(name), _number(added), _number(removed))


def _number(text: bytes) -> int | None:
    return int(text) if text.isdigit() else None
