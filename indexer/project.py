"""Which project a directory belongs to: its git repository (all worktrees are one) or, outside git, itself.

Found by reading `.git` alone, since it is asked for every session and git need not be installed.
"""

from __future__ import annotations

import os
from dataclasses import field, replace
from pathlib import Path

from indexer.checkout import Unproven, checkout, removed_worktrees, top_of
from indexer.shapes import dataclass

#: How the key of a project begins that is known by a commit; directories begin with a slash.
_HEAD = "commit "
#: How the key begins of what was done in a project by sessions that were begun elsewhere.
_GUEST = "guest "


@dataclass(frozen=True, slots=True)
class Project:
    """`key` is the same for all worktrees of a repository, `root` is its main working directory, `git` if it is one.

    `doubt` says why a `.git` there is not believed: the directory is then a project of its own, outside git. `places`
    are the other directories that it is or was in, or that a person gave it; `maybe` those that might be.
    """

    key: str
    root: str
    git: bool
    doubt: str = field(default="", compare=False)
    places: tuple[str, ...] = field(default=(), compare=False)
    maybe: tuple[str, ...] = field(default=(), compare=False)


def project_of(directory: str | Path) -> Project:
    """The project of `directory`, which need not exist any more: a folder removed from a repository is still in it."""
    resolved = resolve(directory)
    top = top_of(resolved)
    doubt = ""
    if top is not None:
        try:
            found = checkout(top)
        except Unproven as error:
            doubt = str(error)
        else:
            root = found.key.parent if found.key.name == ".git" else top
            return Project(str(found.key), str(root), git=True)
    return Project(str(resolved), str(resolved), git=False, doubt=doubt)


def begun_at(head: str, project: Project) -> Project:
    """The project of a session that tells no directory for sure, but the commit that it was begun at.

    It is of every repository that has the commit, also of one that is cloned later: that is looked at when one asks.
    """
    return replace(project, key=f"{_HEAD}{head} {project.key}") if head else project


def head_of(key: str) -> str:
    """The commit in the key of such a project; empty for any other."""
    return key.removeprefix(_HEAD).partition(" ")[0] if key.startswith(_HEAD) else ""


def guest_of(project: Project) -> Project:
    """The project of what a session that was begun elsewhere did in this one."""
    return replace(project, key=f"{_GUEST}{project.key}")


def host_of(key: str) -> str:
    """The key of the project in which that was done; empty for the key of any other."""
    return key.removeprefix(_GUEST) if key.startswith(_GUEST) else ""


def repository_of(directory: str) -> Project | None:
    """The repository that a directory which a log names is or was in; `None` if it is in none."""
    if (there := recorded(directory)) is None:
        return None
    project = project_of(there)
    if not project.git and not os.path.lexists(there):
        from indexer.repositories import successor  # as above

        after = successor(there)
        project = project_of(after) if after else project
    return project if project.git else None


def places_of(project: Project) -> tuple[str, ...]:
    """Its root, its other places, and the worktrees that it lists although they are gone."""
    if not project.git:
        return project.root, *project.places
    return project.root, *project.places, *map(str, removed_worktrees(Path(project.key)))


def was_worktree_of(project: Project, directory: Path) -> bool:
    """Whether the resolved `directory` is no more, and was in a worktree that the repository still lists."""
    if not project.git or directory.exists():
        return False
    return any(is_within(directory, one) for one in removed_worktrees(Path(project.key)))


def resolve(directory: str | Path) -> Path:
    """Absolute, without symbolic links, ``..`` or ``~``."""
    return Path(os.path.realpath(os.path.expanduser(directory)))  # noqa: PTH111 - leaves the ~ of nobody we know alone


def recorded(directory: str) -> Path | None:
    """The directory that a log names, resolved, where it is now. `None` if it is no absolute path: it is of no project.

    Another system's path, a relative one, a URL or ``~`` would mean a place below our own directory or home.
    """
    if not Path(directory).is_absolute() or "\0" in directory:
        return None
    from indexer import repositories  # a status line has no time for it

    try:
        there = Path(os.path.realpath(directory))
        return repositories.now_at(there) or there
    except (OSError, ValueError):  # half a character
        return None


def is_within(directory: str | Path, root: str | Path) -> bool:
    """Whether `directory` is `root` or below it, both resolved; ``/repo-other`` is not in ``/repo``."""
    inner, outer = str(directory), str(root)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
