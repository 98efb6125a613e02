"""The protocol by which an agent's sessions are copied: the copy's path, and its lines."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from indexer.files import new_file, remove
from indexer.paths import private_dir
from indexer.shapes import dataclass
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork.agents.excerpt import Excerpt, LiveRecord
from smart_fork.errors import ForkRefused
from smart_fork.system.processes import Machine

Record = dict[str, Any]
#: A record, with its bytes in the log.
Entry = tuple[bytes, Record]


@dataclass(frozen=True, slots=True)
class NewSession:
    """The new session of a copy. `cwd` is its directory, if it differs from the source's."""

    id: str
    cwd: Path | None
    now: datetime
    title: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A written copy: its path, all files made for it (its own last), and warnings for people.

    `forget` removes the parts that are not files.
    """

    path: Path
    created: tuple[Path, ...]
    warnings: tuple[str, ...] = ()
    forget: Callable[[], object] | None = None


class Copy(ABC):
    """The lines of one copy, made while they are read. After the last line, `copied` is the number of records."""

    copied: int = 0

    @abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines without newlines, the title last if there is one.

        Raises:
            NotFound: A session that this one was forked from is gone.
            ForkRefused: The log was rewritten meanwhile.
        """

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """Copy the files beside the log, after its lines are written; return what is missing, in words.

        New files are added to `created`. The caller deletes these after a failure.

        Raises:
            OSError: A file cannot be copied.
            ForkRefused: Another file of the same name exists.
        """
        return []


def in_order(wanted: Sequence[str], records: Iterable[tuple[str, Entry]], source: Path) -> Iterator[tuple[str, Entry]]:
    """Yield records with ids in the order of `wanted`. Records without an id keep their place.

    Agents sometimes write a record before its parent.

    Raises:
        ForkRefused: A record is missing: the log was rewritten meanwhile.
    """
    early: dict[str, Entry] = {}
    order = iter(wanted)
    following = next(order, None)
    for identity, entry in records:
        if not identity:
            yield identity, entry
            continue
        early[identity] = entry
        while following is not None and following in early:
            yield following, early.pop(following)
            following = next(order, None)
    if following is not None:
        raise ForkRefused(f"The log changed during reading: {source}", "Try again.")


def compacted_at(turns: Sequence[Turn]) -> int:
    """Return the position of the last compaction's summary, the only system turn that loads tokens."""
    return max((i for i, turn in enumerate(turns) if turn.role == "system" and turn.loaded), default=0)


class Copier(ABC):
    """Copies one agent's sessions."""

    name: AgentName

    @abstractmethod
    def place(self, source: Path, new: NewSession) -> Path:
        """Return the path at which the agent finds the copy from its directory, or found the `source`."""

    @abstractmethod
    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """Copy turns 0 to `end` of a session."""

    def short(self, record: Record) -> Record:
        """Return a record with its results shortened."""
        return record

    @abstractmethod
    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """Copy these records of a session, in file order."""

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """Yield the records that the agent remembers of a session, and those forgotten by compactions, in order.

        Raises:
            NotFound: A session that this one was forked from is gone.
            ForkRefused: The log was rewritten meanwhile, or turns of this agent's sessions cannot be dropped.
        """
        raise ForkRefused(
            f"Sessions of {self.name} can only be forked whole",
            "Fork it without a budget, or at an earlier message (at).",
        )

    def distilled(self, session: Session, excerpt: Excerpt, new: NewSession) -> Copy:
        """Copy the turns of a session that an `excerpt` keeps.

        Raises:
            ForkRefused: Turns of this agent's sessions cannot be dropped.
        """
        self.live(session)
        raise NotImplementedError

    def write(self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]) -> Written:
        """Write a copy to `target`, and call `last` before it appears there.

        The file appears when it is complete; an error leaves nothing behind.

        Raises:
            ForkRefused: A session of that id exists, or the source was rewritten meanwhile.
            ProgramFailed: The agent's own program, run on `machine`, refuses the copy.
            OSError: The copy cannot be written.
        """
        created: list[Path] = []
        private_dir(target.parent)
        with _undone_on_failure(created), new_file(target) as file:
            file.writelines(line + b"\n" for line in copy)
            warnings = copy.copy_beside(target, created)
            last()
        return Written(target, (*created, target), tuple(warnings))


@contextlib.contextmanager
def _undone_on_failure(created: list[Path]) -> Iterator[None]:
    """Delete the `created` files after a failure.

    Raises:
        ForkRefused: Instead of `FileExistsError`.
    """
    try:
        yield
    except BaseException as error:
        for path in created:
            with contextlib.suppress(OSError):
                remove(path)
        if isinstance(error, FileExistsError):
            raise ForkRefused(f"A session of this id already exists: {error.filename2 or error.filename}") from None
        raise
