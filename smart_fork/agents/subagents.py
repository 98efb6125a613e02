"""The conversations of a session's sub-agents, if their logs exist."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from indexer.transcripts.base import regular_files
from indexer.transcripts.model import AgentName, Session
from smart_fork.agents.fold import read
from smart_fork.agents.tree import Tree

#: The prefix of sub-agents' files.
_PREFIX = "agent-"


class SubAgents(ABC):
    """Finds and reads the sub-agents of one agent.

    A sub-agent's name comes from a log. It is looked up among existing files, and never becomes a path.
    """

    @abstractmethod
    def begun(self, session: Session) -> Mapping[str, str]:
        """Return the names of readable sub-agents, by the ids of the calls that started them.

        The turns of `session` have their records.
        """

    @abstractmethod
    def read(self, session: Session, name: str) -> Session | None:
        """Return a sub-agent's conversation, whose turns have their records; `None` if there is none.

        Raises:
            OSError: The log cannot be read.
        """


class LoggedSubAgents(SubAgents):
    """Sub-agents with log files of their own."""

    agent: AgentName
    #: The class that reads such a log.
    tree: ClassVar[type[Tree]]

    @abstractmethod
    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        """Return the folders that may have logs of a session's sub-agents, at any level, with their depth."""

    def logs(self, session: Session) -> Mapping[str, Path]:
        """Return the existing logs by sub-agent name."""
        files = (file for folder, depth in self.folders(session) for file in self._files(folder, depth))
        return {file.stem.removeprefix(_PREFIX): file for file in files}

    def read(self, session: Session, name: str) -> Session | None:
        log = self.logs(session).get(name)
        return None if log is None else read(partial(self.tree, of_subagent=True), log, None, keep_raw=True).session

    def _files(self, folder: Path, depth: int) -> Iterable[Path]:
        if folder.is_symlink():
            return ()
        return (file.path for file in regular_files(folder, self.agent, depth=depth, prefix=_PREFIX))
