"""Copies of sessions whose records each name their parent, the record before. Copied records become one chain.

An agent's subclass says which records are sent to the model, and how a record is changed for a copy.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import ClassVar

from indexer.transcripts.lines import LineReader
from indexer.transcripts.model import Session, Turn
from smart_fork.agents.copier import Copier, Copy, Entry, Excerpt, LiveRecord, NewSession
from smart_fork.agents.decoders import MessageCodec, Record
from smart_fork.agents.tree import rooted
from smart_fork.errors import ForkRefused
from smart_fork.json_edit import respelled

#: Makes the copied form of a record without a place of its own; `None` if it is not copied.
Beside = Callable[[Entry], Entry | None]


def records_in_order(
    source: Path,
    order: Sequence[str],
    has_place: Callable[[Record], bool],
    beside: Beside | None = None,
    is_link: Callable[[Record], bool] | None = None,
) -> Iterator[tuple[str, Entry]]:
    """Yield the records with the ids in `order`, in this order, each with its id.

    Agents sometimes write a record before its parent. `beside` converts records without a place in `order`: they are
    yielded where they are in the log, with an empty id. Links (see `TreeCopy.is_link`) between a record and its parent
    are yielded before the record, with its id.

    Raises:
        ForkRefused: A record is missing: the log was rewritten during reading.
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
    """Remove the links (notes between two messages) that lead to a record from `above`, and return them in order."""
    found: list[Entry] = []
    while taken := above.pop(str(record.get("parentUuid")), None):
        parent, entry = taken
        found += [entry] if entry else []
        record = {"parentUuid": parent}
    return found[::-1]


class TreeCopy(Copy):
    """A copy in which each record names the copied record before it. Apart from that, only ids and directories change.

    Records that a caller chose one by one keep their parents. Records without an id get no parent.
    """

    carried: ClassVar[tuple[str, ...]] = ("parent",)
    _copier: TreeCopier
    parent: str | None = None

    def said(self) -> Iterator[bytes]:
        """Yield the copied records as lines. A copy up to a turn has only those that are sent to the model."""
        if not isinstance(self._of, int):
            yield from super().said()
            return
        turns, codec = self._source.turns[: self._of + 1], self._copier.codec
        order, beside = self.order(turns), self.beside(turns)
        records = records_in_order(self._source.source_path, order, codec.has_place, beside, self.is_link)
        for identity, (spelled, record) in records:
            if identity and not codec.is_sent(record) and not self.is_link(record):
                continue
            if identity:
                record["parentUuid"], self.parent = self.parent, record["uuid"]
                self.own(record)
                self.copied += identity == record["uuid"]
            yield respelled(spelled, record)

    def first(self, excerpt: Excerpt) -> Iterator[bytes]:
        """Yield as lines the records outside the chain (see `beside`) of kept turns that are not shortened."""
        whole = sorted(excerpt.kept - excerpt.shortened)
        made = self.beside([self._source.turns[number] for number in whole])
        for line in LineReader(self._source.source_path) if made else ():
            if made and (entry := made((line.source, line.record))):
                yield respelled(*entry)

    def record(self, number: int, entry: Entry) -> Iterator[bytes]:
        spelled, record = entry
        if self._excerpt:
            yield self._chained((spelled, self.own(self.recounted(number, record, self._excerpt.tokens))))
        else:
            yield respelled(spelled, self.own(record))

    def summary(self, entry: Entry) -> Iterator[bytes]:
        yield self._chained(self.left(entry))

    def line(self, text: str, before: Entry) -> Iterator[bytes]:
        yield self._chained((b"", self.added(text, before[1])))

    def _chained(self, entry: Entry) -> bytes:
        spelled, record = entry
        if self.parent is None:
            record = rooted(record, self._source.root_id)
        record["parentUuid"], self.parent = self.parent, record["uuid"]
        return respelled(spelled, record)

    def order(self, turns: Sequence[Turn]) -> list[str]:
        """Return the ids of the turns that the agent still sends to the model, in the order of sending."""
        return [turn.id for turn in turns[self._source.compacted(len(turns) - 1) :]]

    @staticmethod
    def is_link(record: Record) -> bool:  # noqa: ARG004 - an agent's own looks at it
        """Return True if a record is a link: a note between messages that changes the request to the model."""
        return False

    def beside(self, turns: Sequence[Turn]) -> Beside | None:
        """Return a function that converts records of these turns outside the chain of messages; `None` without any."""
        return None

    @abstractmethod
    def own(self, record: Record) -> Record:
        """Return a record of the source with the copy's ids and directory."""

    @abstractmethod
    def recounted(self, number: int, record: Record, tokens: Sequence[int]) -> Record:
        """Return a record of turn `number` with the copy's context size, from all turns' `tokens`, or with no size."""

    @abstractmethod
    def left(self, entry: Entry) -> Entry:
        """Return a compaction's summary as an ordinary message, so that the agent also loads kept turns before it."""

    @abstractmethod
    def added(self, text: str, near: Record) -> Record:
        """Return a new record with smart-fork's note `text`, and with facts such as the version taken from `near`."""


class TreeCopier(Copier):
    """Copies the sessions of one agent, whose records each name the record before."""

    codec: ClassVar[MessageCodec]
    copies: ClassVar[type[TreeCopy]]

    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        return self.copies(self, session, new, records)

    def live(self, session: Session) -> Iterator[LiveRecord]:
        places = {turn.id: number for number, turn in enumerate(session.turns)}
        records = records_in_order(session.source_path, list(places), self.codec.has_place, is_link=self.copies.is_link)
        for identity, (spelled, record) in records:
            if record["uuid"] != identity:
                yield LiveRecord(places[identity], (spelled, record), is_link=True)
                continue
            said = self.codec.as_said(record)
            if self.codec.is_sent(said):
                yield self.sized(places[identity], (spelled, said), sums_up=self.codec.sums_up(said))
