"""OpenCode: all sessions in one SQLite database, each a log within that file: ``…/opencode.db/ses_…``.

Where its sessions are is told here; what is needed to read one is imported where one is read.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile, ReadResult
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.opencode.home import HOME, PLACE, database

if TYPE_CHECKING:
    from smart_fork.agents.opencode.database import DatabaseStamp

#: A session is about so many bytes for each of its messages.
MESSAGE_BYTES = 4096
_BESIDE = ("-wal", "-shm")


class OpenCodeAdapter(AgentAdapter):
    """Reads OpenCode's sessions; version 1.18 seen."""

    name: AgentName = "opencode"
    variable = HOME.variable
    places = (PLACE,)
    #: What is new stands beside the database for a while.
    endings = (".db", ".db-wal")

    def home(self) -> Path:
        return HOME.folder()

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return ((database().parent, 0),)

    def discover(self) -> Iterator[LogFile]:
        return iter(self._logs(""))

    def log_at(self, location: str) -> LogFile | None:
        within, _, key = location.rpartition("/")
        return next(iter(self._logs(key)), None) if key and within == str(database()) else None

    def logs_of(self, changed: str) -> Iterator[LogFile]:
        names = {f"{database()}{end}" for end in ("", *_BESIDE)}
        if changed in names:
            return self.discover()
        found = self.log_at(changed)
        return iter(() if found is None else (found,))

    def has_lost(self, location: str) -> bool:
        path = Path(location)
        if path.parent.suffix != ".db" or not path.name.startswith("ses_"):
            return False
        from smart_fork.agents.opencode.database import has, opened

        with suppress(OSError), opened(path.parent) as db:
            return not has(db, path.name)
        return False

    def unread(self) -> str:
        if closed := super().unread():
            return closed
        path = database()
        if not path.exists():
            return ""
        from smart_fork.agents.opencode.database import opened

        try:
            with opened(path):
                return ""
        except OSError as error:
            return f"{error}; try again when no OpenCode is busy, `opencode db path` names it, or update smart-fork"

    @contextmanager
    def as_file(self, path: Path) -> Iterator[Path]:
        if path.is_file():
            yield path
            return
        from smart_fork.agents.opencode import fold

        data = fold.exported(path)
        with tempfile.TemporaryDirectory() as folder:
            copy = Path(folder) / path.name
            copy.write_bytes(data)
            yield copy

    def locate(self, session_id: str) -> tuple[Path, ...]:
        return tuple(file.path for file in self._logs(session_id)) if session_id else ()

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        del checkpoint
        from smart_fork.agents.opencode import fold

        return fold.read(path, keep_raw=keep_raw)

    def id_of(self, path: Path) -> str:
        return path.name.removesuffix(".json")

    def is_copy(self, path: Path) -> bool:
        return path.is_file()

    def glance(self, path: Path) -> Session | None:
        from smart_fork.agents.opencode import fold

        return fold.glance(path)

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        return ("opencode", "-s", session_id)

    def _logs(self, key: str) -> list[LogFile]:
        """All sessions, or the one of this id; none where the database cannot be read."""
        path = database()
        try:
            inode = path.stat().st_ino
        except OSError:
            return []
        from smart_fork.agents.opencode.database import opened, stamps

        try:
            with opened(path) as db:
                return [self._log(str(path), inode, one) for one in stamps(db, key)]
        except OSError:
            return []

    def _log(self, where: str, inode: int, one: DatabaseStamp) -> LogFile:
        size, mtime_ns = one.messages * MESSAGE_BYTES, one.changed * 1_000_000
        return LogFile(self.name, f"{where}/{one.key}", size, mtime_ns, inode, where)
