"""Which project a directory belongs to: its git repository (all worktrees are one) or, outside git, itself.

Found by reading `.git` alone, since it is asked for every session and git need not be installed.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_GITDIR_BYTES = 4096


@dataclass(frozen=True, slots=True)
class Project:
    """`key` is the same for all worktrees of a repository, `root` is its main working directory, `git` if it is one."""

    key: str
    root: str
    git: bool


def project_of(directory: str | Path) -> Project:
    """The project of `directory`, which need not exist any more: a folder removed from a repository is still in it."""
    resolved = resolve(directory)
    top = git_top(resolved)
    if top is None:
        return Project(str(resolved), str(resolved), git=False)
    common = _common_dir(top)
    root = common.parent if common.name == ".git" else top
    return Project(str(common), str(root), git=True)


def resolve(directory: str | Path) -> Path:
    """Absolute, without symbolic links, ``..`` or ``~`` (F-072)."""
    return Path(os.path.realpath(os.path.expanduser(directory)))  # noqa: PTH111 - leaves the ~ of nobody we know alone


def git_top(directory: Path) -> Path | None:
    """The nearest folder with a `.git` at or above `directory` (F-151)."""
    for folder in (directory, *directory.parents):
        if os.path.exists(folder / ".git"):  # noqa: PTH110 - where we may not look there is none
            return folder
    return None


def is_within(directory: str | Path, root: str | Path) -> bool:
    """Whether `directory` is `root` or below it, both resolved; ``/repo-other`` is not in ``/repo`` (F-072)."""
    inner, outer = str(directory), str(root)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")


def _common_dir(top: Path) -> Path:
    """The git directory that all worktrees share. A `.git` that leads nowhere stands for itself."""
    git = top / ".git"
    try:
        pointer = _first_line(git) if git.is_file() else ""
        if not pointer.startswith("gitdir:"):
            return git
        own = (top / pointer.removeprefix("gitdir:").strip()).resolve()
        if (own / "commondir").is_file():
            return (own / _first_line(own / "commondir")).resolve()
        if own.parent.name == "worktrees":  # a worktree that its repository has forgotten
            own = own.parent.parent
        return own if own.is_dir() else git
    except (OSError, ValueError):
        return git


def _first_line(file: Path) -> str:
    with file.open(encoding="utf-8", errors="replace") as opened:
        return opened.read(_GITDIR_BYTES).partition("\n")[0].strip()
