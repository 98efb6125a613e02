"""Tracks which sessions of a project are shared, and up to where: ``<project>/.smart-fork/tracking.json``.

Each alias has a base, which is what the server had when it was last seen, and pushes on its own. Nothing that comes
from a repository is believed: a file of that name that git knows is refused, for whoever wrote it could name logs.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Annotated, Any, Literal

import orjson
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from indexer.files import private_dir, replace_file, state_home
from indexer.locks import held
from indexer.project import Checkout, Unproven, bare_at, resolve, top_of
from smart_fork.agents.log_readers import READERS
from smart_fork.errors import Conflict, NotFound, ProgramFailed, SmartForkError, Usage
from smart_fork.repository import git
from smart_fork.repository.git import Repository
from smart_fork.sharing.canonical import Count, SessionId, refused
from smart_fork.sharing.project_keys import check_key, project_key
from smart_fork.snippets import quoted
from smart_fork.system.processes import Processes

FOLDER, FILE = ".smart-fork", "tracking.json"
NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
#: A host without a dot, as ``gh:acme/shop`` has it.
_LOCAL_NAME = re.compile(r"(?:[A-Za-z0-9+.-]+://)?(?:[^@/]*@)?[A-Za-z0-9_-]+(?::|/)")
_VERSION: Literal[1] = 1
_NAMED = "Name the project: --project host/owner/name, such as --project github.com/acme/shop."
_MEND = "Correct it, or remove it."


@dataclass(frozen=True, slots=True)
class ProjectFolder:
    """A directory in which sessions are shared: its root, and the key of the project that it is of."""

    root: Path
    key: str

    @classmethod
    def of(cls, project: str | None = None, directory: Path | None = None) -> ProjectFolder:
        """The project that is meant: by its key, or by a directory of a checkout that has the remote `origin`.

        Raises:
            Usage: a directory has no such remote, or that is neither a directory nor a key.
            NotFound: there is no such directory.
        """
        here = resolve(directory or Path.cwd())
        if project is not None and not os.path.isdir(resolve(project)):  # noqa: PTH112 - a key is no path
            return cls(top_of(here) or here, _key_in_words(project))
        start = resolve(project) if project is not None else here
        if not start.is_dir():
            raise NotFound(f"No such directory: {start}")
        top = top_of(start)
        if top is None:
            bare = bare_at(start)
            raise Usage(f"This directory is in {'a bare' if bare else 'no'} git repository.", _NAMED)
        return cls(top, project_key(_origin(top)))

    def file_for(self, name: str) -> Path:
        """Return the path of a shared session as a file of the project, in a private folder that git does not see.

        Raises:
            Usage: the folder is a link.
        """
        path = self.root / FOLDER / "sessions" / f"{name}.jsonl"
        if path.parent.is_symlink() or path.parent.parent.is_symlink():
            raise Usage(f"{path.parent} points to another place", "Remove the link: a repository may have brought it.")
        private_dir(path.parent)
        self.exclude()
        return path

    def exclude(self) -> None:
        """Keep the folder out of ``git status``, in the repository's private list and not in its files."""
        top = top_of(self.root)
        if top is None:
            return
        with contextlib.suppress(OSError, Unproven):
            path = Checkout.at(top).common / "info" / "exclude"
            path.parent.mkdir(exist_ok=True)
            known = path.read_text(encoding="utf-8", errors="replace") if path.is_file() else ""
            line = f"/{FOLDER}/"
            if line not in known.splitlines() and not path.is_symlink():
                with path.open("a", encoding="utf-8") as file:
                    file.write(f"{line}\n" if not known or known.endswith("\n") else f"\n{line}\n")


def check_alias(name: str) -> str:
    """A name for an alias.

    Raises:
        Usage: it is none.
    """
    if NAME.fullmatch(name) is None or not name.strip("."):
        raise Usage("An alias has 1 to 64 letters, digits, dots, dashes and underscores.")
    return name


