"""Where OpenCode finds its sessions: everywhere, but it goes on with one only in the directory that it belongs to."""

from __future__ import annotations

from pathlib import Path

from smart_fork.agents.storage import Storage


class OpenCodeStorage(Storage):
    """The sessions of OpenCode.

    Seen with 1.18: from another directory ``opencode run -s`` works in the session's own, prints nothing, never ends.
    """

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        """See `Storage.finds`."""
        return cwd == str(directory)
