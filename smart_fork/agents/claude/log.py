"""Claude Code: ``<home>/projects/<slug>/<session-id>.jsonl``, one record a line, linked by ``parentUuid``.

Where its sessions are is told here; what is needed to read one is imported where one is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from indexer.paths import claude_home
from indexer.transcripts.base import Checkpoint, LogFile, ReadResult
from indexer.transcripts.files import regular_file, regular_files
from indexer.transcripts.model import Agent, Session
from smart_fork.agents.claude.slugs import slug


class ClaudeAdapter:
    """Reads Claude Code's sessions; versions 1.0 to 2.1 seen."""

    name: Agent = "claude"
    variable = "CLAUDE_CONFIG_DIR"

    def home(self) -> Path:
        return claude_home()

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return ((self.home() / "projects", 1),)

    def discover(self) -> Iterator[LogFile]:
        return self._logs(".jsonl")

    def log_at(self, location: str) -> LogFile | None:
        file = regular_file(location, self.name, self.folders())
        return file if file and _is_session(location, str(self.home() / "projects")) else None

    def locate(self, session_id: str) -> tuple[Path, ...]:
        found = [file for file in self._logs(f"{session_id}.jsonl") if file.path.stem == session_id]
        return tuple(file.path for file in sorted(found, key=lambda file: file.mtime_ns, reverse=True))

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        from smart_fork.agents.claude import fold

        return fold.read(path, checkpoint, keep_raw=keep_raw)

    def id_of(self, path: Path) -> str:
        return path.stem

    def is_copy(self, path: Path) -> bool:
        from smart_fork.agents.claude import fold

        return fold.is_copy(path)

    def glance(self, path: Path) -> Session | None:
        from smart_fork.agents.claude import fold

        return fold.glance(path)

    def folder_of(self, directory: str) -> str:
        return slug(directory)

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        return ("claude", "--resume", session_id)

    def _logs(self, suffix: str) -> Iterator[LogFile]:
        projects = str(self.home() / "projects")
        for file in regular_files(projects, self.name, suffix, depth=1):
            if _is_session(file.location, projects):
                yield file


def _is_session(location: str, projects: str) -> bool:
    """Whether a file is in a folder of its own project, and no sub-agent's."""
    folder, _, name = location.rpartition("/")
    return not name.startswith("agent-") and folder != projects
