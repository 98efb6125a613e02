"""Copies of sessions: where an agent's copy is stored, which lines it has, and how it is written or removed."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from indexer.lazy_compilation import dataclass
from indexer.safe_files import new_file, private_dir
from indexer.transcripts.lines import is_long
from indexer.transcripts.model import RecordSize, Session
from indexer.transcripts.reader_state import utc
from smart_fork.agents.decoders import CopyCodec, Record
from smart_fork.agents.description import AgentFacet
from smart_fork.agents.storage import undone_on_failure
from smart_fork.errors import NotFound
from smart_fork.system.processes import Machine


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A record of a session, with the number of its turn and the number of characters that the model receives of it.

    `short` is that number with shortened tool results. `sums_up` marks a compaction's summary, which replaces old
    turns. `is_link` marks a note of the agent's program between messages that is valid only after all earlier records.
    """

    number: int
    entry: tuple[bytes, dict[str, Any]]
    characters: int = 0
    sums_up: bool = False
    short: int | None = None
    is_link: bool = False


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The turns chosen for a copy within a budget: `kept`, and the newest compaction's summary up to turn `end`.

    `told` maps a turn's number to a note about turns dropped before it. `tokens` are the sizes of all turns in tokens.
    In the turns `shortened`, only both ends of long tool results are copied, with a note between them.
    """

    kept: frozenset[int]
    end: int
    told: Mapping[int, str] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    shortened: frozenset[int] = frozenset()


#: A record, with its bytes in the log.
Entry = tuple[bytes, Record]


@dataclass(frozen=True, slots=True)
class NewSession:
    """The new session that a copy becomes. `cwd` is its directory, if that is not the copied session's."""

    id: str
    cwd: Path | None
    now: datetime
    title: str = ""

    @property
    def moment(self) -> str:
        """The time of the copy in UTC, as most records write times."""
        return utc(self.now.astimezone().isoformat())


@dataclass(frozen=True, slots=True)
class CopiedFiles:
    """A written copy: its path, all files made for it (its log last), and warnings for people.

    `forget` removes parts of the copy that are not files, such as rows of a database.
    """

    path: Path
    created: tuple[Path, ...]
    warnings: tuple[str, ...] = ()
    forget: Callable[[], object] | None = None


class Copy(ABC):
    """The lines of a copy of one session, each made when it is requested. Subclasses convert an agent's records.

    `of` selects what is copied: the turns from 0 to a number, the turns of an excerpt, or the given records. After the
    last line, `copied` is the number of copied records.
    """

    copied: int = 0
    #: The attributes that the copy of another session continues with in the same file.
    carried: ClassVar[tuple[str, ...]] = ()

    def __init__(self, copier: Copier, source: Session, new: NewSession, of: int | Excerpt | Iterable[Entry]) -> None:
        self._copier, self._source, self._new, self._of = copier, source, new, of
        self._excerpt = of if isinstance(of, Excerpt) else None
        #: The copies that follow in the same file: it begins like this one, and has the files beside this one's log.
        self.following: Sequence[Copy] = ()

    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines of the copy without newlines. A title comes last.

        Raises:
            NotFound: A session that the source was forked from is gone.
            ForkRefused: The log was rewritten during reading.
        """
        yield from self.header()
        yield from self.said()
        before: Copy = self
        for copy in self.following:
            copy.after(before)
            yield from copy.said()
            self.copied += copy.copied
            before = copy
        yield from before.last()

    def said(self) -> Iterator[bytes]:
        """Yield the copied records as lines, without the header and the title."""
        if isinstance(self._of, Excerpt):
            yield from self._kept(self._of)
            return
        for entry in self.up_to(self._of) if isinstance(self._of, int) else self._of:
            for line in self.record(-1, entry):
                self.copied += 1
                yield line

    def _kept(self, excerpt: Excerpt) -> Iterator[bytes]:
        """Yield an excerpt's records as lines, each after the notes about turns dropped before it."""
        live = self._copier.live
        sums = (place for place, one in enumerate(live(self._source)) if one.sums_up and one.number <= excerpt.end)
        newest = max(sums, default=-1)
        yield from self.first(excerpt)
        waiting = sorted(excerpt.told.items())
        unbroken = True  # so far the copy is how the session begins, as its agent remembers it
        for place, one in enumerate(live(self._source)):
            summary, forgotten = place == newest, place < newest
            kept = summary or (not one.sums_up and one.number in excerpt.kept)
            short = one.number in excerpt.shortened and one.short not in (None, one.characters)
            if one.is_link:
                kept = unbroken and not forgotten and one.number <= excerpt.end
            else:
                unbroken = unbroken and kept != forgotten and not short
            if not kept:
                continue
            while waiting and waiting[0][0] <= one.number and not summary:
                yield from self.line(waiting.pop(0)[1], one.entry)
                self.copied, unbroken = self.copied + 1, False
            spelled, record = one.entry
            if one.number in excerpt.shortened:
                entry = (b"" if is_long(spelled) else spelled, self._copier.codec.short(record))
            else:
                entry = one.entry
            for line in self.summary(one.entry) if summary else self.record(one.number, entry):
                self.copied += not one.is_link
                yield line

    def after(self, other: Copy) -> None:
        """Continue in the file of the copy `other`: take over its attributes in `carried`, such as its last id."""
        for name in self.carried:
            setattr(self, name, getattr(other, name))

    def header(self) -> Iterable[bytes]:
        """Return the lines that the agent's format needs at the beginning of a new file."""
        return ()

    def up_to(self, end: int) -> Iterator[Entry]:
        """Yield the source's records of turns 0 to `end`."""
        raise NotImplementedError

    def first(self, excerpt: Excerpt) -> Iterable[bytes]:
        """Return the lines between the header and an excerpt's records."""
        return ()

    def last(self) -> Iterable[bytes]:
        """Return the last lines: the title, if the copy has one."""
        return ()

    @abstractmethod
    def record(self, number: int, entry: Entry) -> Iterable[bytes]:
        """Return a record of the source as lines of the copy. `number` is its turn; -1 unless an excerpt is copied."""

    @abstractmethod
    def summary(self, entry: Entry) -> Iterable[bytes]:
        """Return the lines of a compaction's summary as an ordinary message, so that turns before it are loaded too."""

    @abstractmethod
    def line(self, text: str, before: Entry) -> Iterable[bytes]:
        """Return smart-fork's note `text` as lines that come before the record `before`."""

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """Copy the files beside the log to the copy's place. Return a sentence about each kind of file that is missing.

        New files are appended to `created`; the caller deletes them after a failure.

        Raises:
            OSError: A file cannot be copied.
            ForkRefused: Another file of the same name exists.
        """
        return []


