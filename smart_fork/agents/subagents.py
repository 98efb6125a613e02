"""The conversations of the sub-agents that a session has set to work, as far as their logs are there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from pathlib import Path

from indexer.transcripts import tree
from indexer.transcripts.files import regular_files
from indexer.transcripts.model import AgentName, Session

#: What the files of sub-agents are called.
_PREFIX = "agent-"


class SubAgents(ABC):
    """How one agent files what its sub-agents have said and done.

    What names one comes from a log: it is looked up among the files that are there, and never becomes a path.
    """

    @abstractmethod
    def begun(self, session: Session) -> Mapping[str, str]:
        """What those are called that can be read, by the ids of the calls that have begun them.

        The turns of `session` have their records.
        """

    @abstractmethod
    def read(self, session: Session, name: str) -> Session | None:
        """The conversation of one of them, whose turns have their records; `None` where there is none.

        Raises:
            OSError: it cannot be read.
        """


class LoggedSubAgents(SubAgents):
    """Sub-agents that have a log of their own, a file each."""

    agent: AgentName

    @abstractmethod
    def tree(self) -> type[tree.Tree]:
        """What the records of such a log add up to."""

    @abstractmethod
    def folders(self, session: Session) -> Iterable[tuple[Path, int]]:
        """Where the logs of a session's sub-agents may be, also of a sub-agent's own, with how many folders below."""

    def logs(self, session: Session) -> Mapping[str, Path]:
        """The logs that are there, by what the sub-agents are called."""
        files = (file for folder, depth in self.folders(session) for file in self._files(folder, depth))
        return {file.stem.removeprefix(_PREFIX): file for file in files}

    def read(self, session: Session, name: str) -> Session | None:
        log = self.logs(session).get(name)
        return None if log is None else tree.read(self.tree(), log, None, keep_raw=True).session

    def _files(self, folder: Path, depth: int) -> Iterable[Path]:
        if folder.is_symlink():
            return ()
        return (file.path for file in regular_files(folder, self.agent, depth=depth, prefix=_PREFIX))


class SubAgentRecords:
    """What holds for all records of a sub-agent's log: each says that it is no part of the session's conversation."""

    def is_aside(self, record: tree.Record) -> bool:
        """None is, in a conversation of its own."""
        del record
        return False
