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

    def restored(self, place: str) -> str:
        """Where below its own folder a log goes that lay at `place` there, so that it finds it again."""
        return place
