"""Readers of logs in an agent's own folder."""

from __future__ import annotations

from pathlib import Path

from indexer.transcripts.base import AgentAdapter
from smart_fork.agents import AGENTS


class OwnLogs(AgentAdapter):
    """Reads logs in the folder that its agent's description names."""

    def __init__(self) -> None:
        self.own = AGENTS[self.name].home
        self.variable, self.places = self.own.variable, self.own.places

    def home(self) -> Path:
        return self.own.folder()
