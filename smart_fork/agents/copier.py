"""What an agent says of its sessions, so that they can be copied: where a copy goes, and what its lines are."""

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
#: A record, and how it is spelled in the log.
Entry = tuple[bytes, Record]


@dataclass(frozen=True, slots=True)
class NewSession:
    """What a copy becomes. `cwd` is where it works, where that is another directory than the session's own."""

    id: str
    cwd: Path | None
    now: datetime
    title: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A copy that is there: where, all files that were made for it (its own last), and what a person should know.

    `forget` takes away what of it is no file of ours.
    """

    path: Path
    created: tuple[Path, ...]
    warnings: tuple[str, ...] = ()
    forget: Callable[[], object] | None = None


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


def in_order(wanted: Sequence[str], records: Iterable[tuple[str, Entry]], source: Path) -> Iterator[tuple[str, Entry]]:
    """These records, each with its id, in the order of the ids that are `wanted`; what has no id comes where it stands.

    Agents sometimes write a record before its parent.

    Raises:
        ForkRefused: one is missing: the log was rewritten meanwhile.
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
    """Where what the last compaction left stands: the one thing of the system's that loads anything."""
    return max((i for i, turn in enumerate(turns) if turn.role == "system" and turn.loaded), default=0)


class Copier(ABC):
    """One agent's copies."""

    name: AgentName

    @abstractmethod
    def place(self, source: Path, new: NewSession) -> Path:
        """Where the agent finds the copy from its directory, or where it found the `source`."""

    @abstractmethod
    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """Turns 0 to `end` of a session."""

    @abstractmethod
    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """These records of a session, in the order of its file."""

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """What the agent remembers of a session, and what compactions have made it forget: record by record, in order.

        Raises:
            NotFound: a session that this one was forked from is gone.
            ForkRefused: the log was rewritten meanwhile, or nothing is left out of sessions of that agent.
        """
        del session
        raise ForkRefused(
            f"Sessions of {self.name} can only be forked whole",
            "Fork it without a budget, or at an earlier message (at).",
        )

    def distilled(self, session: Session, excerpt: Excerpt, new: NewSession) -> Copy:
        """Those turns of a session that an `excerpt` keeps.

        Raises:
            ForkRefused: nothing is left out of sessions of that agent.
        """
        del excerpt, new
        self.live(session)
        raise NotImplementedError

    def write(self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]) -> Written:
        """Write a copy to its place, `target`, calling `last` before it is found there.

        It is found when all of it is there; after an error nothing is left.

        Raises:
            ForkRefused: a session of that id exists, or the source was rewritten meanwhile.
            ProgramFailed: the agent's own program, run on `machine`, does not take it.
            OSError: it cannot be written.
        """
        del new, machine
        created: list[Path] = []
        private_dir(target.parent)
        with _undone_on_failure(created), new_file(target) as file:
            file.writelines(line + b"\n" for line in copy)
            warnings = copy.copy_beside(target, created)
            last()
        return Written(target, (*created, target), tuple(warnings))


@contextlib.contextmanager
def _undone_on_failure(created: list[Path]) -> Iterator[None]:
    """Take away what was `created` where something fails.

    Raises:
        ForkRefused: in place of `FileExistsError`.
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
