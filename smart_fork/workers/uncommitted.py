"""Copies the uncommitted changes of a working directory to a worktree, as git objects; lists changes since a commit.

The working directory, its index and its stashes stay unchanged: git works on a copy of the index.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from indexer.json_values import Value, value
from indexer.lazy_compilation import dataclass
from smart_fork.errors import ForkRefused, ProgramFailed, advice
from smart_fork.finding.git import Repository
from smart_fork.system.processes import Processes

#: References that keep git from deleting the changes copied to a worktree. Git forgets a worktree's own references.
BASES = "refs/smart-fork-base/"
_US = {
    f"GIT_{who}_{what}": value
    for who in ("AUTHOR", "COMMITTER")
    for what, value in (("NAME", "smart-fork"), ("EMAIL", "smart-fork@localhost"))
}


def _without() -> str:
    return advice("fork without --with-changes.", tool="leave with_changes out.")


@dataclass(frozen=True, slots=True)
class Changes:
    """The uncommitted changes on top of a commit, as two git trees: the index (`staged`), and the `files` on disk.

    `announced` are new files that were added without their content (``git add -N``).
    """

    commit: str
    staged: str
    files: str
    announced: tuple[str, ...] = ()


def check(folder: Path, processes: Processes) -> None:
    """Raise `ForkRefused` if `folder` has uncommitted changes that cannot be copied to a worktree. Copy nothing."""
    there = Repository.open(folder, processes)
    with _temporary_index(there) as env:
        _refuse_the_impossible(there, env)


def put(changes: Changes, worktree: Path, processes: Processes) -> str:
    """Apply uncommitted changes to `worktree`, a clean checkout of the commit on which they are based.

    Return a new commit that contains them. Later states of the worktree are compared with it.

    Raises:
        ForkRefused: a change could not be copied.
    """
    there = Repository.open_worktree(worktree, processes)
    there.asked("read-tree", "-m", "-u", changes.commit, changes.files)
    there.asked("read-tree", "--reset", changes.staged)
    if changes.announced:
        names = b"\0".join(map(os.fsencode, changes.announced))
        where = ("--pathspec-from-file=-", "--pathspec-file-nul")
        there.asked("--literal-pathspecs", "add", "--force", "--intent-to-add", *where, given=names)
    there.git("update-index", "-q", "--refresh")  # it fails where something differs, as it may here
    if take(there, changes.commit) != changes:
        raise ForkRefused(
            "Some uncommitted changes could not be copied, such as those outside a sparse checkout",
            f"Commit them, or {_without()}",
        )
    words = ("commit-tree", changes.files, "-p", changes.commit, "-m", "Copied uncommitted changes")
    base = there.asked(*words, env=_US).text
    there.asked("update-ref", BASES + worktree.name, base)
    return base


def forget_base(repository: Repository, worktree: Path) -> None:
    """Delete the git reference that keeps the commit of the changes that were copied to a worktree."""
    repository.git("update-ref", "-d", BASES + worktree.name)


def difference(
    worktree: Path, base: str, processes: Processes, *, patch: bool = False
) -> tuple[tuple[FileChange, ...], bytes]:
    """Return the files of `worktree` that differ from commit `base`: committed, uncommitted and new files together.

    With `patch`, also return the differences as a patch; else it is empty. Nothing is written to the repository.
    """
    there = Repository.open_worktree(worktree, processes)
    with _temporary_index(there) as index, _temporary_objects(there) as objects:
        env = dict(index) | dict(objects)
        files = _all_files(there, env)
        how = ("diff-tree", "-r", "-M", "--no-ext-diff", "--no-textconv", "--end-of-options", base, files)
        counted = there.asked(how[0], "-z", "--numstat", *how[1:], env=env).stdout
        text = there.asked(how[0], "-p", *how[1:], env=env).stdout if patch else b""
    return tuple(_parse_numstat(counted)), text


def take(there: Repository, commit: str) -> Changes:
    """Store the uncommitted changes on top of the checked-out `commit` as git objects, and return them.

    Raise `ForkRefused` if they cannot be copied.
    """
    with _temporary_index(there) as env:
        _refuse_the_impossible(there, env)
        how = ("diff-files", "-z", "--name-only", "--diff-filter=A", "--ignore-submodules=all")
        announced = there.asked(*how, env=env)
        staged = there.asked("write-tree", env=env).text
        return Changes(commit, staged, _all_files(there, env), tuple(announced.paths))


@contextmanager
def _temporary_index(there: Repository) -> Iterator[Mapping[str, str]]:
    """Copy the index, and yield the environment variables that make git use the copy."""
    index = there.place.own / "index"
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        copy = Path(folder) / "index"
        if index.is_file():
            # With its time: files that are as young as the index are looked at again, however alike they seem.
            shutil.copy2(index, copy)
        yield {"GIT_INDEX_FILE": str(copy)}


@contextmanager
def _temporary_objects(there: Repository) -> Iterator[Mapping[str, str]]:
    """Make a temporary folder for new git objects, and yield the environment variables that make git write there."""
    objects = (there.place.common / "objects").resolve()
    with tempfile.TemporaryDirectory(prefix="smart-fork-") as folder:
        yield {"GIT_OBJECT_DIRECTORY": folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES": _in_quotation_marks(str(objects))}


def _in_quotation_marks(path: str) -> str:
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _all_files(there: Repository, env: Mapping[str, str]) -> str:
    """Store all files of the working directory as a git tree, and return the tree's hash.

    Submodules are added separately, so that git does not run inside them.
    """
    sparse = there.git("config", "--type=bool", "core.sparseCheckout").text == "true"
    inner = submodules(there, env)
    if inner:
        there.asked("update-index", "-z", "--index-info", env=env, given=b"".join(map(_index_entry, inner)))
    where = (":/", *(f":(top,exclude,literal){one.name}" for one in inner if one.folder))
    how = ("add", "--all", *(["--sparse"] if sparse else []), "--pathspec-from-file=-", "--pathspec-file-nul")
    there.asked(*how, env=env, given=b"\0".join(map(os.fsencode, where)))
    return there.asked("write-tree", env=env).text


def _index_entry(one: Submodule) -> bytes:
    """Return a line for ``git update-index`` that sets a submodule's commit, or removes it if it has no folder."""
    mode, commit = ("160000", one.commit) if one.folder else ("0", "0" * len(one.commit))
    return f"{mode} {commit}\t".encode() + os.fsencode(one.name) + b"\0"


