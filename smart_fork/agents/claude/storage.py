"""Where Claude Code looks for sessions: only in the folder of the directory that it is started in."""

from __future__ import annotations

from pathlib import Path

from smart_fork.agents.claude.home import claude_home
from smart_fork.agents.claude.slugs import slug
from smart_fork.agents.storage import Storage


class ClaudeStorage(Storage):
    """The files of Claude Code."""

    def folder(self, directory: Path) -> Path:
        """See `Storage.folder`."""
        return folder_of(directory)


def folder_of(directory: Path) -> Path:
    """The folder in which Claude Code, started in `directory`, looks for sessions."""
    return claude_home() / "projects" / slug(str(directory))
