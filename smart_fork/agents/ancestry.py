"""Families of sessions, found by the first records of their logs, for all agents."""

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

#: The first message of a log is among this many records.
HEAD_RECORDS = 500


class Copied(NamedTuple):
    """A message's id, and the session and message that it is a copy of."""

    id: str
    session_id: str = ""
    message_id: str = ""


@dataclass(slots=True, eq=False)
class Kin:
    """A log in a family. `recorded` is the parent that the log names, and `begun` the time when it was made, if known.

    `first` is its first message. `messages` are all of them, each after its parent; only Claude Code needs them. `base`
    is the number of the parent's first record that a fork of Codex does not have. `native` means that Claude Code
    itself began the file: then the recorded parent was copied from its parent with the other records.
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
    """Reads the beginnings of one agent's logs."""

    reader: ClassVar[AgentAdapter]
    #: `True` if a fork's log can continue another log, with only its own records.
    goes_on = False

    def base(self, path: Path) -> str:
        """Return the id of the session whose log this one continues; empty if it has all records itself.

        Raises:
            OSError: The log cannot be read.
        """
        return ""

    def family(self, session_id: str, root: str, forks: Mapping[str, str]) -> list[Kin]:
        """Return the logs of a session's family in the project at `root`, in no order; in all projects without a
        `root`.

        `forks` are other known forks, each with its parent. If an agent's folders do not tell the project, the
        beginnings of all logs are read, and then the rest of the family's.
        """
        family = connected(session_id, self.kin(self.reader.discover()), forks)
        self.read_all(family)
        return family

    def kin(self, files: Iterable[LogFile]) -> Iterator[Kin]:
        """Yield the facts from the beginnings of these logs, without those that cannot be read or tell nothing."""
        for file in files:
            kin = Kin(self.reader.name, self.reader.id_of(file.path), file.path, file.mtime_ns)
            with suppress(OSError):
                if self.begins(kin):
                    yield kin

    def read_all(self, family: Iterable[Kin]) -> None:
        """Read the messages of those logs that still exist."""
        for kin in family:
            with suppress(OSError):
                kin.messages += self.messages(kin)

    @abstractmethod
    def begins(self, kin: Kin) -> bool:
        """Note the facts from a log's beginning; return whether there are any.

        Raises:
            OSError: The log cannot be read.
        """

    def messages(self, kin: Kin) -> Iterable[Copied]:
        """Return all messages of a log.

        Raises:
            OSError: The log cannot be read.
        """
        return ()

    def shared(self, kin: Kin, parent: Kin, above: Session, fork: Callable[[], Session | None]) -> int:
        """Return how many turns of its parent, read as `above`, a fork has: up to the last one whose id it has.

        `fork` reads the fork.
        """
        there = {message.id for message in kin.messages}
        return max((number + 1 for number, turn in enumerate(above.turns) if turn.id in there), default=0)


def connected(session_id: str, heads: Iterable[Kin], forks: Mapping[str, str]) -> list[Kin]:
    """Return the logs connected with a session, by a common first message or by forks."""
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
