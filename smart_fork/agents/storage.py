"""Where an agent stores sessions, and from which directories it finds them."""

from __future__ import annotations

from pathlib import Path


class Storage:
    """The storage of an agent that finds its sessions from every directory. Others override it."""

    def folder(self, directory: Path) -> Path | None:
        """Return the only folder in which it looks for sessions from `directory`; `None` if it looks everywhere."""
        return None

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        """Return whether it can resume, from `directory`, the session of this log, which worked in `cwd`."""
        return self.folder(directory) in (None, log.parent)

    def restored(self, place: str, session_id: str) -> str:
        """Return where a restored log belongs below its own folder. `place` is where it was."""
        return place

    def lasting(self, log: Path, session_id: str) -> Path | None:
        """Return a second name under which the log remains when its agent resumes it; `None` if it remains anyway."""
        return None
