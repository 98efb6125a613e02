"""What every agent's adapter offers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from indexer.transcripts.model import Agent, BrokenLine, Session


class LogFile(NamedTuple):
    """A session file as one `stat` saw it. There are thousands, nearly all unchanged: nothing is made of them early."""

    agent: Agent
    location: str
    size: int
    mtime_ns: int
    inode: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time and inode: what tells a log that has not changed."""
        return self[2:]

    @property
    def path(self) -> Path:
        """The `location` as a path."""
        return Path(self.location)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where reading stopped: byte `offset`, lines read so far, a digest of the bytes around, the reader's `state`."""

    offset: int
    lines: int
    probe: str
    state: bytes


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What reading a log gave: the session, or `None` with the reason why it is not one; and where to go on next time.

    `resumed` says that only what was added since the checkpoint was read; `broken` and `bytes_read` speak of that.
    """

    session: Session | None
    skipped: str
    checkpoint: Checkpoint
    broken: tuple[BrokenLine, ...]
    bytes_read: int
    resumed: bool = False


class AgentAdapter(Protocol):
    """One agent: where its logs are and how they are read. Adapters never write."""

    name: Agent
    #: The environment variable that says where its folder is.
    variable: str

    def home(self) -> Path:
        """The agent's own folder; it need not exist."""
        ...

    def folders(self) -> tuple[tuple[Path, int], ...]:
        """The folders that its logs are in, each with how many levels below; they need not exist."""
        ...

    def discover(self) -> Iterator[LogFile]:
        """Every session log, by directory listing and `stat` alone. Sub-agents' own files are left out (F-149)."""
        ...

    def log_at(self, location: str) -> LogFile | None:
        """The session log at exactly this place, as `discover` would give it; `None` where it would not."""
        ...

    def locate(self, session_id: str) -> tuple[Path, ...]:
        """The files of this session id, newest first; empty where there is none (F-100)."""
        ...

    def id_of(self, path: Path) -> str:
        """The session id as the file's name says it."""
        ...

    def is_copy(self, path: Path) -> bool:
        """Whether a log lies elsewhere than where its session was begun, as far as its beginning tells.

        Raises:
            OSError: the file cannot be opened or is not a regular file.
        """
        ...

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        """The session in `path`; from `checkpoint` on where the file has only grown since.

        Raises:
            OSError: the file cannot be opened or is not a regular file.
        """
        ...

    def glance(self, path: Path) -> Session | None:
        """What the first records say of it, for a list: title, directory, who started it, the file's time (F-136).

        Raises:
            OSError: the file cannot be opened or is not a regular file.
        """
        ...

    def folder_of(self, directory: str) -> str:
        """How the folder of a log is named that was begun in `directory`; empty where a log's place does not tell."""
        ...

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        """What a person types to go on in that session."""
        ...


class UnknownAgentError(ValueError):
    """Nothing of ours knows an agent of this name."""


class Agents:
    """The agents whose logs are read, in their order, each by its name. Whoever calls hands them in."""

    def __init__(self, *agents: AgentAdapter) -> None:
        self._by_name = {agent.name: agent for agent in agents}

    def __iter__(self) -> Iterator[AgentAdapter]:
        return iter(self._by_name.values())

    def __getitem__(self, name: str) -> AgentAdapter:
        """The agent of that name.

        Raises:
            UnknownAgentError: there is none.
        """
        if agent := self._by_name.get(name):
            return agent
        raise UnknownAgentError(f"unknown agent {name!r}; known are {', '.join(self.names)}")

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._by_name)
