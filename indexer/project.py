"""Finds a directory's project: its git repository (all worktrees are one) or, outside git, itself.

Found by reading `.git` alone, since it is asked for every session and git need not be installed. What a `.git` says is
believed as far as it can be proven: one that leads elsewhere, where what it leads to points back. Whoever fills a
directory also writes its `.git`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path

from indexer.errors import IndexerError
from indexer.lazy import dataclass

#: A pointer is one path, and the longest of them is this long.
_PATH_BYTES = 4096 + len("gitdir: \r\n")
_POINTER = "gitdir: "
_KEPT = ("HEAD", "objects", "refs")
#: Far more than anybody's list of ignored files has.
_MOST_BYTES = 1 << 20
_GIT_SECONDS = 5.0
#: Of a person's variables for git, those that say where the settings are. The others could name another repository.
_LET_THROUGH = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")


class Unproven(IndexerError):
    """Why a `.git` is not believed, in one sentence."""

    code = "unproven_checkout"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working directory of a repository.

    `own` is what git keeps for this directory alone, `common` what all of its worktrees share, and `key` names the
    repository: the same for all directories that are proven to be of it.
    """

    top: Path
    own: Path
    common: Path
    key: Path

    @classmethod
    def at(cls, top: Path) -> Checkout:
        """The checkout of the resolved `top`, which has a `.git`.

        Raises:
            Unproven: it is somebody else's, or leads to what does not point back.
        """
        git = top / ".git"
        try:
            kind = os.lstat(git).st_mode
            found = Checkout(top, git, git, git) if stat.S_ISDIR(kind) else _elsewhere(top, git, kind)
            shared = os.path.lexists(found.common / "commondir")
        except (OSError, ValueError) as error:
            raise Unproven(f"{git} cannot be read") from error
        if shared:
            raise Unproven(
                f"{found.common} says that it is part of another repository, in a form that git never writes"
            )
        if not _is_trusted(found):
            raise Unproven(
                f"{git} belongs to another user. If you trust it: git config --global --add safe.directory {str(top)!r}"
            )
        return found


def top_of(directory: Path) -> Path | None:
    """The nearest folder with a `.git` at or above the resolved `directory`."""
    for folder in (directory, *directory.parents):
        if os.path.exists(folder / ".git"):  # noqa: PTH110 - where we may not look there is none
            return folder
    return None


def bare_at(directory: Path) -> Path | None:
    """The nearest folder at or above the resolved `directory` that is what git keeps, without files to work on."""
    for folder in (directory, *directory.parents):
        if all(os.path.exists(folder / name) for name in _KEPT):  # noqa: PTH110 - where we may not look there is none
            return folder
    return None


def listed_worktrees(common: Path) -> Iterator[Path]:
    """The directories that a repository lists as its worktrees beside the main one, whether they are there or not."""
    try:
        entries = [Path(entry.path) for entry in os.scandir(common / "worktrees")]
    except OSError:
        return
    yield from filter(None, map(_listed, entries))


def worktree_named(common: Path, name: str) -> Path | None:
    """Return where the worktree is now that git keeps under this name; the name stays when the worktree is moved."""
    return _listed(common / "worktrees" / name)


def removed_worktrees(common: Path) -> Iterator[Path]:
    """Those that are no more."""
    return (top for top in listed_worktrees(common) if not os.path.lexists(top))


def _elsewhere(top: Path, git: Path, kind: int) -> Checkout:
    """Follow a pointer or symbolic link to a checkout, if it is proven."""
    own = _target(git, kind)
    if not os.path.lexists(own / "HEAD"):
        raise Unproven(f"{git} points to {own}, which is not a repository")
    if own.parent.name == "worktrees":
        return _worktree(top, own)
    said = settings(own)
    if worktree := said.get("core.worktree"):
        if Path(os.path.realpath(own / worktree)) == top:
            return Checkout(top, own, own, own)
        raise Unproven(f"{git} points to {own}, which is the repository of another directory")
    if said.get("core.bare", "").lower() in ("true", "yes", "on", "1"):
        if own.parent == top:  # worktrees beside the repository that they are of
            return Checkout(top, own, own, own)
    elif ".git" not in own.parts:  # git init --separate-git-dir, where nothing points back: it speaks for itself alone
        return Checkout(top, own, own, git)
    raise Unproven(f"{git} points to {own}, which does not point back to {top}")


