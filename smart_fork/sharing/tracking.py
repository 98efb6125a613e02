"""The file ``<project>/.smart-fork/tracking.json``: the aliases (named shared sessions) of a project.

Each alias has a base: the server's records when they were last seen. A tracking file that is in the git repository is
refused, because its author could name any log of this machine.
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

from indexer.locks import held
from indexer.project import Checkout, Unproven, bare_at, resolve, top_of
from indexer.safe_files import private_dir, replace_file, state_home
from smart_fork.agents.log_readers import READERS
from smart_fork.display_text import quoted
from smart_fork.errors import Conflict, NotFound, ProgramFailed, SmartForkError, Usage
from smart_fork.finding.git import Repository
from smart_fork.sharing.canonical import Count, SessionId, check_key, invalid_message, project_key
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
    """A directory with shared sessions: its root, and the key of its project, such as "github.com/acme/shop"."""

    root: Path
    key: str

    @classmethod
    def of(cls, project: str | None = None, directory: Path | None = None) -> ProjectFolder:
        """Find the project that `project` names by a directory or key, or else the one of `directory`.

        Raises:
            Usage: a directory has no remote `origin`, or `project` is neither a directory nor a key.
            NotFound: the directory does not exist.
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
        """Return the path of the file with the records of the shared session `name`, below the project.

        Its folder is created, private and ignored by git. A symbolic link raises `Usage`.
        """
        path = self.root / FOLDER / "sessions" / f"{name}.jsonl"
        if path.parent.is_symlink() or path.parent.parent.is_symlink():
            raise Usage(f"{path.parent} points to another place", "Remove the link: a repository may have brought it.")
        private_dir(path.parent)
        self.exclude()
        return path

    def exclude(self) -> None:
        """Add ``.smart-fork`` to the repository's private exclude list, so that ``git status`` does not show it."""
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
    """Return the name of an alias (a named shared session) unchanged, or raise `Usage` if it is invalid."""
    if NAME.fullmatch(name) is None or not name.strip("."):
        raise Usage("An alias has 1 to 64 letters, digits, dots, dashes and underscores.")
    return name


class _StoredTracking(BaseModel):
    """The base class of the parts of the tracking file. Fields that this version does not know are kept."""

    model_config = ConfigDict(frozen=True, strict=True, extra="allow", alias_generator=to_camel, populate_by_name=True)


class Alias(_StoredTracking):
    """A shared session of a project under a name of this machine, and which of its records the local log has.

    `base_count` and `base_digest` describe the server's records. `local_count` and `local_digest` describe the records
    of the local log that match the server's. In a copy that is not pushed yet, all four describe its parent's records.
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
        """The stored path of the session's log on this machine; `None` if no log is stored. See `log`."""
        return Path(self.files[0]) if self.files else None

    @property
    def log(self) -> Path | None:
        """The session's current log. It differs from `file` if the agent uses a new file after a rewind."""
        logs = READERS[self.platform].logs_of(str(self.file)) if self.file and self.platform in READERS.names else ()
        return next((one.path for one in logs), self.file)

    def is_of(self, path: Path) -> bool:
        """Return True if `path` is the stored log or the current log of this session on this machine."""
        return path in (self.file, self.log)

    def apart(self) -> Alias:
        """Return a copy of this alias for a private branch of the session. The next push creates the branch."""
        parted = {"session_id": None, "parent_id": self.session_id, "kind": "branch", "visibility": "private"}
        return self.model_copy(update=parted)

    def elsewhere(self) -> Alias:
        """Return a copy of this alias that names no log on this machine."""
        return self.model_copy(update={"files": (), "local_count": 0, "local_digest": ""})


class Tracked(_StoredTracking):
    """The contents of a project's tracking file: its aliases (named shared sessions).

    `begun` maps a command with its arguments to the session id that it has asked the server to create. A repeated
    command uses the same id (see `team.tracked_sessions`).
    """

    version: Literal[1] = _VERSION
    server: str = ""
    project: str = ""
    current: str | None = None
    aliases: dict[Annotated[str, AfterValidator(check_alias)], Alias] = Field(default_factory=dict)
    begun: dict[str, SessionId] = Field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """Return the contents of the tracking file as a JSON value."""
        said = self.model_dump(mode="json", by_alias=True)
        for alias in said["aliases"].values():
            for name in ("sessionId", "files"):
                if not alias[name]:
                    del alias[name]
        return said if self.begun else {name: value for name, value in said.items() if name != "begun"}

    def named(self, reference: str | None) -> tuple[str, Alias] | None:
        """Return the alias that `reference` names: by its name, a session id, or the start of an id.

        Without `reference`, return the current alias, which commands use by default.
        """
        if reference is None:
            return (self.current, self.aliases[self.current]) if self.current in self.aliases else None
        if reference in self.aliases:
            return reference, self.aliases[reference]
        if len(reference) < 8:
            return None
        meant = [(name, one) for name, one in self.aliases.items() if _has_id(one, reference.lower())]
        return meant[0] if len(meant) == 1 else None

    def of_log(self, path: Path) -> tuple[str, Alias] | None:
        """Return name and alias of the session with the log `path`; `None` without one. See `Alias.is_of`."""
        return next(((name, one) for name, one in self.aliases.items() if one.is_of(path)), None)

    def with_alias(self, name: str, one: Alias, *, current: bool = True) -> Tracked:
        """Return a copy in which the alias `name` is added or replaced, and by default is the current one."""
        aliases = {**self.aliases, name: one}
        return self.model_copy(update={"aliases": aliases, "current": name if current else self.current})

    def with_current(self, name: str) -> Tracked:
        """Return a copy with `name` as the current alias, which commands use by default."""
        self._check(name)
        return self.model_copy(update={"current": name})

    def _check(self, name: str) -> None:
        if name not in self.aliases:
            raise NotFound(f"No alias {quoted(name)} here.", "`smart-fork team alias list` shows them.")

    def with_begun(self, what: str, session_id: str | None) -> Tracked:
        """Return a copy with the id of a session that the server is about to create for the purpose `what`.

        If `session_id` is `None`, the note is removed.
        """
        left = {key: one for key, one in self.begun.items() if key != what}
        return self.model_copy(update={"begun": left if session_id is None else {**left, what: session_id}})

    def without(self, name: str) -> Tracked:
        """Return a copy without the alias `name`. Raise `NotFound` if there is none."""
        self._check(name)
        left = {key: one for key, one in self.aliases.items() if key != name}
        return self.model_copy(update={"aliases": left, "current": None if self.current == name else self.current})


