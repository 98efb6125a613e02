"""Copies of sessions whose records name their parents. The copied records become one chain of parents.

An agent tells which records its model is sent, and how a record becomes one of a copy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.tree import rooted
from smart_fork.agents.codec import MessageCodec, Record
from smart_fork.agents.copier import Copier, Copy, Distilled, Entry, Excerpt, LiveRecord, NewSession, compacted_at
from smart_fork.errors import ForkRefused
from smart_fork.text.json_edits import respelled

#: Makes the copied form of a record without a place of its own; `None` if it is not copied.
Beside = Callable[[Entry], Entry | None]


def is_no_aside(record: Record) -> bool:
    """Return whether a record belongs to the conversation itself, not to a sub-agent."""
    return record.get("isSidechain") is not True


def placed(
    source: Path, order: Sequence[str], has_place: Callable[[Record], bool] = is_no_aside, beside: Beside | None = None
) -> Iterator[tuple[str, Entry]]:
    """Yield the records of these ids in their order, each with its id. Records made by `beside` keep their places.

    Raises:
        ForkRefused: The log was rewritten meanwhile.
    """
    return in_order(order, _kept(source, set(order), has_place, beside), source)


def _kept(
    source: Path, missing: set[str], has_place: Callable[[Record], bool], beside: Beside | None
) -> Iterator[tuple[str, Entry]]:
    """Yield the wanted records in file order, with the ids of those that have a place. The first of an id counts."""
    for line in LineReader(source):
        record, identity = line.record, line.record.get("uuid")
        if isinstance(identity, str) and identity in missing and has_place(record):
            missing.discard(identity)
            yield identity, (line.source, record)
        elif beside and (other := beside((line.source, record))):
            yield "", other


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


class TreeCopy(Copy):
    """Records of a session in a new one, unchanged except for their identity.

    `chained` links the records with ids as one chain of parents. Those without an id then keep their form.
    """

    def __init__(
        self, source: Session, new: NewSession, records: Iterable[tuple[str, Entry]] = (), *, chained: bool = True
    ) -> None:
        super().__init__(source, new)
        self._records, self._chained = records, chained
        self.parent: str | None = None

    def __iter__(self) -> Iterator[bytes]:
        """See `Copy.__iter__`."""
        for identity, (spelled, record) in self._records:
            if self._chained and identity:
                record["parentUuid"], self.parent = self.parent, identity
            if identity or not self._chained:
                self.own(record)
                self.copied += 1
            yield respelled(spelled, record)
        yield from self.titled()

    def whole(self, turns: Sequence[Turn], is_sent: Callable[[Record], bool]) -> TreeCopy:
        """Copy the records of these turns that the model is sent."""
        order = [turn.id for turn in turns[compacted_at(turns) :]]
        records = placed(self._source.source_path, order, self.has_place, self.beside(turns))
        self._records = ((one, entry) for one, entry in records if not one or is_sent(entry[1]))
        return self

    def after(self, other: TreeCopy) -> None:
        """Continue behind another copy in the same file."""
        self.parent = other.parent

    @staticmethod
    def has_place(record: Record) -> bool:
        """Return whether a record belongs to the conversation itself, not to a sub-agent."""
        return is_no_aside(record)

    def beside(self, turns: Sequence[Turn]) -> Beside | None:
        """Return the function that makes the copied form of records without a place, for these turns."""
        return None

    @abstractmethod
    def own(self, record: Record) -> Record:
        """Make a record the copy's own."""

    @abstractmethod
    def titled(self) -> Iterable[bytes]:
        """Yield the title's lines, if there is a title."""

    @abstractmethod
    def recounted(self, number: int, record: Record, tokens: Sequence[int]) -> Record:
        """Return a record of turn `number` with the size of the copy's context. `tokens` are the sizes of all turns."""

    @abstractmethod
    def left(self, entry: Entry) -> Entry:
        """Return a compaction's summary as a message."""

    @abstractmethod
    def added(self, text: str, near: Record) -> Record:
        """Return a record of our own with that text, beside another record."""

    def shown_instead(self, kept: Collection[int]) -> Iterable[bytes]:
        """Yield the lines that the model was shown instead of these turns' results."""
        return ()


class TreeDistilled(Distilled):
    """The turns of a session that an excerpt keeps, as one chain of parents."""

    def __init__(self, copier: TreeCopier, source: Session, excerpt: Excerpt, new: NewSession) -> None:
        super().__init__(copier, source, excerpt, new)
        self.lines = copier.lines(source, new)

    def after(self, other: Distilled) -> None:
        """See `Distilled.after`."""
        if isinstance(other, TreeDistilled):
            self.lines.after(other.lines)

    def first(self) -> Iterable[bytes]:
        """See `Distilled.first`."""
        return self.lines.shown_instead(self._excerpt.kept - self._excerpt.shortened)

    def last(self) -> Iterable[bytes]:
        """See `Distilled.last`."""
        return self.lines.titled()

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.record`."""
        record = self.lines.recounted(number, entry[1], self._excerpt.tokens)
        yield self._chained((entry[0], self.lines.own(record)))

    def summary(self, entry: Entry) -> Iterator[bytes]:
        """See `Distilled.summary`."""
        yield self._chained(self.lines.left(entry))

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        """See `Distilled.line`."""
        yield self._chained((b"", self.lines.added(text, before[1])))

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """See `Copy.copy_beside`."""
        return self.lines.copy_beside(target, created)

    def _chained(self, entry: Entry) -> bytes:
        spelled, record = entry
        if self.lines.parent is None:
            record = rooted(record, self._source.root_id)
        record["parentUuid"], self.lines.parent = self.lines.parent, record["uuid"]
        return respelled(spelled, record)


class TreeCopier(Copier):
    """Copies one agent's sessions."""

    codec: ClassVar[MessageCodec]
    within_budget = TreeDistilled
    #: The class of its copies.
    lines: ClassVar[type[TreeCopy]]

    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """See `Copier.up_to`."""
        return self.lines(session, new).whole(session.turns[: end + 1], self.is_sent)

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """See `Copier.of_records`."""
        return self.lines(session, new, (("", entry) for entry in records), chained=False)

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """See `Copier.live`."""
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        for identity, (spelled, record) in placed(session.source_path, list(places), self.lines.has_place):
            said = self.as_said(record)
            if self.is_sent(said):
                sums_up, short = self.sums_up(said), self.size(self.short(said))
                yield LiveRecord(places[identity], (spelled, said), self.size(said), sums_up, short)

    def short(self, record: Record) -> Record:
        """See `Copier.short`."""
        return self.codec.changed(record, self.short_part) or record

    def as_said(self, record: Record) -> Record:
        """Return a record in the form that the model is sent."""
        return record

    @abstractmethod
    def is_sent(self, record: Record) -> bool:
        """Return whether the model is sent a record."""

    @abstractmethod
    def sums_up(self, record: Record) -> bool:
        """Return whether a record is a compaction's summary."""

    @abstractmethod
    def size(self, record: Record) -> int:
        """Return how many characters of a record the model is sent."""

    @abstractmethod
    def short_part(self, part: Record) -> Record:
        """Return a part of a message, shortened if it is a result."""
