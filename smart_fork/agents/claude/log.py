"""Claude Code: ``<home>/projects/<slug>/<session-id>.jsonl``, one record a line, linked by ``parentUuid``."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from indexer.transcripts.base import MOST_DAYS, Retention
from indexer.unchecked import dict_in
from smart_fork.agents.claude.home import HOME, claude_home
from smart_fork.agents.claude.slugs import slug
from smart_fork.agents.storage import Storage
from smart_fork.agents.tree_log import TreeAdapter

#: The setting that says after how many days it deletes a log at its next start; with 0 it keeps none.
_DAYS, _USUAL_DAYS = "cleanupPeriodDays", 30.0


class ClaudeAdapter(TreeAdapter):
    """Reads Claude Code's sessions; versions 1.0 to 2.1 seen."""

    name = "claude"
    variable = HOME.variable
    places: tuple[str, ...] = (".claude/projects",)
    depth = 1
    fold = "claude.fold:ClaudeTree"

    def home(self) -> Path:
        return claude_home()

    def retention(self) -> Retention:
        path = claude_home() / "settings.json"
        said: Any = None
        with suppress(OSError, ValueError, RecursionError):  # as JavaScript reads it: too large a number is infinite
            said = dict_in(json.loads(path.read_bytes())).get(_DAYS)
        is_number = isinstance(said, int | float) and not isinstance(said, bool) and said >= 0
        return Retention(float(min(said, MOST_DAYS)) if is_number else _USUAL_DAYS, f"{_DAYS} in {path}")

    def slug(self, directory: str) -> str:
        return slug(directory)

    def is_session(self, location: str, projects: str) -> bool:
        folder, _, name = location.rpartition("/")
        return not name.startswith("agent-") and folder != projects


class ClaudeStorage(Storage):
    """The files of Claude Code."""

    def folder(self, directory: Path) -> Path:
        """See `Storage.folder`."""
        return folder_of(directory)


def folder_of(directory: Path) -> Path:
    """The folder in which Claude Code, started in `directory`, looks for sessions."""
    return claude_home() / "projects" / slug(str(directory))
