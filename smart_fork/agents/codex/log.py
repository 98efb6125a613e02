"""Codex: ``<home>/sessions/YYYY/MM/DD/rollout-<local time>-<id>.jsonl``, one envelope a line (old: bare items).

Where its sessions are is told here; what is needed to read one is imported where one is read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile, ReadResult
from indexer.transcripts.files import regular_file, regular_files
from indexer.transcripts.model import Session
from smart_fork.agents.agent import Storage
from smart_fork.agents.codex.home import codex_home

_ID = re.compile(r"([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$")
_DAY = re.compile(r"rollout-(\d{4})-(\d\d)-(\d\d)T")


def is_id(session_id: str) -> bool:
    """Whether a rollout may be named after it."""
    return _ID.fullmatch(session_id) is not None


def id_in(path: Path) -> str:
    """The id of the session that the file is named after; empty where it is not."""
    named = _ID.search(path.stem)
    return named[1] if named else ""


def day_of(name: str) -> tuple[str, ...]:
    """Year, month and day that the name of a rollout says; nothing where it is none's."""
    day = _DAY.match(name)
    return day.groups() if day else ()


def is_moved(path: Path) -> bool:
    """Codex files each session under the day that its name says; what it archives it moves."""
    day = day_of(path.name)
    return bool(day) and path.parent.parts[-3:] != day


class CodexAdapter(AgentAdapter):
    """Reads Codex's rollouts; no-envelope files of 2025 to 0.169 seen."""

    name = "codex"
    resumes = ("codex", "resume")
    variable = "CODEX_HOME"
    places: tuple[str, ...] = (".codex/sessions", ".codex/archived_sessions")

    def home(self) -> Path:
        return codex_home()

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return tuple((self.home() / name, 3) for name in ("sessions", "archived_sessions"))

    def discover(self) -> Iterator[LogFile]:
        return self._logs(".jsonl")

    def log_at(self, location: str) -> LogFile | None:
        return regular_file(location, self.name, self.folders(), prefix="rollout-")

    def locate(self, session_id: str) -> tuple[Path, ...]:
        if not is_id(session_id):
            return ()
        found = sorted(self._logs(f"-{session_id}.jsonl"), key=lambda file: file.mtime_ns, reverse=True)
        return tuple(file.path for file in found)

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        from smart_fork.agents.codex import fold

        return fold.read(path, checkpoint, self.locate, keep_raw=keep_raw)

    def is_copy(self, path: Path) -> bool:
        return is_moved(path)

    def id_of(self, path: Path) -> str:
        return id_in(path) or path.stem

    def glance(self, path: Path) -> Session | None:
        from smart_fork.agents.codex import fold

        return fold.glance(path, self.locate)

    def place_of(self, directory: str) -> str:
        return ""

    def _logs(self, suffix: str) -> Iterator[LogFile]:
        for folder, depth in self.folders():
            yield from regular_files(folder, self.name, suffix, depth, prefix="rollout-")


class CodexStorage(Storage):
    """The files of Codex."""

    def restored(self, place: str, session_id: str) -> str:
        """See `Storage.restored`. Its archive is not where it looks for sessions to fork."""
        name = PurePosixPath(place).name
        day = day_of(name)
        return f"sessions/{'/'.join(day)}/{name}" if day else place