@dataclass(frozen=True, slots=True)
class Tracking:
    """The reader and writer of a project's tracking file. `server` must match the file's; "" matches any."""

    place: ProjectFolder
    server: str = ""

    @property
    def path(self) -> Path:
        """The path of the project's tracking file."""
        return self.place.root / FOLDER / FILE

    def read(self) -> Tracked:
        """Read the tracking file. Without a file, return empty tracking data.

        Raises:
            SmartForkError: the file is damaged, is for another project or server, or came with the repository.
        """
        found = self.found()
        self._check(found)
        return found

    def ours(self) -> Tracked:
        """Read the tracking file. If it is missing, or for another project or server, return empty tracking data."""
        found = self.found()
        return Tracked() if self._other(found) else found

    def found(self) -> Tracked:
        """Read the tracking file (a project's aliases for shared sessions). Without a file, return empty data.

        The file may be for another project or server; callers check that.

        Raises:
            SmartForkError: the file is damaged, or is committed in the repository, so that others wrote it.
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
            raise SmartForkError(f"{self.path} is damaged: {invalid_message(error).message}", _MEND) from error
        except Usage as error:
            raise SmartForkError(f"{self.path} is damaged: {error}", _MEND) from error

    def change(self, change: Callable[[Tracked], Tracked]) -> Tracked:
        """Apply `change` to the tracking data, write the result to the file and return it.

        Other processes that change the file wait meanwhile.
        """
        self._refuse_if_it_leads_elsewhere()
        check_utf8(self.place.root)
        try:
            private_dir(self.path.parent)
            self.place.exclude()
            with held(self.path.parent, fcntl.LOCK_EX):
                after = change(self.read())
                replace_file(self.path, [orjson.dumps(after.as_json(), option=orjson.OPT_INDENT_2), b"\n"])
                return after
        except OSError as error:
            raise write_error(self.path, error) from error

    @contextlib.contextmanager
    def push_lock(self) -> Iterator[None]:
        """Hold a lock, so that only one process of this machine pushes to the project, from any checkout."""
        name = sha256(f"{self.server} {self.place.key}".encode()).hexdigest()[:32]
        folder = state_home() / "team" / "pushing" / name
        with contextlib.ExitStack() as lock:
            try:
                lock.enter_context(held(private_dir(folder), fcntl.LOCK_EX))
            except OSError as error:
                raise write_error(folder, error) from error
            yield

    def _other(self, found: Tracked) -> tuple[str, str, str] | None:
        """Return (option, the file's value, expected value) if the file is for another project or server, or `None`."""
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
    """Return the folder for smart-fork's files about the team on this machine. It is created if needed."""
    return private_dir(state_home() / "team")


def write_error(path: Path, error: OSError) -> SmartForkError:
    """Return an error that says why a file of smart-fork could not be written (it is unchanged), and what to do."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        hint = "Make room on its disk, and run the command again. Nothing is lost."
    else:
        hint = "Make it writable, and run the command again. Nothing is lost."
    return SmartForkError(f"{path} cannot be written: {error.strerror}", hint)


def timestamp() -> str:
    """Return the current time in UTC as stored: "2026-11-20T21:00:00Z"."""
    return datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


def check_utf8(directory: Path) -> None:
    """Refuse a directory name that is not UTF-8: neither agents' logs nor smart-fork's files can contain it."""
    try:
        str(directory).encode()
    except UnicodeEncodeError:
        shown = quoted(str(directory).encode("utf-8", "replace").decode())
        raise Usage(
            f"The name of {shown} is not UTF-8, which sessions need.", "Use a clone with a UTF-8 name."
        ) from None


def _key_in_words(text: str) -> str:
    """Return the project key for a text that a user typed: a key, or the address of a git remote."""
    try:
        return check_key(text)
    except Usage:
        with contextlib.suppress(Usage):
            return project_key(text if "://" in text else f"https://{text}")
    raise Usage(f"No directory {quoted(text)}, and it is not a project key.", _NAMED)


def _origin(top: Path) -> str:
    """Return the address of the git remote `origin` of the repository at `top`.

    If its host is a local alias (see git's insteadOf), return the address that git uses.
    """
    repository = Repository.open_to_look_back(top, Processes())
    said = repository.git("config", "--get-all", "remote.origin.url")
    first = next(iter(said.text.splitlines()), "").strip() if said.ok else ""
    if not first:
        hint = _others(Repository.open(top, Processes())) or _NAMED  # or git says what is wrong with its configuration
        raise Usage("This repository has no remote `origin`, which names the project.", hint)
    if _LOCAL_NAME.match(first) and (known := repository.git("remote", "get-url", "origin")).ok:
        return known.text
    return first


def _others(repository: Repository) -> str:
    """Return a hint that names the project by a remote other than `origin`; empty if there is none."""
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
