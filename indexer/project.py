"""The project of a directory: its git repository with all worktrees or, outside git, the directory itself.

Projects are found by reading `.git` alone, because each session needs one and git may not be installed. If a `.git`
points elsewhere, the target must point back, because a stranger's directory also contains a stranger's `.git`.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import field, replace
from pathlib import Path

from indexer.errors import IndexerError
from indexer.lazy_compilation import dataclass
from indexer.safe_files import open_regular

#: Maximum size of a `.git` file, which contains one path.
_PATH_BYTES = 4096 + len("gitdir: \r\n")
_POINTER = "gitdir: "
_GIT_FILES = ("HEAD", "objects", "refs")
#: Maximum size of other files of git. No list of ignored files is nearly that long.
_MAX_BYTES = 1 << 20
_GIT_SECONDS = 5.0
#: Environment variables for git that are passed on, because they say where a person's settings are. Others could name
#: another repository.
_GIT_VARIABLES = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH")


class Unproven(IndexerError):
    """A `.git` is not trusted, for example because another user owns it. The message gives the reason."""

    code = "unproven_checkout"


@dataclass(frozen=True, slots=True)
class Checkout:
    """A working directory of a git repository, with its `own` git folder and the `common` one of all worktrees.

    `key` is equal for all working directories that are proven to belong to one repository.
    """

    top: Path
    own: Path
    common: Path
    key: Path

    @classmethod
    def at(cls, top: Path) -> Checkout:
        """Return the checkout in the directory `top` (a path without links), which has a `.git`.

        Raises:
            Unproven: the `.git` belongs to another user, or points to a folder that does not point back.
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
    """Return the nearest folder with a `.git`, at or above `directory` (a path without links)."""
    for folder in (directory, *directory.parents):
        if os.path.exists(folder / ".git"):  # noqa: PTH110 - where we may not look there is none
            return folder
    return None


def bare_at(directory: Path) -> Path | None:
    """Return the nearest bare repository at or above `directory` (a path without links)."""
    for folder in (directory, *directory.parents):
        if all(os.path.exists(folder / name) for name in _GIT_FILES):  # noqa: PTH110 - where we may not look there is none
            return folder
    return None


def listed_worktrees(common: Path) -> Iterator[Path]:
    """Yield the directories that the git folder `common` lists as linked worktrees, even if they are gone."""
    try:
        entries = [Path(entry.path) for entry in os.scandir(common / "worktrees")]
    except OSError:
        return
    yield from filter(None, map(_listed, entries))


def worktree_named(common: Path, name: str) -> Path | None:
    """Return the directory of the worktree that git lists as `name`, which stays when the worktree moves."""
    return _listed(common / "worktrees" / name)


def removed_worktrees(common: Path) -> Iterator[Path]:
    """Yield the directories of worktrees that the git folder `common` lists, but that no longer exist."""
    return (top for top in listed_worktrees(common) if not os.path.lexists(top))


def _elsewhere(top: Path, git: Path, kind: int) -> Checkout:
    """Follow a `.git` that is a file or link to its checkout, or raise `Unproven` if that does not point back."""
    own = _target(git, kind)
    if not os.path.lexists(own / "HEAD"):
        raise Unproven(f"{git} points to {own}, which is not a repository")
    if own.parent.name == "worktrees":
        return _worktree(top, own)
    said = git_settings(own)
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
    text = text_of_regular(git, _PATH_BYTES).rstrip("\r\n")
    if not text.startswith(_POINTER):
        raise Unproven(f"{git} is not a file that git writes")
    return Path(os.path.realpath(git.parent / text.removeprefix(_POINTER)))


def _worktree(top: Path, own: Path) -> Checkout:
    common = own.parent.parent
    said = text_of_regular(own / "commondir", _PATH_BYTES).rstrip("\r\n")
    if os.path.realpath(own / said) != str(common):
        raise Unproven(f"{own} names another repository than the one that contains it")
    if (listed := _listed(own)) != top:
        raise Unproven(
            f"{top / '.git'} points to {common}, which does not list it as its worktree"
            + (f" but {listed}; if it was moved there: git worktree repair" if listed else "")
        )
    return Checkout(top, own, common, common)


def _listed(own: Path) -> Path | None:
    """Return the directory of the worktree with the git folder `own`; `None` if this folder does not record it."""
    try:
        path = own / text_of_regular(own / "gitdir", _PATH_BYTES).rstrip("\r\n")
        return Path(os.path.realpath(path.parent)) if path.name == ".git" else None
    except (OSError, ValueError):
        return None


def _is_trusted(found: Checkout) -> bool:
    """Return True if the current user owns the checkout `found`, or git trusts it because of ``safe.directory``."""
    if all(map(_is_ones_own, (found.top, found.top / ".git", found.own, found.common))):
        return True
    main = found.common.parent if found.common.name == ".git" else found.common
    places = (found.top,) if found.own == found.common else (found.top, main)
    return all(_git("-C", str(place), "rev-parse", "--git-dir") is not None for place in places)


