"""Where Qwen Code looks for sessions: only in the folder of the directory that it is started in."""

from __future__ import annotations

from pathlib import Path

from smart_fork.agents.qwen.home import ARCHIVE, CHATS, runtime_home
from smart_fork.agents.qwen.slugs import slug
from smart_fork.agents.storage import Storage


class QwenStorage(Storage):
    """The files of Qwen Code."""

    def folder(self, directory: Path) -> Path:
        """See `Storage.folder`."""
        return folder_of(directory)

    def restored(self, place: str, session_id: str) -> str:
        """See `Storage.restored`. Those that were put away are not where it looks."""
        return place.replace(f"/{CHATS}/{ARCHIVE}/", f"/{CHATS}/")


def folder_of(directory: Path) -> Path:
    """The folder in which Qwen Code, started in `directory`, looks for sessions."""
    return runtime_home() / "projects" / slug(str(directory)) / CHATS
