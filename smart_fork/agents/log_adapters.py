"""Adapters that find and read logs in an agent's own folder: files with a record on each line, and SQLite databases."""

from __future__ import annotations

import os
import re
import tempfile
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, cast

from indexer.json_values import dict_in, json_in
from indexer.safe_files import open_regular
from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile, ReadResult, is_name, regular_file, regular_files
from indexer.transcripts.lines import current_bound
from indexer.transcripts.model import Session
from smart_fork.agents import AGENTS
from smart_fork.agents.decoders import Header, ReadCodec, Record

if TYPE_CHECKING:
    import apsw

    from smart_fork.agents.record_reader import LineFold


def newest_first(files: Iterable[LogFile]) -> tuple[Path, ...]:
    """Return the paths of the logs `files`, the most recently written log first."""
    return tuple(file.path for file in sorted(files, key=lambda file: file.mtime_ns, reverse=True))


class OwnLogs(AgentAdapter):
    """The base of adapters that read logs in the agent's own folder, as the agent's description names it."""

    def __init__(self) -> None:
        self.own = AGENTS[self.name].home
        self.variable, self.places = self.own.variable, self.own.places

    def homes(self) -> tuple[Path, ...]:
        return self.own.of_logs()


class LogAdapter(OwnLogs):
    """An adapter for logs with one record on each line. The class of its `fold` (reader) is imported when needed."""

    #: The class that reads a log, as "module:name" below this package.
    fold: ClassVar[str]

    @property
    def tree(self) -> Callable[..., Any]:
        """The class of the fold that reads a log."""
        module, _, name = self.fold.partition(":")
        return cast("Callable[..., Any]", getattr(import_module(f"smart_fork.agents.{module}"), name))

    def has_lost(self, location: str) -> bool:
        """Return True if the name of the file at `location` is that of a log's duplicate, as sync programs make them.

        Older versions of smart-fork indexed such files.
        """
        name = location.rpartition("/")[2].removesuffix(".zst").rpartition(".")[0]
        return not is_name(name) and any(location.startswith(f"{folder}/") for folder, _ in self.folders())

    def begun(self, path: Path) -> LineFold:
        """Return a new fold (reader) for the log at `path`, to which the caller feeds the lines."""
        fold: LineFold = self.tree(path, None, keep_raw=False)
        fold.recorder.names_code = current_bound.get() is None
        return fold

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        from smart_fork.agents import record_reader

        return record_reader.read(self.tree, path, checkpoint, keep_raw=keep_raw)

    def glance(self, path: Path) -> Session | None:
        from smart_fork.agents import record_reader

        return record_reader.glance(self.tree, path)

    def time_of(self, file: LogFile) -> str:
        return str(self.tree(file.path, None, keep_raw=False).note_end())


class TreeAdapter(LogAdapter):
    """An adapter for logs at ``<home>/projects/<slug>/…/<session-id>.jsonl``."""

    #: The depth of logs below ``projects``.
    depth: ClassVar[int]

    @property
    def tree(self) -> Callable[..., Any]:
        return partial(super().tree, twins=self.twins)

    def slug(self, directory: str) -> str:
        """Return the name of the project folder for a working directory; empty if the directory does not decide it."""
        return ""

    @abstractmethod
    def is_session(self, location: str, projects: str) -> bool:
        """Return True if the file at `location`, below `projects`, is a session, not a sub-agent's log."""

    @property
    def projects(self) -> Path:
        """The folder with the folders of all projects."""
        return self.home() / self.own.logs[0]

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return tuple((one / self.own.logs[0], self.depth) for one in self.homes())

    def discover(self) -> Iterator[LogFile]:
        return self._logs(self.endings[0])

    def log_at(self, location: str) -> LogFile | None:
        file = regular_file(location, self.name, self.folders(), suffix=self.endings[0])
        above = (str(folder) for folder, _ in self.folders() if location.startswith(f"{folder}/"))
        return file if file and any(self.is_session(location, one) for one in above) else None

    def locate(self, session_id: str) -> tuple[Path, ...]:
        return newest_first(file for file in self._logs(f"{session_id}.jsonl") if file.path.stem == session_id)

    def id_of(self, path: Path) -> str:
        return path.stem

    def is_copy(self, path: Path) -> bool:
        from smart_fork.agents import tree

        return tree.is_copy(self.tree, path)

    def twins(self, path: Path) -> tuple[Path, ...]:
        """Return other logs of the session at `path`: files of its name in other folders, except further hard links."""
        folders, own = [str(folder) for folder, _ in self.folders()], str(path)
        within = next((one for one in folders if own.startswith(f"{one}/")), "")
        project, _, rest = own.removeprefix(f"{within}/").partition("/")
        if not within or not rest:
            return ()
        there = (f"{one}/{name}/{rest}" for one in folders for name in self.projects_in(one, project))
        files = [file for one in there if one != own and os.path.exists(one) and (file := self.log_at(one))]  # noqa: PTH110 - as text
        own_file = self.log_at(own)
        known = {own_file.inode} if own_file else set[int]()  # its agent deletes logs at any moment
        return tuple(file.path for file in files if file.inode not in known and not known.add(file.inode))  # type: ignore[func-returns-value]

    def projects_in(self, folder: str, own: str) -> Iterable[str]:
        """Return the names of folders in `folder` that may have further logs of the sessions in the folder `own`."""
        return sorted(os.listdir(folder)) if os.path.isdir(folder) else ()  # noqa: PTH112, PTH208 - as text

    def logs_of(self, changed: str) -> Iterable[LogFile]:
        found = self.log_at(changed)
        twins = self.twins(found.path) if found else ()
        return filter(None, (found, *(self.log_at(str(path)) for path in twins)))

    def place_of(self, directory: str) -> str:
        return f"{self.projects}/{slug}" if (slug := self.slug(directory)) else ""

    def _logs(self, suffix: str) -> Iterator[LogFile]:
        for projects, depth in self.folders():
            for file in regular_files(projects, self.name, suffix, depth=depth):
                if self.is_session(file.location, str(projects)):
                    yield file


