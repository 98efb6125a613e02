"""What a `.git` says of its directory, as far as it can be proven: whoever fills a directory also writes its `.git`.

One that leads elsewhere is believed only where what it leads to points back.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from indexer.errors import IndexerError
from indexer.git_settings import content, settings, with_included
from indexer.paths import config_home
from indexer.shapes import dataclass

#: A pointer is one path, and the longest of them is this long.
_PATH_BYTES = 4096 + len("gitdir: \r\n")
_POINTER = "gitdir: "
_KEPT = ("HEAD", "objects", "refs")


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


def checkout(top: Path) -> Checkout:
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
        raise Unproven(f"{found.common} says that it is part of another repository, in a form that git never writes")
    if not trusted(top, git, *dict.fromkeys((found.own, found.common))):
        raise Unproven(
            f"{git} belongs to another user. If you trust it: git config --global --add safe.directory {str(top)!r}"
        )
    return found


def listed_worktrees(common: Path) -> Iterator[Path]:
    """The directories that a repository lists as its worktrees beside the main one, whether they are there or not."""
    try:
        entries = [Path(entry.path) for entry in os.scandir(common / "worktrees")]
    except OSError:
        return
    yield from filter(None, map(_listed, entries))


def removed_worktrees(common: Path) -> Iterator[Path]:
    """Those that are no more."""
    return (top for top in listed_worktrees(common) if not os.path.lexists(top))


def _elsewhere(top: Path, git: Path, kind: int) -> Checkout:
    """What a pointer or a symbolic link leads to, if that is proven."""
    own = _target(git, kind)
    if not os.path.lexists(own / "HEAD"):
        raise Unproven(f"{git} points to {own}, which is not a repository")
    if own.parent.name == "worktrees":
        return _worktree(top, own)
    said = {one.name: one.value for file in ("config", "config.worktree") for one in settings(own / file)}
    if worktree := said.get("core.worktree"):
        if Path(os.path.realpath(own / worktree)) == top:
            return Checkout(top, own, own, own)
        raise Unproven(f"{git} points to {own}, which is the repository of another directory")
    if _true(said.get("core.bare", "")):
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


def _true(value: str | None) -> bool:
    return value is None or value.lower() in ("true", "yes", "on", "1")


# Whose a repository is, decided as git does: one's own, or named in one's own ``safe.directory``.


def trusted(top: Path, *parts: Path) -> bool:
    """Whether the checkout `top` and these `parts` of it are all one's own, or the person has declared it safe."""
    return all(map(_is_ones_own, (top, *parts))) or _declared_safe(str(top))


def _is_ones_own(path: Path) -> bool:
    """The system's administrator is also whoever has become it with sudo."""
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return False
    me = os.geteuid()
    return owner == me or (me == 0 and os.environ.get("SUDO_UID", "") == str(owner))


def _declared_safe(top: str) -> bool:
    """By the last that speaks of it: an empty value takes back all before."""
    safe = False
    for file in _files():
        for name, value in with_included(file):
            if name == "safe.directory":
                safe = bool(value) and (safe or _means(value or "", top))
    return safe


def _means(value: str, top: str) -> bool:
    if value == "*":
        return True
    path = os.path.expanduser(value)  # noqa: PTH111 - leaves the ~ of nobody we know alone
    if not os.path.isabs(path):  # noqa: PTH117
        return False
    if path.endswith("/*"):
        return top.startswith(os.path.realpath(path[:-1]).rstrip("/") + "/")
    return os.path.realpath(path) == top


def _files() -> Iterator[Path]:
    """Those that no repository can write: the system's and the person's."""
    said = os.environ
    if said.get("GIT_CONFIG_NOSYSTEM", "").lower() in ("", "0", "false", "no", "off"):
        yield Path(said.get("GIT_CONFIG_SYSTEM") or "/etc/gitconfig")
    if "GIT_CONFIG_GLOBAL" in said:
        if said["GIT_CONFIG_GLOBAL"]:
            yield Path(said["GIT_CONFIG_GLOBAL"])
        return
    yield config_home() / "git/config"
    yield Path.home() / ".gitconfig"
