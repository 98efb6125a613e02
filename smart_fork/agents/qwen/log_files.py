"""Qwen Code's logs: ``<home>/projects/<slug>/chats/<session-id>.jsonl``, with one record on each line.

Each record names its parent in ``parentUuid``. Sub-agents' logs are in another folder. Archived sessions are one folder
deeper, and can be found and forked.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from smart_fork.agents.log_adapters import TreeAdapter
from smart_fork.agents.qwen import HOME
from smart_fork.agents.storage import Storage

#: The folder of a project's sessions, and the folder for archived sessions in it.
CHATS, ARCHIVE = "chats", "archive"


def project_of(log: Path) -> Path:
    """Return the folder of the project that a session's log belongs to. The log may be in its archive."""
    chats = log.parent.parent if log.parent.name == ARCHIVE else log.parent
    return chats.parent


def agents_of(log: Path) -> Path:
    """Return the folder with the logs of the sub-agents that the session of `log` began."""
    return project_of(log) / "subagents" / log.stem


class QwenAdapter(TreeAdapter):
    """The adapter that finds and reads Qwen Code's sessions; version 0.24.4 seen."""

    name = "qwen"
    depth = 3
    fold = "qwen.session_reader:QwenTree"

    def slug(self, directory: str) -> str:
        return slug(directory)

    def is_session(self, location: str, projects: str) -> bool:
        parts = location.removeprefix(f"{projects}/").split("/")
        return parts[1:-1] in ([CHATS], [CHATS, ARCHIVE])


class QwenStorage(Storage):
    """The rules for where Qwen Code stores sessions, and in which directories it can resume them."""

    def folder(self, directory: Path) -> Path:
        return folder_of(directory)

    def restored(self, place: str, session_id: str) -> str:
        """Return the path for a restored log, outside the archive: Qwen Code resumes no archived session."""
        return place.replace(f"/{CHATS}/{ARCHIVE}/", f"/{CHATS}/")


def folder_of(directory: Path) -> Path:
    """Return the folder in which Qwen Code, started in `directory`, looks for sessions."""
    return HOME.of_logs()[0] / "projects" / slug(str(directory)) / CHATS


_OTHER = re.compile(r"[^a-zA-Z0-9]")


def slug(path: str) -> str:
    """Return the folder name (slug) that Qwen Code makes from a directory. Several directories can have the same name.

    A character outside Unicode's Basic Multilingual Plane becomes two hyphens, because Qwen Code counts UTF-16 units.
    """
    resolved = os.path.realpath(path) if Path(path).is_absolute() else path
    return _OTHER.sub(lambda found: "-" * (1 + (found[0] > "\uffff")), resolved)
