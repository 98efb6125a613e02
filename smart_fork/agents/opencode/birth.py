"""How a session of OpenCode began, as its row says it."""

from __future__ import annotations

from pathlib import Path

from smart_fork.agents.births import Birth, Births
from smart_fork.agents.opencode.codec import text_of
from smart_fork.agents.opencode.fold import conversation, written


class OpenCodeBirths(Births):
    """How new sessions of OpenCode began; the ids of forks are chosen."""

    def birth(self, log: Path) -> Birth | None:
        """See `Births.birth`."""
        try:
            info = written(log, 1)["info"]
        except OSError:
            return None
        created, cwd = info["time"]["created"], info.get("directory")
        if info.get("parentID") or not created or not isinstance(cwd, str):
            return None
        return Birth(log.name, None, cwd, created / 1000)

    def was_asked(self, log: Path, prompt: str) -> bool:
        """See `Births.was_asked`."""
        found = written(log)
        said = conversation(found["messages"], found["info"].get("revert"))
        return any(info.get("role") == "user" and text_of(parts) == prompt.strip() for info, parts in said)
