"""The readers of all agents' logs: a line each."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from indexer.transcripts.base import AgentAdapter, Agents
from smart_fork.agents import checkpoints
from smart_fork.agents.amp import AmpAdapter
from smart_fork.agents.claude.log import ClaudeAdapter
from smart_fork.agents.codex.log import CodexAdapter
from smart_fork.agents.copilot.log import CopilotAdapter
from smart_fork.agents.cursor.log import CursorAdapter
from smart_fork.agents.droid import DroidAdapter
from smart_fork.agents.gemini.log import GeminiAdapter
from smart_fork.agents.goose import GooseAdapter
from smart_fork.agents.kimi import KimiAdapter
from smart_fork.agents.opencode.log import OpenCodeAdapter
from smart_fork.agents.pi import PiAdapter
from smart_fork.agents.qwen.log import QwenAdapter

#: For the agents' own logs alone.
OWN = Agents(
    ClaudeAdapter(),
    CodexAdapter(),
    CursorAdapter(),
    QwenAdapter(),
    OpenCodeAdapter(),
    GeminiAdapter(),
    CopilotAdapter(),
    DroidAdapter(),
    GooseAdapter(),
    KimiAdapter(),
    PiAdapter(),
    AmpAdapter(),
)


class Readers(Agents):
    """Readers that also read the sessions that repositories keep, on a machine that lists some."""

    def __init__(self, *own: AgentAdapter) -> None:
        super().__init__(*own)
        self._own = own
        self._have_checkpoints = False
        self._look()

    def __iter__(self) -> Iterator[AgentAdapter]:
        self._look()
        return super().__iter__()

    def note(self, directory: Path) -> bool:
        """List the sessions that the repository of a directory keeps; return whether that was not done before."""
        is_new = checkpoints.note(directory)
        self._look()
        return is_new

    def _look(self) -> None:
        """Look whether any are listed: another process may do that."""
        if checkpoints.are_listed() != self._have_checkpoints:
            from smart_fork.agents.checkpoint_log import with_checkpoints

            self._have_checkpoints = not self._have_checkpoints
            own = map(with_checkpoints, self._own) if self._have_checkpoints else self._own
            self._by_name = {reader.name: reader for reader in own}


READERS = Readers(*OWN)
