"""What every agent's adapter offers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol

from indexer.errors import IndexerError
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, BrokenLine, Session
from indexer.transcripts.ours import naming_sessions


class LogFile(NamedTuple):
    """A session's log as one `stat` saw it. There are thousands, nearly all unchanged: nothing is made of them early.

    Mostly that is a file. One of many in a file, `within`, is named as if that file were a folder: `location` is
    ``<within>/<key>``, where no file can be. `size` and `mtime_ns` are then what that file says of this one session, so
    that the others are not read again with it; `size` is about how large it is.
    """

    agent: AgentName
    location: str
    size: int
    mtime_ns: int
    inode: int
    within: str = ""

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Size, time and inode: what tells a log that has not changed."""
        return self[2:5]

    @property
    def path(self) -> Path:
        """The `location` as a path."""
        return Path(self.location)


#: Longer ago nothing was written: a later limit is none.
MOST_DAYS = 1_000_000


class Retention(NamedTuple):
    """An agent deletes its logs when it starts: those that nobody has written to for so many `days`.

    `setting` says where a person can change that.
    """

    days: float
    setting: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Where reading stopped: byte `offset`, lines read so far, a digest of the bytes around, the reader's `state`."""

    offset: int
    lines: int
    probe: str
    state: bytes


#: The reason to skip the log of a known session: a person rewound it to its start.
TAKEN_BACK = "rewound to its start"
#: The checkpoint of a log that is read from its start.
UNREAD = Checkpoint(0, 0, "", b"")


@dataclass(frozen=True, slots=True)
class ReadResult:
    """What reading a log gave: the session, or `None` with the reason why it is not one; and where to go on next time.

    `resumed` says that only what was added since the checkpoint was read; `broken` and `bytes_read` speak of that.
    `unknown` counts the records of the whole log that the reader skipped because it does not know them, of `records`.
    Both are 0 for agents that do not count. `masked` says that the texts of the session are.
    """

    session: Session | None
    skipped: str
    checkpoint: Checkpoint
    broken: tuple[BrokenLine, ...]
    bytes_read: int
    resumed: bool = False
    records: int = 0
    unknown: int = 0
    masked: bool = False


class AgentAdapter(Protocol):
    """One agent: where its logs are and how they are read. Adapters never write."""

    name: AgentName
    #: The environment variable that says where its folder is.
    variable: str
    #: How the files end whose changes are changes of logs.
    endings: tuple[str, ...] = (".jsonl",)
    #: The folders of its logs as they stand below a home where nothing else is said, such as ``.agent/sessions``.
    places: tuple[str, ...] = ()
    #: The path of a log has the session's id: of very many logs most are skipped by that.
    named_by_id: bool = True
    #: Only the records of a log tell whether it is a sub-agent's.
    mixed: bool = False
    #: The words before a session's id with which a person goes on in it; its name and ``--resume`` where none are told.
    resumes: tuple[str, ...] = ()

    def homes(self) -> tuple[Path, ...]:
        """The agent's own folder, and those of further accounts; they need not exist."""

    def home(self) -> Path:
        """The agent's own folder: the first one."""
        return self.homes()[0]

    def folders(self) -> tuple[tuple[Path, int], ...]:
        """The folders that its logs are in, each with how many levels below; they need not exist."""

    def discover(self) -> Iterator[LogFile]:
        """Every session log, by directory listing and `stat` alone. Sub-agents' own files are left out."""

    def log_at(self, location: str) -> LogFile | None:
        """The session log at exactly this place, as `discover` would give it; `None` where it would not."""

    def logs_of(self, changed: str) -> Iterable[LogFile]:
        """The logs that a change of this file may have changed."""
        found = self.log_at(changed)
        return () if found is None else (found,)

    def has_lost(self, location: str) -> bool:
        """Whether a log within a file is there no more: the file can be read, and does not have it."""
        return False

    def unread(self) -> str:
        """Why none of its logs can be read although there may be some, and what to do; empty where nothing is wrong."""
        for folder, _ in self.folders():
            try:
                os.scandir(folder).close()
            except PermissionError:
                return f"{folder} cannot be read; give yourself permission to read it"
            except OSError:  # there is none
                continue
        return ""

    def retention(self) -> Retention | None:
        """When it deletes its own logs, as its settings say; `None` where it does not."""
        return None

    def is_composed(self, file: LogFile) -> bool:
        """Return whether `as_file` makes a file of the log, also of other files: its size is another than the log's."""
        return bool(file.within)

    def as_file(self, path: Path) -> AbstractContextManager[Path]:
        """The log as a file of its own that `read` takes, for a copy of it; nothing is lost that a session needs.

        Raises:
            OSError: it cannot be read.
        """
        return nullcontext(path)

    def locate(self, session_id: str) -> tuple[Path, ...]:
        """The files of this session id, newest first; empty where there is none."""

    def id_of(self, path: Path) -> str:
        """The session id as the file's name says it."""

    def is_copy(self, path: Path) -> bool:
        """Whether a log lies elsewhere than where its session was begun, as far as its beginning tells.

        Raises:
            OSError: the file cannot be opened or is not a regular file.
        """

    def read(self, path: Path, checkpoint: Checkpoint | None = None, *, keep_raw: bool = False) -> ReadResult:
        """The session in `path`. For the index, with a `checkpoint`, be it `UNREAD`: what was said in it is masked, and
        it is read from there if the file has only grown since.

        Raises:
            OSError: the file cannot be opened or is not a regular file.
        """

    def glance(self, path: Path) -> Session | None:
        """What its first and last records say of it, for a list: title, directory, who started it, when it was last.

        Raises:
            OSError: the file cannot be opened, is not a regular file, or holds no record.
        """

    def twins(self, path: Path) -> tuple[Path, ...]:
        """Other logs of the session in `path`: it was moved or copied, and perhaps went on there."""
        return ()

    def time_of(self, file: LogFile) -> str:
        """When anything was last said or done in a session: programs that copy, sync or restore a file restamp it.

        Raises:
            OSError: as in `glance`.
        """
        session = self.glance(file.path)
        return session.last_activity if session else ""

    def place_of(self, directory: str) -> str:
        """How the locations begin of logs that were begun in or below `directory`; empty where they do not tell."""
        return ""

    def resume_command(self, session_id: str) -> tuple[str, ...]:
        """What a person types to go on in that session."""
        return (*(self.resumes or (self.name, "--resume")), session_id)


class UnknownAgentError(IndexerError, ValueError):
    """Nothing of ours knows an agent of this name."""

    code = "unknown_agent"
    http_status = 400


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

    @cached_property
    def _sessions(self) -> re.Pattern[str]:
        return naming_sessions(place for agent in self for place in agent.places)

    def opens_a_session(self, action: str) -> bool:
        """Whether the line of an action names a log of any agent, or our export of one."""
        return self._sessions.search(action) is not None

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(self._by_name)
