"""What the first records of a log say of its family, whichever agent wrote it, and who is tied to whom by that."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from pathlib import Path
from typing import ClassVar, NamedTuple

from indexer.shapes import dataclass
from indexer.transcripts.base import AgentAdapter, LogFile
from indexer.transcripts.model import AgentName, Session


class Copied(NamedTuple):
    """A message's id, and of what session and message it says that it is a copy."""

    id: str
    session_id: str = ""
    message_id: str = ""


@dataclass(slots=True, eq=False)
class Kin:
    """A log. `recorded` is the session that it says it is a fork of, `begun` when it was made, as far as that shows.

    `first` is its first message; `messages` are all of them, none before its parent, read for Claude Code's alone.
    `base` is the number of the parent's first record that a fork of Codex's has no more. `native` says that Claude Code
    itself began the file: what is recorded in it was copied from its parent, together with the rest.
    """

    agent: AgentName
    session_id: str
    path: Path
    mtime_ns: int = 0
    first: Copied | None = None
    recorded: str = ""
    begun: str = ""
    base: int | None = None
    native: bool = False
    messages: list[Copied] = field(default_factory=list)


class Heads(ABC):
    """How the logs of one agent begin."""

    name: AgentName
    reader: ClassVar[AgentAdapter]
    #: Whether a fork's log may go on from another one, and have its own records alone.
    goes_on = False

    def base(self, path: Path) -> str:
        """The id of the session from whose log this one goes on; empty where it has all records itself.

        Raises:
            OSError: it cannot be read.
        """
        del path
        return ""

    def family(self, session_id: str, root: str, forks: Mapping[str, str]) -> list[Kin]:
        """The logs of the family of a session of the project at `root`, that session's among them, in no order; without
        a `root` those of all projects.

        `forks` are further ones that are known, each with its parent. If a place says nothing of its project, the
        beginnings of all logs are read, and of the family the rest.
        """
        del root
        family = connected(session_id, self.kin(self.reader.discover()), forks)
        self.read_all(family)
        return family

    def kin(self, files: Iterable[LogFile]) -> Iterator[Kin]:
        """Yield what the beginnings of these logs say, of those that can be read and say something."""
        for file in files:
            kin = Kin(self.name, self.reader.id_of(file.path), file.path, file.mtime_ns)
            with suppress(OSError):
                if self.begins(kin):
                    yield kin

    def read_all(self, family: Iterable[Kin]) -> None:
        """Read the messages of these logs, as far as they are still there."""
        for kin in family:
            with suppress(OSError):
                kin.messages += self.messages(kin)

    @abstractmethod
    def begins(self, kin: Kin) -> bool:
        """Note what the beginning of a log says; return whether it says something.

        Raises:
            OSError: it cannot be read.
        """

    def messages(self, kin: Kin) -> Iterable[Copied]:
        """Return all messages of a log.

        Raises:
            OSError: it cannot be read.
        """
        del kin
        return ()

    @abstractmethod
    def shared(self, kin: Kin, parent: Kin, above: Session, fork: Callable[[], Session | None]) -> int:
        """How many turns of its parent, read as `above`, a fork has; `fork` reads it, too."""


def connected(session_id: str, heads: Iterable[Kin], forks: Mapping[str, str]) -> list[Kin]:
    """Those that can be reached from a session by a first message that they share, or by whose fork they are."""
    sessions: dict[str, list[Kin]] = defaultdict(list)
    ties: dict[str, set[str]] = defaultdict(set)
    for kin in heads:
        sessions[kin.session_id].append(kin)
        firsts = (f"message {one}" for one in (kin.first.id, kin.first.message_id) if one) if kin.first else ()
        for other in filter(None, (*firsts, kin.recorded)):
            ties[kin.session_id].add(other)
            ties[other].add(kin.session_id)
    for one, other in forks.items():  # also of sessions without a log
        ties[one].add(other)
        ties[other].add(one)
    reached, waiting = {session_id}, [session_id]
    while waiting:
        new = ties[waiting.pop()] - reached
        reached |= new
        waiting += new
    return [kin for one in reached for kin in sessions.get(one, ())]
