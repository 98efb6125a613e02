"""Copies of sessions whose records name their parents. The copied records become one chain of parents.

An agent tells which records its model is sent, and how a record becomes one of a copy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from indexer.transcripts.tree import rooted
from smart_fork.agents.codec import MessageCodec, Record
from smart_fork.agents.copier import Copier, Copy, Distilled, Entry, Excerpt, LiveRecord, NewSession
from smart_fork.errors import ForkRefused
from smart_fork.text.json_edits import respelled

#: Makes the copied form of a record without a place of its own; `None` if it is not copied.
Beside = Callable[[Entry], Entry | None]


def is_no_aside(record: Record) -> bool:
    """Return whether a record belongs to the conversation itself, not to a sub-agent."""
    return record.get("isSidechain") is not True


def placed(
    source: Path,
    order: Sequence[str],
    has_place: Callable[[Record], bool] = is_no_aside,
    beside: Beside | None = None,
    is_link: Callable[[Record], bool] | None = None,
) -> Iterator[tuple[str, Entry]]:
    """Yield the records of these ids in their order, each with its id. Records made by `beside` keep their places.

    The links between a record and the one before it come first, with its id. Agents sometimes write a record before
    its parent.

    Raises:
        ForkRefused: A record is missing: the log was rewritten meanwhile.
    """
    missing, following = set(order), iter(order)
    early, above = dict[str, Entry](), dict[str, tuple[object, Entry | None]]()
    expected = next(following, "")
    for line in LineReader(source):
        entry, record, identity = (line.source, line.record), line.record, line.record.get("uuid")
        if isinstance(identity, str) and identity in missing and has_place(record):  # the first of an id counts
            missing.discard(identity)
            early[identity] = entry
            while found := early.pop(expected, None):
                yield from ((expected, link) for link in _links(found[1], above))
                yield expected, found
                expected = next(following, "")
        elif beside and (other := beside(entry)):
            yield "", other
        elif is_link and isinstance(identity, str) and (is_link(record) or not has_place(record)):
            if "logicalParentUuid" in record:  # a compaction, after which nothing leads to what was before
                above.clear()
            above.setdefault(identity, (record.get("parentUuid"), entry if is_link(record) else None))
    if expected:
        raise ForkRefused(f"The log changed during reading: {source}", "Try again.")


def _links(record: Record, above: dict[str, tuple[object, Entry | None]]) -> list[Entry]:
    """Take the links that lead to a record out of `above`, the first one first."""
    found: list[Entry] = []
    while taken := above.pop(str(record.get("parentUuid")), None):
        parent, entry = taken
        found += [entry] if entry else []
        record = {"parentUuid": parent}
    return found[::-1]


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
                record["parentUuid"], self.parent = self.parent, record["uuid"]
            if identity or not self._chained:
                self.own(record)
                self.copied += not identity or identity == record["uuid"]
            yield respelled(spelled, record)
        yield from self.titled()

    def whole(self, turns: Sequence[Turn], is_sent: Callable[[Record], bool]) -> TreeCopy:
        """Copy the records of these turns that make what the model is sent."""
        records = placed(self._source.source_path, self.order(turns), self.has_place, self.beside(turns), self.is_link)
        self._records = (
            (one, entry) for one, entry in records if not one or is_sent(entry[1]) or self.is_link(entry[1])
        )
        return self

    def after(self, other: TreeCopy) -> None:
        """Continue behind another copy in the same file."""
        self.parent = other.parent

    @staticmethod
    def has_place(record: Record) -> bool:
        """Return whether a record belongs to the conversation itself, not to a sub-agent."""
        return is_no_aside(record)

    def order(self, turns: Sequence[Turn]) -> list[str]:
        """Return the ids of those of these turns that the agent remembers, as it sends them."""
        return [turn.id for turn in turns[self._source.compacted(len(turns) - 1) :]]

    @staticmethod
    def is_link(record: Record) -> bool:  # noqa: ARG004 - an agent's own looks at it
        """Return whether a record between two messages makes what the model is sent."""
        return False

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


class TreeDistilled(Distilled):
    """The turns of a session that an excerpt keeps, as one chain of parents."""

    def __init__(self, copier: TreeCopier, source: Session, excerpt: Excerpt, new: NewSession) -> None:
        super().__init__(copier, source, excerpt, new)
        self.lines = copier.lines(source, new)

    def after(self, other: Distilled) -> None:
        """See `Distilled.after`."""
        if isinstance(other, TreeDistilled):
            self.lines.after(other.lines)

    def first(self) -> Iterator[bytes]:
        """See `Distilled.first`: what has no place in the chain, of turns whose results are kept in full."""
        whole = sorted(self._excerpt.kept - self._excerpt.shortened)
        made = self.lines.beside([self._source.turns[number] for number in whole])
        for line in LineReader(self._source.source_path) if made else ():
            if made and (entry := made((line.source, line.record))):
                yield respelled(*entry)

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
        records = placed(session.source_path, list(places), self.lines.has_place, is_link=self.lines.is_link)
        for identity, (spelled, record) in records:
            if record["uuid"] != identity:
                yield LiveRecord(places[identity], (spelled, record), is_link=True)
                continue
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
