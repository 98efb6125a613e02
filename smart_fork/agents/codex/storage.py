"""Where Codex looks for sessions: by day, and not in its archive."""

from __future__ import annotations

from pathlib import PurePosixPath

from smart_fork.agents.codex.log import day_of
from smart_fork.agents.storage import Storage


class CodexStorage(Storage):
    """The files of Codex."""

    def restored(self, place: str, session_id: str) -> str:
        """See `Storage.restored`. Its archive is not where it looks for sessions to fork."""
        name = PurePosixPath(place).name
        day = day_of(name)
        return f"sessions/{'/'.join(day)}/{name}" if day else place
