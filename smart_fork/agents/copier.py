"""What an agent says of its sessions, so that they can be copied: where a copy goes, and what its lines are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from indexer.transcripts.model import Agent, Session

Record = dict[str, Any]
#: A record, and how it is spelled in the log.
Entry = tuple[bytes, Record]


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a copy becomes. `cwd` is where it works, where that is another directory than the session's own."""

    id: str
    cwd: Path | None
    now: datetime
    title: str = ""


class Copy(ABC):
    """The lines of one copy, made while they are taken. `copied` counts its records, when the last one is."""

    copied: int = 0

    @abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """The lines, without their newlines; last the title, where it gets one.

        Raises:
            NotFound: what the session was forked from is gone.
            ForkRefused: the log was rewritten meanwhile.
        """

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """Copy what belongs to the session beside its log, when the lines are written; what is missing, in words.

        What is made is added to `created`, which the caller takes away after a failure.

        Raises:
            OSError: it cannot be copied.
            ForkRefused: there is something else of that name.
        """
        del target, created
        return []


class Copier(ABC):
    """One agent's copies."""

    name: Agent

    @abstractmethod
    def place(self, source: Path, new: NewSession) -> Path:
        """Where the agent finds the copy from its directory, or where it found the `source`."""

    @abstractmethod
    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """Turns 0 to `end` of a session."""

    @abstractmethod
    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """These records of a session, in the order of its file."""