#: The limit of a file beside a log, in bytes.
_MAX_FILE_BYTES = 1 << 20


class ReadAdapter(TreeAdapter):
    """An adapter for logs at ``<home>/<logs>/…/<session-id>.jsonl`` of an agent that smart-fork only reads."""

    codec: ClassVar[ReadCodec]
    fold = "read_only_reader:ReadTree"

    @property
    def tree(self) -> Callable[..., Any]:
        return partial(super(TreeAdapter, self).tree, self)

    def is_session(self, location: str, projects: str) -> bool:
        return True

    def locate(self, session_id: str) -> tuple[Path, ...]:
        return newest_first(file for file in self.discover() if self.id_of(file.path) == session_id)

    def beside(self, path: Path) -> Header:
        """Return facts about the session in `path` that are in files beside the log, such as settings."""
        return Header()

    def stated(self, path: Path) -> Record:
        """Return the JSON object in the small file `path`; empty if there is none."""
        try:
            with open_regular(path) as file:
                return dict_in(json_in(file.read(_MAX_FILE_BYTES)))
        except OSError:
            return {}

    def guessed(self, path: Path) -> str:
        """Return the directory after which the folder of the log `path` is named; empty if not needed or not known."""
        return ""


class SessionStamp(NamedTuple):
    """A session in a database: its id, its estimated size, and its last change in nanoseconds."""

    key: str
    size: int
    mtime_ns: int


class DatabaseAdapter(OwnLogs):
    """An adapter for sessions in a SQLite database: ``<database>/<session-id>``. It writes nothing in or beside it."""

    #: Recent changes are in the second file.
    endings = (".db", ".db-wal")
    #: The ids of its sessions. An id is the last part of its log's place.
    keys: ClassVar[re.Pattern[str]]
    #: What a person can do if the database cannot be read.
    advice: ClassVar[str]

    #: The name of its database in a folder of its logs.
    database: ClassVar[str]

    def databases(self) -> Iterator[Path]:
        """Yield the path of the database in each home of the agent. The file need not exist."""
        return (folder / self.database for folder, _ in self.folders())

    @abstractmethod
    def opened(self, path: Path) -> AbstractContextManager[apsw.Connection]:
        """Return a context with a connection to the database at `path`.

        Raises:
            OSError: The database cannot be opened or read, or is not this agent's.
        """

    @abstractmethod
    def stamps(self, db: apsw.Connection, key: str) -> Iterator[SessionStamp]:
        """Yield the id, size and last change of each session; with a `key`, only of the session with this id."""

    @abstractmethod
    def has(self, db: apsw.Connection, key: str) -> bool:
        """Return True if the database has a session with this id."""

    @abstractmethod
    def exported(self, path: Path) -> bytes:
        """Return a session as the bytes of a file that `read` accepts.

        Raises:
            OSError: The session cannot be read, or does not exist.
        """

    def discover(self) -> Iterator[LogFile]:
        return iter(self._found(""))

    def log_at(self, location: str) -> LogFile | None:
        within, _, key = location.rpartition("/")
        return next(iter(self._found(key, within)), None) if key and within else None

    def logs_of(self, changed: str) -> Iterator[LogFile]:
        for path in map(str, self.databases()):
            if changed in {f"{path}{end}" for end in ("", "-wal", "-shm")}:
                return iter(self._found("", path))
        found = self.log_at(changed)
        return iter(() if found is None else (found,))

    def has_lost(self, location: str) -> bool:
        path = Path(location)
        if path.parent.suffix == ".db" and self.keys.fullmatch(path.name):
            with suppress(OSError), self.opened(path.parent) as db:
                return not self.has(db, path.name)
        return False

    def unread(self) -> str:
        if closed := super().unread():
            return closed
        try:
            for path in filter(Path.exists, self.databases()):
                with self.opened(path):
                    pass
        except OSError as error:
            return f"{error}; {self.advice}"
        return ""

    @contextmanager
    def as_file(self, path: Path) -> Iterator[Path]:
        if path.is_file():
            yield path
            return
        data = self.exported(path)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            copy.write_bytes(data)
            yield copy

    def locate(self, session_id: str) -> tuple[Path, ...]:
        return newest_first(self._found(session_id) if session_id else ())

    def is_copy(self, path: Path) -> bool:
        return path.is_file()

    def _found(self, key: str, within: str = "") -> list[LogFile]:
        """Return the sessions as logs: with a `key`, only those with this id; with `within`, only in this database."""
        found = list[LogFile]()
        for path in dict.fromkeys(self.databases()):
            with suppress(OSError):
                if within in ("", str(path)):
                    inode = path.stat().st_ino
                    with self.opened(path) as db:
                        found += [
                            LogFile(self.name, f"{path}/{one.key}", one.size, one.mtime_ns, inode, str(path))
                            for one in self.stamps(db, key)
                        ]
        return found