class _StoredTracking(BaseModel):
    """A part of the file. Keys of other versions are kept."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", alias_generator=to_camel, populate_by_name=True)


class Alias(_StoredTracking):
    """A session as it is tracked here.

    `base_count` and `base_digest` are of the remote's records, `local_count` and `local_digest` of those of the local
    log that are the same conversation; of a copy that is not pushed yet, both are of its parent's.
    """

    session_id: SessionId | None = None
    parent_id: SessionId | None = None
    root_id: SessionId | None = None
    base_count: Count = 0
    base_digest: str = ""
    platform: str = ""
    files: tuple[str, ...] = ()
    last_pulled_at: str = ""
    local_digest: str = ""
    local_count: Count = 0
    revision: Count = 0
    kind: str = ""
    visibility: str = "private"
    title: str = ""

    @property
    def file(self) -> Path | None:
        """The log of this machine."""
        return Path(self.files[0]) if self.files else None

    @property
    def log(self) -> Path | None:
        """The log of this machine; after a rewind that may be another file."""
        logs = READERS[self.platform].logs_of(str(self.file)) if self.file and self.platform in READERS.names else ()
        return next((one.path for one in logs), self.file)

    def is_of(self, path: Path) -> bool:
        """Tell if that is the log of this machine."""
        return path in (self.file, self.log)

    def apart(self) -> Alias:
        """Return the log as a branch of the shared session, which the server makes with its first push."""
        parted = {"session_id": None, "parent_id": self.session_id, "kind": "branch", "visibility": "private"}
        return self.model_copy(update=parted)

    def elsewhere(self) -> Alias:
        """Return the shared session without a log of this machine."""
        return self.model_copy(update={"files": (), "local_count": 0, "local_digest": ""})


class Tracked(_StoredTracking):
    """Tracking data of a project. Only `Tracking.change` changes it.

    `begun` has the ids of sessions that the server was or will be asked to make, by what for: see `team.project`.
    """

    version: Literal[1] = _VERSION
    server: str = ""
    project: str = ""
    current: str | None = None
    aliases: dict[Annotated[str, AfterValidator(check_alias)], Alias] = Field(default_factory=dict)
    begun: dict[str, SessionId] = Field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The data as the file has it."""
        said = self.model_dump(mode="json", by_alias=True)
        for alias in said["aliases"].values():
            for name in ("sessionId", "files"):
                if not alias[name]:
                    del alias[name]
        return said if self.begun else {name: value for name, value in said.items() if name != "begun"}

    def named(self, reference: str | None) -> tuple[str, Alias] | None:
        """The alias that is meant: by its name, by an id or the beginning of one; without any, the current one."""
        if reference is None:
            return (self.current, self.aliases[self.current]) if self.current in self.aliases else None
        if reference in self.aliases:
            return reference, self.aliases[reference]
        if len(reference) < 8:
            return None
        meant = [(name, one) for name, one in self.aliases.items() if _has_id(one, reference.lower())]
        return meant[0] if len(meant) == 1 else None

    def of_log(self, path: Path) -> tuple[str, Alias] | None:
        """The alias of a log of this machine, or of one that was the same session's before a rewind."""
        return next(((name, one) for name, one in self.aliases.items() if one.is_of(path)), None)

    def with_alias(self, name: str, one: Alias, *, current: bool = True) -> Tracked:
        """The same with that alias, in place of one of that name."""
        aliases = {**self.aliases, name: one}
        return self.model_copy(update={"aliases": aliases, "current": name if current else self.current})

    def with_current(self, name: str) -> Tracked:
        """The same with that one as the current alias.

        Raises:
            NotFound: there is none.
        """
        self._check(name)
        return self.model_copy(update={"current": name})

    def _check(self, name: str) -> None:
        if name not in self.aliases:
            raise NotFound(f"No alias {quoted(name)} here.", "`smart-fork team alias list` shows them.")

    def with_begun(self, what: str, session_id: str | None) -> Tracked:
        """The same where that session is about to be made; without an id, where it was."""
        left = {key: one for key, one in self.begun.items() if key != what}
        return self.model_copy(update={"begun": left if session_id is None else {**left, what: session_id}})

    def without(self, name: str) -> Tracked:
        """The same without that alias.

        Raises:
            NotFound: there is none.
        """
        self._check(name)
        left = {key: one for key, one in self.aliases.items() if key != name}
        return self.model_copy(update={"aliases": left, "current": None if self.current == name else self.current})


