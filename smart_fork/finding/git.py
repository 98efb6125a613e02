"""Runs git so that nothing in a repository makes git run a program, no matter who wrote the repository.

git gets the repository's location, as verified by `indexer.project`, and never searches for it. Hooks, watchers,
filters, external comparisons, helpers, editors, transports and submodules are switched off. Settings with variable
names, such as ``filter.NAME.clean``, are first looked up in the repository's configuration.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from indexer import repositories
from indexer.lazy_compilation import dataclass, late
from indexer.project import Checkout, Unproven, bare_at, resolve, top_of
from smart_fork.display_text import printable
from smart_fork.errors import ProgramFailed
from smart_fork.system.processes import Completed, Processes

#: The variables for git that are passed on. Others could run programs, or name another repository.
_LET_THROUGH = late(r"GIT_(?:CONFIG_(?:GLOBAL|SYSTEM|NOSYSTEM)|EXEC_PATH|(?:AUTHOR|COMMITTER)_\w+)")
_ENVIRONMENT = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_EDITOR": ":",
    "GIT_SEQUENCE_EDITOR": ":",
    "GIT_PAGER": "cat",
    "GIT_ASKPASS": "",
    "SSH_ASKPASS": "",
}
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.fsmonitor": "false",
    "core.splitIndex": "false",
    "core.safecrlf": "false",
    "core.quotePath": "false",
    "core.sshCommand": "false",
    "core.gitProxy": "",
    "core.askPass": "",
    "core.alternateRefsCommand": "false",
    "advice.addEmbeddedRepo": "false",
    "credential.helper": "",
    "protocol.allow": "never",
    "commit.gpgSign": "false",
    "log.showSignature": "false",
    "gpg.program": "false",
    "diff.external": "",
    "diff.orderFile": os.devnull,
    "diff.submodule": "short",
    "diff.ignoreSubmodules": "dirty",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
    "safe.bareRepository": "explicit",
    "gc.auto": "0",
    "maintenance.auto": "false",
}
_CHANGED = ("diff-index", "--name-only", "-z", "--no-renames", "--no-ext-diff", "--ignore-submodules=all", "HEAD", "--")
#: Settings of a repository that name programs, and the value that switches each off.
_NAMED = (
    (late(r"filter\..*\.(?:clean|smudge|process)", re.DOTALL), ""),
    (late(r"filter\..*\.required", re.DOTALL), "false"),
    (late(r"(?:diff\..*\.(?:command|textconv)|merge\..*\.driver)", re.DOTALL), ""),
    (late(r"hook\..*\.command", re.DOTALL), ""),
)

_NAME = late(r"[0-9a-f]{40,64}")
_REF = "ref: refs/heads/"
#: A valid branch name that has no other meaning to git.
_PLAIN = late(r"(?!.*\.\.)(?!.*//)[\w][\w./+=-]{0,199}")


@dataclass(frozen=True, slots=True)
class Repository:
    """A checkout with a trusted `.git`. Its methods run git in an environment in which it starts no other programs."""

    place: Checkout
    environment: Mapping[str, str]
    processes: Processes

    @property
    def has_filters(self) -> bool:
        """Return True if the repository's configuration has filters for file contents, which are switched off here."""
        return any(name.startswith("filter.") for name in self.environment.values())

    @property
    def top(self) -> Path:
        return self.place.top

    #: The folder in a repository for workers' worktrees. It is inside the main working directory, so that agents which
    #: trust that directory also trust its worktrees.
    WORKTREES = ".worktrees"
    #: The seconds that git may take, unless a call says otherwise.
    SECONDS = 120.0

    def git(
        self, *arguments: str, env: Mapping[str, str] | None = None, given: bytes = b"", within: Path | None = None,
        seconds: float = SECONDS,
    ) -> Completed:  # fmt: skip
        """Run git in the directory `within`, by default the checkout's top. Return its result, also of a failure.

        `env` is added to the environment, and `given` is the standard input.

        Raises:
            ProgramMissing: git is not installed.
            ProgramFailed: git did not answer in time.
        """
        command, around = ["git", "-C", str(within or self.top), *arguments], {**self.environment, **(env or {})}
        return self.processes.run(command, env=around, timeout=seconds, input=given, whom=str(self.top))

    def asked(self, *arguments: str, env: Mapping[str, str] | None = None, given: bytes = b"") -> Completed:
        """Run git at the checkout's top as `git` does, but raise `ProgramFailed` if it fails."""
        done = self.git(*arguments, env=env, given=given)
        if not done.ok:
            raise ProgramFailed(f"git {arguments[0]} failed: {done.complaint}", f"Look at the repository: {self.top}")
        return done

    def changed_files(self, seconds: float) -> list[str]:
        """Return the changed, uncommitted files. New files are left out: git would search each folder for them."""
        done = self.git(*_CHANGED, seconds=seconds)
        return done.paths if done.ok else []

    @staticmethod
    def branch_at(directory: Path) -> str:
        """Return the branch of the checkout that contains `directory`; empty without one, or if it is unknown."""
        place = Repository.checkout_at(directory)
        return (Repository.branch_of(place.own) or "") if place else ""

    @staticmethod
    def checkout_at(directory: Path | None) -> Checkout | None:
        """Return the checkout that contains a directory; `None` without one, or if its `.git` is not trusted."""
        try:
            top = top_of(directory) if directory is not None and directory.is_dir() else None
            return Checkout.at(top) if top is not None else None
        except (OSError, ValueError, Unproven):
            return None

    @staticmethod
    def branch_of(own: Path) -> str | None:
        """Return the branch that a checkout is on; empty if HEAD is detached, `None` if unknown.

        `own` is the git folder of this checkout, which for a worktree is not the repository's.
        """
        said = os.fsdecode(repositories.end_of(own / "HEAD", 1 << 12)).strip()
        if said.startswith(_REF):
            return None if said.startswith(f"{_REF}.") else said.removeprefix(_REF)
        return "" if _NAME.fullmatch(said) else None

    @staticmethod
    def is_branch_name(branch: str) -> bool:
        """Return True if a branch name from a log is valid, and git cannot take it for an option or an expression."""
        return bool(_PLAIN.fullmatch(branch)) and not branch.endswith((".lock", "/", "."))

    @staticmethod
    def is_commit_hash(name: str) -> bool:
        """Return True if a text from a log is a full commit hash."""
        return bool(_NAME.fullmatch(name))

    @classmethod
    def open_to_look_back(cls, folder: Path, processes: Processes) -> Repository:
        """Open the repository that contains `folder`, only to read commits, file names and the configuration.

        The configuration is not examined first, because git runs no program for such commands.

        Raises:
            ProgramFailed: there is no repository, or its `.git` is not trusted.
        """
        place = _proven(folder)
        return Repository(place, _environment(place) | _configured(_SETTINGS), processes)

    @classmethod
    def open_worktree(cls, worktree: Path, processes: Processes) -> Repository:
        """Open a worker's git worktree, which must still belong to the repository in which it was made.

        Raises:
            ProgramFailed: as `open`, or the worktree belongs to another repository.
        """
        found = Repository.open(worktree, processes)
        if worktree.parent.name != cls.WORKTREES:
            return found
        made_in = Repository.open(worktree.parent.parent, processes)
        if found.top != resolve(worktree) or found.place.common != made_in.place.common:
            raise ProgramFailed(
                f"smart-fork does not run git in {worktree}: it is no longer a worktree of {made_in.top}"
            )
        return found

    @classmethod
    def open(cls, folder: Path, processes: Processes) -> Repository:
        """Open the repository that contains `folder`.

        Raises:
            ProgramMissing: git is not installed.
            ProgramFailed: there is no repository, its `.git` is not trusted, or git cannot read its configuration.
        """
        return _described(_proven(folder), processes)


