"""The adapter that finds OpenCode's sessions: a session's path is the database's and its id, ``…/opencode.db/ses_…``.

Modules that only reading needs are imported inside methods.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING

from indexer.transcripts.base import Checkpoint, ReadResult
from indexer.transcripts.model import Session
from smart_fork.agents.log_adapters import DatabaseAdapter, SessionStamp
from smart_fork.agents.opencode import HOME
from smart_fork.agents.storage import Storage

if TYPE_CHECKING:
    import apsw


def database(home: Path | None = None) -> Path:
    """Return the path of OpenCode's database, which need not exist, or of the file that ``OPENCODE_DB`` names."""
    return (home or HOME.folder()) / (os.environ.get("OPENCODE_DB") or "opencode.db")


class OpenCodeAdapter(DatabaseAdapter):
    """The adapter that finds and reads OpenCode's sessions; version 1.18 seen."""

    name = "opencode"
    resumes = ("opencode", "-s")
    keys = re.compile(r"ses_[A-Za-z0-9_-]{1,124}")
    advice = "try again when no OpenCode is busy, `opencode db path` names it, or update smart-fork"

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return tuple((one, 0) for one in dict.fromkeys(file.parent for file in self.databases()))

    def databases(self) -> Iterator[Path]:
        return map(database, self.homes())

    def opened(self, path: Path) -> AbstractContextManager[apsw.Connection]:
        from smart_fork.agents.opencode.database import opened

        return opened(path)

    def stamps(self, db: apsw.Connection, key: str) -> Iterator[SessionStamp]:
        from smart_fork.agents.opencode.database import stamps

        return stamps(db, key)

    def has(self, db: apsw.Connection, key: str) -> bool:
        from smart_fork.agents.opencode.database import has

        return has(db, key)

    def exported(self, path: Path) -> bytes:
        from smart_fork.agents.opencode import session_reader

        return session_reader.exported(path)

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        from smart_fork.agents.opencode import session_reader

        return session_reader.read(path, keep_raw=keep_raw)

    def id_of(self, path: Path) -> str:
        return path.name.removesuffix(".json")

    def glance(self, path: Path) -> Session | None:
        from smart_fork.agents.opencode import session_reader

        return session_reader.glance(path)


class OpenCodeStorage(Storage):
    """The rule for where OpenCode can resume a session: only in the session's own directory.

    Seen with 1.18: elsewhere, ``opencode run -s`` works in the session's directory, prints nothing and never ends.
    """

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        return cwd == str(directory)