@dataclass(frozen=True, slots=True)
class Tracking:
    """The file of one project, and the server on which it is shared, where only one is meant."""

    place: ProjectFolder
    server: str = ""

    @property
    def path(self) -> Path:
        """The path of the file."""
        return self.place.root / FOLDER / FILE

    def read(self) -> Tracked:
        """Read the tracking data; empty if there is no file.

        Raises:
            SmartForkError: it is damaged, of another project or server, or the repository brought it.
        """
        found = self.found()
        self._check(found)
        return found

    def ours(self) -> Tracked:
        """The same; nothing where what is tracked is of another project or server.

        Raises:
            SmartForkError: it is damaged, or the repository brought it.
        """
        found = self.found()
        return Tracked() if self._other(found) else found

    def found(self) -> Tracked:
        """Read the file, also one of another project.

        Raises:
            SmartForkError: it is damaged, or the repository brought it.
        """
        self._refuse_if_it_leads_elsewhere()
        try:
            data = self.path.read_bytes()
            said = orjson.loads(data)
        except FileNotFoundError:
            return Tracked()
        except (OSError, ValueError) as error:
            raise SmartForkError(f"{self.path} cannot be read: {error}", _MEND) from error
        self._refuse_if_known_to_git()
        if not isinstance(said, dict) or not isinstance(said.get("aliases", {}), dict):
            raise SmartForkError(f"{self.path} is damaged: no aliases", _MEND)
        if said.get("version", _VERSION) != _VERSION:
            raise SmartForkError(f"{self.path} was written by another version", "Install that version of smart-fork.")
        try:
            return Tracked.model_validate_json(data)
        except ValidationError as error:
            raise SmartForkError(f"{self.path} is damaged: {refused(error).message}", _MEND) from error
        except Usage as error:
            raise SmartForkError(f"{self.path} is damaged: {error}", _MEND) from error

    def change(self, change: Callable[[Tracked], Tracked]) -> Tracked:
        """Write what `change` makes of it. Others who do the same wait."""
        self._refuse_if_it_leads_elsewhere()
        check_written(self.place.root)
        try:
            private_dir(self.path.parent)
            self.place.exclude()
            with held(self.path.parent, fcntl.LOCK_EX):
                after = change(self.read())
                replace_file(self.path, [orjson.dumps(after.as_json(), option=orjson.OPT_INDENT_2), b"\n"])
                return after
        except OSError as error:
            raise unwritten(self.path, error) from error

    @contextlib.contextmanager
    def one_push(self) -> Iterator[None]:
        """Wait until no other process of this machine pushes to this project, from whichever checkout of it."""
        name = sha256(f"{self.server} {self.place.key}".encode()).hexdigest()[:32]
        folder = state_home() / "team" / "pushing" / name
        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(held(private_dir(folder), fcntl.LOCK_EX))
            except OSError as error:
                raise unwritten(folder, error) from error
            yield

    def _other(self, found: Tracked) -> tuple[str, str, str] | None:
        """Return the project or server in the file, the expected one and the option that selects it, if they differ."""
        pairs = (("--project", found.project, self.place.key), ("--server", found.server, self.server))
        return next((one for one in pairs if one[1] and one[2] and one[1] != one[2]), None)

    def _check(self, found: Tracked) -> None:
        if other := self._other(found):
            option, theirs, ours = map(quoted, other)
            raise Conflict(
                f"{self.path} tracks sessions of {theirs}, not of {ours}.",
                f"Use {option} {theirs}. If it has moved, write its new name there, or remove the file.",
            )

    def _refuse_if_it_leads_elsewhere(self) -> None:
        for path in (self.path.parent, self.path):
            if path.is_symlink():
                raise SmartForkError(
                    f"{path} points to another place.", "Remove the link: a repository may have brought it."
                )

    def _refuse_if_known_to_git(self) -> None:
        with contextlib.suppress(ProgramFailed):
            repository = Repository.open_to_look_back(self.place.root, Processes())
            if repository.git("ls-files", "--error-unmatch", "--", str(self.path)).ok:
                hint = f"It is private: git rm --cached {FOLDER}/{FILE}"
                raise SmartForkError(f"{self.path} is in the repository, and could name any of your logs.", hint)


def folder() -> Path:
    """Return the folder of this machine's team data."""
    return private_dir(state_home() / "team")


def unwritten(path: Path, error: OSError) -> SmartForkError:
    """Return the error for a file of ours that could not be written. The file is unchanged, and the command can be
    repeated.
    """
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Make room on its disk, and run the command again. Nothing is lost."
    else:
        hint = "Make it writable, and run the command again. Nothing is lost."
    return SmartForkError(f"{path} cannot be written: {error.strerror}", hint)


def timestamp() -> str:
    """The time, as it is written down."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def check_written(directory: Path) -> None:
    """Refuse a directory that no log and no file of ours can name.

    Raises:
        Usage: its name is not UTF-8.
    """
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        shown = quoted(str(directory).encode("utf-8", "replace").decode())
        raise Usage(
            f"The name of {shown} is not UTF-8, which sessions need.", "Use a clone with a UTF-8 name."
        ) from None


def _key_in_words(text: str) -> str:
    """A key, also as the address that it is of."""
    try:
        return check_key(text)
    except Usage:
        with contextlib.suppress(Usage):
            return project_key(text if "://" in text else f"https://{text}")
    raise Usage(f"No directory {quoted(text)}, and it is not a project key.", _NAMED)


def _origin(top: Path) -> str:
    """The address from which it is fetched. A host without a dot is a name of this machine's: see git's insteadOf."""
    repository = Repository.open_to_look_back(top, Processes())
    said = repository.git("config", "--get-all", "remote.origin.url")
    first = next(iter(said.text.splitlines()), "").strip() if said.ok else ""
    if not first:
        hint = _others(Repository.open(top, Processes())) or _NAMED  # or git says what is wrong with its configuration
        raise Usage("This repository has no remote `origin`, which names the project.", hint)
    if _LOCAL_NAME.match(first) and (known := repository.git("remote", "get-url", "origin")).ok:
        return known.text
    return first


def _others(repository: git.Repository) -> str:
    """Suggest the other remotes of the repository."""
    for line in repository.git("config", "--get-regexp", r"^remote\..*\.url$").text.splitlines():
        name, _, url = line.partition(" ")
        with contextlib.suppress(Usage):
            called = quoted(name.removeprefix("remote.").removesuffix(".url"))
            return f"Its remote {called} is --project {project_key(url)}"
    return ""


def _has_id(one: Alias, beginning: str) -> bool:
    local = (Path(file).stem for file in one.files)
    return bool(one.session_id and one.session_id.startswith(beginning)) or any(
        name == beginning or name.startswith(beginning) or beginning in name.split("-", 1)[-1:] for name in local
    )