def _proven(folder: Path) -> Checkout:
    top = top_of(resolve(folder))
    if top is None:
        where = "it is bare, without files to work on" if bare_at(resolve(folder)) else "it is in no repository"
        raise ProgramFailed(f"smart-fork does not run git in {folder}: {where}")
    try:
        return Checkout.at(top)
    except Unproven as error:
        raise ProgramFailed(f"smart-fork does not run git in {folder}: {printable(str(error))}") from error


def bare_environment(own: Path, settings: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the environment variables for running git with the git folder `own` and these `settings`.

    The caller's ``GIT_`` variables are left out if they could make git run programs or use another repository.
    """
    kept = (name for name in os.environ if not name.startswith("GIT_") or _LET_THROUGH.fullmatch(name))
    clean = {name: os.environ[name] for name in kept} | _ENVIRONMENT
    return clean | {"GIT_DIR": str(own)} | (_configured(settings) if settings else {})


def _environment(place: Checkout) -> dict[str, str]:
    clean = bare_environment(place.own) | {"GIT_WORK_TREE": str(place.top)}
    if place.common != place.own:
        clean["GIT_COMMON_DIR"] = str(place.common)
    return clean


def _described(place: Checkout, processes: Processes) -> Repository:
    clean = _environment(place)
    said = Repository(place, clean, processes).git("config", "--list", "-z")
    if not said.ok:
        raise ProgramFailed(f"git cannot read {place.top}: {said.complaint}", "Look at its configuration.")
    entries = (entry.partition("\n") for entry in os.fsdecode(said.stdout).split("\0"))
    values = {name: value for name, _, value in entries if name}
    silenced = {name: nothing for name in values for pattern, nothing in _NAMED if pattern.fullmatch(name)}
    if place.common == place.own and values.get("core.bare", "false").lower() in ("", "true", "yes", "on", "1"):
        del clean["GIT_WORK_TREE"]  # there is no working directory, only others' beside it
    return Repository(place, clean | _configured(_SETTINGS | silenced), processes)


def _configured(settings: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables that give git these `settings`. Programs that git starts inherit the variables."""
    found = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        found |= {f"GIT_CONFIG_KEY_{number}": name, f"GIT_CONFIG_VALUE_{number}": value}
    return found


# The contents of git objects in an untrusted store.

#: The bytes that are read at a time; a larger object is read alone.
_BATCH_BYTES = 1 << 24


def contents(store: Path, processes: Processes) -> Iterator[bytes]:
    """Yield the contents of all objects (loose and packed) in the untrusted object store `store`, several at a time.

    The store's configuration, its hooks, and objects that it borrows from another store are ignored.

    Raises:
        ProgramFailed: git cannot read all objects.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = _bare_repository_around(store, Path(folder))
        listed = _git(own, processes, b"", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize)")
        for names in _batches(listed):
            yield _git(own, processes, b"\n".join(names), "--batch")


def _bare_repository_around(store: Path, own: Path) -> Path:
    for name in ("refs", "objects"):
        (own / name).mkdir()
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    for entry in os.scandir(store):
        if entry.is_dir(follow_symlinks=False) and (len(entry.name) == 2 or entry.name == "pack"):
            (own / "objects" / entry.name).symlink_to(Path(entry.path).resolve())
    return own


def _batches(listed: bytes) -> Iterator[list[bytes]]:
    names: list[bytes] = []
    size = 0
    for line in listed.splitlines():
        name, _, length = line.partition(b" ")
        if not length.isdigit():
            raise ProgramFailed(f"git cannot read the objects: {line.decode()}")
        if names and size + int(length) > _BATCH_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += int(length)
    if names:
        yield names


def _git(own: Path, processes: Processes, given: bytes, *options: str) -> bytes:
    done = processes.run(
        ["git", "cat-file", *options], env=bare_environment(own), timeout=Repository.SECONDS, input=given, cwd=own
    )
    if not done.ok:
        raise ProgramFailed(f"git cannot read the objects: {done.complaint}")
    return done.stdout