def _refuse_the_impossible(there: Repository, env: Mapping[str, str]) -> None:
    hint = f"Commit or stash those changes, or {_without()}"
    if there.git("ls-files", "--unmerged", env=env).stdout:
        raise ForkRefused(f"An unfinished merge has conflicts in {there.top}", hint)
    others = there.asked("ls-files", "-z", "--others", "--exclude-standard", env=env).paths
    inner = next((name for name in others if name.endswith("/")), None)
    if inner:
        raise ForkRefused(
            f"{there.top / inner} is a separate repository: its files cannot be copied",
            f"Name it in .gitignore or .git/info/exclude, or {_without()}",
        )
    changed = next((one.name for one in submodules(there, env) if one.changed), None)
    if changed:
        raise ForkRefused(f"There are changes in the submodule {changed}", hint)


def _parse_numstat(numstat: bytes) -> Iterator[FileChange]:
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


#: The beginning of a submodule's entry in git's list, unless a sparse checkout leaves it out.
_SHOWN = "H 160000 "


@dataclass(frozen=True, slots=True)
class Submodule:
    """A submodule of a repository. `name` is its path, `commit` the checked-out one or, if unknown, the index's.

    `folder` is true if its directory exists, `changed` if it differs, or may differ, from the index.
    """

    name: str
    commit: str
    folder: bool
    changed: bool


def submodules(there: Repository, env: Mapping[str, str] | None = None) -> list[Submodule]:
    """Return the submodules in the repository's index, except those outside a sparse checkout.

    A submodule with a trusted `.git` is examined as a separate repository, but no program of its configuration runs.
    """
    found = []
    for entry in os.fsdecode(there.asked("ls-files", "-z", "-t", "--stage", env=env).stdout).split("\0"):
        facts, _, name = entry.partition("\t")
        if facts.startswith(_SHOWN):
            found.append(_looked_at(there, name, facts.split(" ")[2]))
    return found


def _looked_at(there: Repository, name: str, commit: str) -> Submodule:
    path = there.top / name
    if path.resolve() != path or not path.is_dir():
        return Submodule(name, commit, folder=False, changed=False)
    if not os.path.lexists(path / ".git"):
        return Submodule(name, commit, folder=True, changed=False)
    try:
        inner = Repository.open(path, there.processes)
        head = inner.git("rev-parse", "--verify", "--quiet", "HEAD^{commit}").text
        how = ("status", "--porcelain", "-z", "--untracked-files=normal", "--no-renames", "--ignore-submodules=dirty")
        files = inner.asked(*how).stdout
        changed = head != commit or bool(files) or any(one.changed for one in submodules(inner))
    except ProgramFailed:
        return Submodule(name, commit, folder=True, changed=True)
    return Submodule(name, head or commit, folder=True, changed=changed)


@value
class FileChange(Value):
    """A changed file, with its numbers of added and removed lines; `None` for a binary file."""

    path: str
    added: int | None
    removed: int | None

    def counted(self) -> str:
        """Return the numbers of changed lines as text, such as "+3 -1" or "binary"."""
        return "binary" if self.added is None else f"+{self.added} -{self.removed}"