def _is_ones_own(path: Path) -> bool:
    """Return True if the current user owns `path`, also as root through sudo."""
    try:
        owner = os.lstat(path).st_uid
    except OSError:
        return False
    me = os.geteuid()
    return owner == me or (me == 0 and os.environ.get("SUDO_UID", "") == str(owner))


def git_settings(own: Path) -> dict[str, str]:
    """Return the git settings in the configuration of the git folder `own`; none if git cannot read the file."""
    found: dict[str, str] = {}
    for file in (own / "config", own / "config.worktree"):
        readable = file.is_file() and file.stat().st_size <= _MAX_BYTES
        listed = _git("config", "--file", str(file), "--list", "-z") if readable else None
        for entry in os.fsdecode(listed or b"").split("\0"):
            name, line_end, value = entry.partition("\n")
            found[name] = value if line_end else "true"
    return found


def _git(*words: str) -> bytes | None:
    """Run git with these arguments, and return its output; `None` if git fails, is not installed, or takes too long."""
    import subprocess  # takes a while, and most checkouts are one's own

    clean = {name: said for name, said in os.environ.items() if not name.startswith("GIT_") or name in _GIT_VARIABLES}
    argv = ["git", *words]
    try:
        done = subprocess.run(
            argv, env=clean, stdin=subprocess.DEVNULL, capture_output=True, timeout=_GIT_SECONDS, check=False
        )
    except (OSError, ValueError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def text_of_regular(file: Path, most: int = _MAX_BYTES) -> str:
    """Return the text of a regular file of at most `most` bytes, decoded like a file name. A pipe does not block.

    Raises:
        OSError: the file cannot be read, is no regular file, or is larger.
    """
    with open_regular(file) as opened:
        if os.fstat(opened.fileno()).st_size > most:
            raise OSError(f"{file} is not a regular file, or is too large")
        return os.fsdecode(opened.read(most))


#: The beginning of the key of a project that is known by a commit only. Keys of directories begin with a slash.
_HEAD_PREFIX = "commit "
#: The beginning of the key for work in a project by sessions that began in another one.
_GUEST_PREFIX = "guest "


@dataclass(frozen=True, slots=True)
class Project:
    """A directory's git repository with all worktrees or, outside git, the directory itself.

    `key` is equal for all worktrees, and `root` is the main working directory. `git` is True for a repository. `doubt`
    says why a `.git` is not trusted. `places` are other directories, present or past, of the project, and `maybe` those
    that might belong to it.
    """

    key: str
    root: str
    git: bool
    doubt: str = field(default="", compare=False)
    places: tuple[str, ...] = field(default=(), compare=False)
    maybe: tuple[str, ...] = field(default=(), compare=False)

    @property
    def all_places(self) -> tuple[str, ...]:
        """Return the project's root, its other directories, and the listed worktrees that no longer exist."""
        if not self.git:
            return self.root, *self.places
        return self.root, *self.places, *map(str, removed_worktrees(Path(self.key)))

    def had_worktree(self, directory: Path) -> bool:
        """Return True if `directory` no longer exists, but was in a worktree that the repository still lists."""
        if not self.git or directory.exists():
            return False
        return any(is_within(directory, one) for one in removed_worktrees(Path(self.key)))

    def begun_at(self, head: str) -> Project:
        """Return this project with a key that names `head`, the commit at which a session without a directory began."""
        return replace(self, key=f"{_HEAD_PREFIX}{head} {self.key}") if head else self

    @staticmethod
    def head_of(key: str) -> str:
        """Return the commit in the key of a project that is known by a commit only; empty for other keys."""
        return key.removeprefix(_HEAD_PREFIX).partition(" ")[0] if key.startswith(_HEAD_PREFIX) else ""

    def with_guest_key(self) -> Project:
        """Return this project with a key that marks work of a session that began in another project."""
        return replace(self, key=f"{_GUEST_PREFIX}{self.key}")

    @staticmethod
    def host_of(key: str) -> str:
        """Return the project's key in a key that `with_guest_key` made; empty for other keys."""
        return key.removeprefix(_GUEST_PREFIX) if key.startswith(_GUEST_PREFIX) else ""


def project_of(directory: str | Path) -> Project:
    """Return the project of `directory`, which need not exist: a deleted folder still belongs to its repository."""
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


def resolve(directory: str | Path) -> Path:
    """Return `directory` as an absolute path without symbolic links, ``..`` or ``~``."""
    return Path(os.path.realpath(os.path.expanduser(directory)))  # noqa: PTH111 - leaves the ~ of nobody we know alone


def is_within(directory: str | Path, root: str | Path) -> bool:
    """Return True if `directory` is `root` or below it. Both are resolved: ``/repo-other`` is not in ``/repo``."""
    inner, outer = str(directory), str(root)
    return inner == outer or inner.startswith(outer.rstrip("/") + "/")