def _target(git: Path, kind: int) -> Path:
    if stat.S_ISLNK(kind):
        return Path(os.path.realpath(git))
    text = content(git, _PATH_BYTES).rstrip("\r\n")
    if not text.startswith(_POINTER):
        raise Unproven(f"{git} is not a file that git writes")
    return Path(os.path.realpath(git.parent / text.removeprefix(_POINTER)))


def _worktree(top: Path, own: Path) -> Checkout:
    common = own.parent.parent
    said = content(own / "commondir", _PATH_BYTES).rstrip("\r\n")
    if os.path.realpath(own / said) != str(common):
        raise Unproven(f"{own} names another repository than the one that contains it")
    if (listed := _listed(own)) != top:
        raise Unproven(
            f"{top / '.git'} points to {common}, which does not list it as its worktree"
            + (f" but {listed}; if it was moved there: git worktree repair" if listed else "")
        )
    return Checkout(top, own, common, common)


def _listed(own: Path) -> Path | None:
    """The directory that a repository says a worktree of its is in."""
    try:
        path = own / content(own / "gitdir", _PATH_BYTES).rstrip("\r\n")
        return Path(os.path.realpath(path.parent)) if path.name == ".git" else None
    except (OSError, ValueError):
        return None


def _is_trusted(found: Checkout) -> bool:
    """Return whether all of a checkout is one's own, or git trusts it because of ``safe.directory``."""
    if all(map(_is_ones_own, (found.top, found.top / ".git", found.own, found.common))):
        return True
    main = found.common.parent if found.common.name == ".git" else found.common
    places = (found.top,) if found.own == found.common else (found.top, main)
    return all(_git("-C", str(place), "rev-parse", "--git-dir") is not None for place in places)


def _is_ones_own(path: Path) -> bool:
    """The system's administrator is also whoever has become it with sudo."""
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return False
    me = os.geteuid()
    return owner == me or (me == 0 and os.environ.get("SUDO_UID", "") == str(owner))


def settings(own: Path) -> dict[str, str]:
    """Return the repository's own settings; none where git does not read the file."""
    found: dict[str, str] = {}
    for file in (own / "config", own / "config.worktree"):
        readable = file.is_file() and file.stat().st_size <= _MOST_BYTES
        listed = _git("config", "--file", str(file), "--list", "-z") if readable else None
        for entry in os.fsdecode(listed or b"").split("\0"):
            name, line_end, value = entry.partition("\n")
            found[name] = value if line_end else "true"
    return found


def _git(*words: str) -> bytes | None:
    """Return git's answer; `None` if it refuses, is not installed, or is late."""
    import subprocess  # takes a while, and most checkouts are one's own

    clean = {name: said for name, said in os.environ.items() if not name.startswith("GIT_") or name in _LET_THROUGH}
    argv = ["git", *words]
    try:
        done = subprocess.run(
            argv, env=clean, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def content(file: Path, most: int = _MOST_BYTES) -> str:
    """Return the text of a regular file of at most `most` bytes, decoded as file names are.

    It does not wait for a pipe or a device.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger.
    """
    opened = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    try:
        info = os.fstat(opened)
        if not stat.S_ISREG(info.st_mode) or info.st_size > most:
            raise OSError(f"{file} is not a regular file, or is too large")
        return os.fsdecode(os.read(opened, most))
    finally:
        os.close(opened)


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

    @property
    def all_places(self) -> tuple[str, ...]:
        """Its root, its other places, and the worktrees that it lists although they are gone."""
        if not self.git:
            return self.root, *self.places
        return self.root, *self.places, *map(str, removed_worktrees(Path(self.key)))

    def had_worktree(self, directory: Path) -> bool:
        """Tell if the resolved `directory` was deleted, and was in a worktree that the repository still lists."""
        if not self.git or directory.exists():
            return False
        return any(is_within(directory, one) for one in removed_worktrees(Path(self.key)))


def project_of(directory: str | Path) -> Project:
    """The project of `directory`, which need not exist any more: a folder removed from a repository is still in it."""
    resolved = resolve(directory)
    top = top_of(resolved)
    doubt = ""
    if top is not None:
        try:
            found = Checkout.at(top)
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


def resolve(directory: str | Path) -> Path:
    """Absolute, without symbolic links, ``..`` or ``~``."""
    return Path(os.path.realpath(os.path.expanduser(directory)))  # noqa: PTH111 - leaves the ~ of nobody we know alone


def is_within(directory: str | Path, root: str | Path) -> bool:
    """Return True if `directory` is `root` or below it, both resolved; ``/repo-other`` is not in ``/repo``."""
    inner, outer = str(directory), str(root)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