@contextlib.contextmanager
def read_again(log: Path) -> Iterator[None]:
    """Within this context, turn an `OSError` into `NotFound`, which says that the session's `log` is gone."""
    try:
        yield
    except OSError as error:
        raise NotFound(f"The session's log is gone: {log}") from error


class Copier(AgentFacet, ABC):
    """Copies one agent's sessions."""

    #: Decodes its records.
    codec: ClassVar[CopyCodec]
    #: The class of its copies.
    copies: ClassVar[type[Copy]]

    @abstractmethod
    def place(self, source: Path, new: NewSession) -> Path:
        """Return the path at which the agent, in the directory of `new`, finds the copy of the log `source`."""

    def copy(self, session: Session, of: int | Excerpt, new: NewSession) -> Copy:
        """Return a copy of a session: of turns 0 to `of` if that is a number, else of an excerpt's turns."""
        return self.copies(self, session, new, of)

    def sized(self, number: int, entry: Entry, *, sums_up: bool = False) -> LiveRecord:
        """Return a record of turn `number` with its sizes. `sums_up` marks the summary of a compaction."""
        record, codec = entry[1], self.codec
        return LiveRecord(number, entry, codec.size(record), sums_up, codec.size(codec.short(record)))

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy | None:
        """Return a copy of only these records, in file order; `None` if the agent loads no session with gaps."""
        return None

    @abstractmethod
    def live(self, session: Session) -> Iterator[LiveRecord]:
        """Yield, in order, the records that the agent sends to the model, and those that it sent until a compaction.

        Raises:
            NotFound: A session that this one was forked from is gone.
            ForkRefused: The log was rewritten during reading.
        """

    def sizes(self, session: Session) -> Iterator[tuple[int, RecordSize]]:
        """Yield the turn's number and the size of each record in `live`. Of a very long record, all bytes count."""
        for one in self.live(session):
            long = 0 if one.sums_up or not is_long(one.entry[0]) else len(one.entry[0])
            short = one.characters if one.short is None else one.short
            yield one.number, RecordSize(max(one.characters, long), short, one.sums_up)

    def begin(self, target: Path) -> list[Path]:
        """Make the folder of `target`. Return the new folders that only this copy uses, to delete after a failure.

        Raises:
            ForkRefused: A session with this id exists.
        """
        private_dir(target.parent)
        return []

    def write(
        self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]
    ) -> CopiedFiles:
        """Write a copy to `target`. Call `last` just before the complete file appears there.

        After an error, all written files are deleted.

        Raises:
            ForkRefused: A session with this id exists, or the source was rewritten during reading.
            ProgramFailed: The agent's own program, run on `machine`, refuses the copy.
            OSError: The copy cannot be written.
        """
        created = self.begin(target)
        with undone_on_failure(created), new_file(target) as file:
            file.writelines(line + b"\n" for line in copy)
            warnings = copy.copy_beside(target, created)
            last()
        return CopiedFiles(target, (*created, target), tuple(warnings))
