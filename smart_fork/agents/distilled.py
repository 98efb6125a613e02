"""A copy that leaves something out, as lines: what all agents' have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from indexer.transcripts.boilerplate import LEFT_OUT_TAG
from indexer.transcripts.lines import is_long
from smart_fork.agents.copier import Copy, Entry, Record
from smart_fork.agents.excerpt import Excerpt, LiveRecord

_BEGINS = f"<{LEFT_OUT_TAG}>\n"


class Distilled(Copy):
    """The lines of a copy that leaves something out; an agent says how its records become those of the copy."""

    def __init__(self, live: Iterable[LiveRecord], excerpt: Excerpt, newest: int | None) -> None:
        self._live, self._excerpt, self._newest = live, excerpt, newest
        self.copied = 0

    def __iter__(self) -> Iterator[bytes]:
        """See `Copy.__iter__`."""
        yield from self.header()
        yield from self.said()
        yield from self.last()

    def said(self) -> Iterator[bytes]:
        """What is kept, with the lines on what is not."""
        yield from self.first()
        waiting = sorted(self._excerpt.told.items())
        for place, one in enumerate(self._live):
            summary = one.sums_up and place == self._newest
            if not summary and (one.sums_up or one.number not in self._excerpt.kept):
                continue
            while waiting and waiting[0][0] <= one.number and not summary:
                yield from self.line(waiting.pop(0)[1], one.entry)
                self.copied += 1
            spelled, record = one.entry
            if one.number in self._excerpt.shortened:
                entry = (b"" if is_long(spelled) else spelled, self.short(record))
            else:
                entry = one.entry
            made = self.summary(one.entry) if summary else self.record(one.number, entry)
            for line in made:
                self.copied += 1
                yield line

    def after(self, other: Distilled) -> None:
        """Go on behind `other`, which is written into the same file before."""
        del other

    def header(self) -> Iterable[bytes]:
        """What a file begins with."""
        return ()

    def first(self) -> Iterable[bytes]:
        """What stands before what is kept."""
        return ()

    def last(self) -> Iterable[bytes]:
        """What stands behind all else: the title, where it gets one."""
        return ()

    def short(self, record: Record) -> Record:
        """A record with the results in it shortened, as `LiveRecord.short` has counted it."""
        return record

    @abstractmethod
    def record(self, number: int, entry: Entry) -> Iterable[bytes]:
        """A record of turn `number` as one of the copy."""

    @abstractmethod
    def summary(self, entry: Entry) -> Iterable[bytes]:
        """What a compaction has left, as something that is said: what was before it is remembered beside it."""

    @abstractmethod
    def line(self, text: str, before: Entry) -> Iterable[bytes]:
        """A line that nobody has said, before a record."""


class Merged(Copy):
    """Several of them as one: it begins as the first does, and what belongs beside that is beside it."""

    def __init__(self, parts: Sequence[Distilled]) -> None:
        self._parts = parts

    def __iter__(self) -> Iterator[bytes]:
        """See `Copy.__iter__`."""
        yield from self._parts[0].header()
        before: Distilled | None = None
        for part in self._parts:
            if before is not None:
                part.after(before)
            yield from part.said()
            before = part
        yield from self._parts[-1].last()
        self.copied = sum(part.copied for part in self._parts)

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """See `Copy.copy_beside`."""
        return self._parts[0].copy_beside(target, created)


def aside(text: str) -> str:
    """A text of ours in the place of something that a person has said: readers do not take it for that."""
    return f"{_BEGINS}{text}\n</{LEFT_OUT_TAG}>"


def is_aside(record: Record) -> bool:
    """Whether a record has such a text: it is nobody's copy, and as old as what stands beside it."""
    message = record.get("message")
    said = (message.get("content") or message.get("parts")) if isinstance(message, dict) else None
    if isinstance(said, list):
        said = said[0].get("text") if said and isinstance(said[0], dict) else None
    return isinstance(said, str) and said.startswith(_BEGINS)
