"""Qwen Code: ``<home>/projects/<slug>/chats/<session-id>.jsonl``, one record a line, linked by ``parentUuid``.

Its sub-agents' own files lie elsewhere. Sessions that were put away are one folder deeper: they are found and forked.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from smart_fork.agents.agent import Storage
from smart_fork.agents.log_adapters import TreeAdapter
from smart_fork.agents.qwen import HOME

#: The folder of a project's sessions, and in that the folder of those that were put away.
CHATS, ARCHIVE = "chats", "archive"


def project_of(log: Path) -> Path:
    """The folder of the project of a session's log, which may have been put away."""
    chats = log.parent.parent if log.parent.name == ARCHIVE else log.parent
    return chats.parent


def agents_of(log: Path) -> Path:
    """The folder of the logs of a session's sub-agents."""
    return project_of(log) / "subagents" / log.stem


class QwenAdapter(TreeAdapter):
    """Reads Qwen Code's sessions; version 0.24.4 seen."""

    name = "qwen"
    depth = 3
    fold = "qwen.fold:QwenTree"

    def slug(self, directory: str) -> str:
        return slug(directory)

    def is_session(self, location: str, projects: str) -> bool:
        parts = location.removeprefix(f"{projects}/").split("/")
        return parts[1:-1] in ([CHATS], [CHATS, ARCHIVE])


class QwenStorage(Storage):
    """The files of Qwen Code."""

    def folder(self, directory: Path) -> Path:
        return folder_of(directory)

    def restored(self, place: str, session_id: str) -> str:
        """See `Storage.restored`. Those that were put away are not where it looks."""
        return place.replace(f"/{CHATS}/{ARCHIVE}/", f"/{CHATS}/")


def folder_of(directory: Path) -> Path:
    """The folder in which Qwen Code, started in `directory`, looks for sessions."""
    return HOME.of_logs()[0] / "projects" / slug(str(directory)) / CHATS


_OTHER = re.compile(r"[^a-zA-Z0-9]")


def slug(path: str) -> str:
    """The folder name that Qwen Code gives a working directory. Lossy: never decode it.

    It counts UTF-16 units, so a character beyond the first plane is two of them.
    """
    resolved = os.path.realpath(path) if Path(path).is_absolute() else path
    return _OTHER.sub(lambda found: "-" * (1 + (found[0] > "\uffff")), resolved)
