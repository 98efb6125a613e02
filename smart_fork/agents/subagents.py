"""Conversations of sub-agents, which an agent starts by a tool call."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import ClassVar

from indexer.transcripts.base import regular_files
from indexer.transcripts.model import Session
from smart_fork.agents.record_reader import read
from smart_fork.agents.tree import Tree

#: The prefix of sub-agents' files.
_PREFIX = "agent-"


class SubAgents(ABC):
    """Finds and reads the conversations of sub-agents.

    A sub-agent's name comes from a log. It is looked up among existing files, and never becomes a path.
    """

    @abstractmethod
    def begun(self, session: Session) -> Mapping[str, str]:
        """Return the names of a session's readable sub-agents, by the id of the tool call that started each.

        The turns of `session` must have been read with their raw records.
        """

    @abstractmethod
    def read(self, session: Session, name: str) -> Session | None:
        """Return the conversation of the sub-agent called `name`, with raw records; `None` if there is none."""


class LoggedSubAgents(SubAgents):
    """The sub-agents of agents that write a log file for each sub-agent."""

    #: The class that reads such a log.
    tree: ClassVar[type[Tree]]

    @abstractmethod
    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        """Return folders that may have a session's sub-agent logs, each with the number of levels to search."""

    def logs(self, session: Session) -> Mapping[str, Path]:
        """Return the existing logs of a session's sub-agents, by sub-agent name."""
        files = (file for folder, depth in self.folders(session) for file in self._files(folder, depth))
        return {file.stem.removeprefix(_PREFIX): file for file in files}

    def read(self, session: Session, name: str) -> Session | None:
        log = self.logs(session).get(name)
        return None if log is None else read(partial(self.tree, of_subagent=True), log, None, keep_raw=True).session

    def _files(self, folder: Path, depth: int) -> Iterable[Path]:
        if folder.is_symlink():
            return ()
        return (file.path for file in regular_files(folder, self.tree.agent, depth=depth, prefix=_PREFIX))
