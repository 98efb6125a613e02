"""Where an agent files its sessions, and from which directories it finds them."""

from __future__ import annotations

from pathlib import Path


class Storage:
    """The files of an agent that finds its sessions from every directory; others say where they look."""

    def folder(self, directory: Path) -> Path | None:
        """The only folder in which it looks for sessions, started in `directory`; `None` where it looks everywhere."""
        del directory
        return None

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        """Whether it goes on, started in `directory`, with the session of this log, which worked in `cwd`."""
        del cwd
        return self.folder(directory) in (None, log.parent)

    def restored(self, place: str, session_id: str) -> str:
        """Where below its own folder a session's log goes that lay at `place` there, so that it finds it again."""
        del session_id
        return place

    def lasting(self, log: Path, session_id: str) -> Path | None:
        """Under which other name the log outlives that its agent goes on with it; `None` where it does as it is."""
        del log, session_id
        return None
