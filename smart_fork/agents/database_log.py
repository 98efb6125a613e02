"""Finds sessions of agents that keep all of them in one SQLite database: each is a log within that file.

Modules that only reading needs are imported there.
"""

from __future__ import annotations

import re
import tempfile
from abc import abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from indexer.transcripts.base import LogFile
from smart_fork.agents.own_logs import OwnLogs, newest_first

if TYPE_CHECKING:
    import apsw


class Stamp(NamedTuple):
    """A session's id, its estimated size, and its last change in nanoseconds."""

    key: str
    size: int
    mtime_ns: int


class DatabaseAdapter(OwnLogs):
    """Reads ``<database>/<session-id>``. Nothing is written in or beside the database."""

    #: Recent changes are in the second file.
    endings = (".db", ".db-wal")
    #: The ids of its sessions. An id is the last part of its log's place.
    keys: ClassVar[re.Pattern[str]]
    #: What a person can do if the database cannot be read.
    advice: ClassVar[str]

    #: The name of its database in a folder of its logs.
    database: ClassVar[str]

    def databases(self) -> Iterator[Path]:
        """Yield the database of each home. It need not exist."""
        return (folder / self.database for folder, _ in self.folders())

    @abstractmethod
    def opened(self, path: Path) -> AbstractContextManager[apsw.Connection]:
        """Open a database.

        Raises:
            OSError: It cannot be opened or read, or is not this agent's.
        """

    @abstractmethod
    def stamps(self, db: apsw.Connection, key: str) -> Iterator[Stamp]:
        """Yield the stamps of all sessions, or of the one with this id."""

    @abstractmethod
    def has(self, db: apsw.Connection, key: str) -> bool:
        """Tell if the database has a session with this id."""

    @abstractmethod
    def exported(self, path: Path) -> bytes:
        """Return a session as `read` takes it from a file.

        Raises:
            OSError: It cannot be read, or does not exist.
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
        """Return all sessions, or those with this id, in all databases or in that one. One that cannot be read has
        none.
        """
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
