"""Copilot CLI: ``<home>/session-state/<session-id>/events.jsonl``, one event a line, linked by ``parentId``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from indexer.transcripts.base import AgentAdapter, Checkpoint, LogFile, ReadResult
from indexer.transcripts.files import regular_file, regular_files
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.copilot.home import EVENTS, HOME, copilot_home, sessions

#: A session's log is in a folder of its own.
_DEPTH = 1


class CopilotAdapter(AgentAdapter):
    """Reads Copilot CLI's sessions; version 1.0.102 seen."""

    name: AgentName = "copilot"
    variable = HOME.variable
    places: tuple[str, ...] = (".copilot/session-state",)

    def home(self) -> Path:
        return copilot_home()

    def folders(self) -> tuple[tuple[Path, int], ...]:
        return ((sessions(), _DEPTH),)

    def discover(self) -> Iterator[LogFile]:
        for file in regular_files(sessions(), self.name, EVENTS, depth=_DEPTH):
            if _is_session(file.path):
                yield file

    def log_at(self, location: str) -> LogFile | None:
        file = regular_file(location, self.name, self.folders(), "", EVENTS)
        return file if file and _is_session(file.path) else None

    def locate(self, session_id: str) -> tuple[Path, ...]:
        if not session_id or "/" in session_id or "\0" in session_id:
            return ()
        file = self.log_at(str(sessions() / session_id / EVENTS))
        return (file.path,) if file else ()

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        from indexer.transcripts import tree
        from smart_fork.agents.copilot.fold import CopilotTree

        return tree.read(CopilotTree, path, checkpoint, keep_raw=keep_raw)

    def id_of(self, path: Path) -> str:
        return path.parent.name if path.name == EVENTS else path.stem

    def is_copy(self, path: Path) -> bool:
        from indexer.transcripts import tree
        from smart_fork.agents.copilot.fold import CopilotTree

        return tree.is_copy(CopilotTree, path)

    def glance(self, path: Path) -> Session | None:
        from indexer.transcripts import tree
        from smart_fork.agents.copilot.fold import CopilotTree

        return tree.glance(CopilotTree, path)

    def place_of(self, directory: str) -> str:
        del directory
        return ""

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        return ("copilot", f"--resume={session_id}")


def _is_session(path: Path) -> bool:
    """Whether a file is the log of the session that its folder is named after."""
    return path.name == EVENTS and path.parent.parent == sessions()
