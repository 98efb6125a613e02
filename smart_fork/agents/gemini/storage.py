"""Where Gemini CLI looks for sessions: only in the folder of the directory that it is started in."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from smart_fork.agents.gemini.home import CHATS, project_for
from smart_fork.agents.gemini.log import is_named_whole, whole_name
from smart_fork.agents.storage import Storage


class GeminiStorage(Storage):
    """The files of Gemini CLI."""

    def folder(self, directory: Path) -> Path:
        """See `Storage.folder`."""
        return project_for(directory) / CHATS

    def restored(self, place: str, session_id: str) -> str:
        """See `Storage.restored`. Under any other name it would be lost again."""
        log = PurePosixPath(place)
        return str(log.with_name(whole_name(Path(log.name), session_id)))

    def lasting(self, log: Path, session_id: str) -> Path | None:
        """See `Storage.lasting`."""
        return None if is_named_whole(log) else log.with_name(whole_name(log, session_id))
