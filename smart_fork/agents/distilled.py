"""A copy within a budget, as lines: the common part of all agents."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from indexer.transcripts.boilerplate import LEFT_OUT_TAG
from indexer.transcripts.lines import is_long
from indexer.transcripts.model import Session
from smart_fork.agents.copier import Copier, Copy, Entry, NewSession, Record
from smart_fork.agents.excerpt import Excerpt, newest_summary

_BEGINS = f"<{LEFT_OUT_TAG}>\n"


class Distilled(Copy):
    """The lines of a copy without some turns. An agent defines how its records become those of the copy."""

    def __init__(self, copier: Copier, source: Session, excerpt: Excerpt, new: NewSession) -> None:
        self._copier, self._source, self._excerpt, self._new = copier, source, excerpt, new
        self._live, self._newest = copier.live(source), newest_summary(copier.live(source), excerpt.end)
        self.copied = 0

    def __iter__(self) -> Iterator[bytes]:
        """See `Copy.__iter__`."""
        yield from self.header()
        yield from self.said()
        yield from self.last()

    def said(self) -> Iterator[bytes]:
        """Yield the kept records, with lines for the dropped ones."""
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
                entry = (b"" if is_long(spelled) else spelled, self._copier.short(record))
            else:
                entry = one.entry
            made = self.summary(one.entry) if summary else self.record(one.number, entry)
            for line in made:
                self.copied += 1
                yield line

    def after(self, other: Distilled) -> None:
        """Continue after `other`, which is written into the same file before."""

    def header(self) -> Iterable[bytes]:
        """Return the first lines of a file."""
        return ()

    def first(self) -> Iterable[bytes]:
        """Return the lines before the kept records."""
        return ()

    def last(self) -> Iterable[bytes]:
        """Return the last lines: the title, if there is one."""
        return ()

    @abstractmethod
    def record(self, number: int, entry: Entry) -> Iterable[bytes]:
        """Return a record of turn `number` as lines of the copy."""

    @abstractmethod
    def summary(self, entry: Entry) -> Iterable[bytes]:
        """Return a compaction's summary as a message: the turns before it may be kept beside it."""

    @abstractmethod
    def line(self, text: str, before: Entry) -> Iterable[bytes]:
        """Return a line of our own before a record."""


class Merged(Copy):
    """Several copies as one. It begins like the first, with that one's side files."""

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
    """Return a text of our own in the place of a prompt. Readers do not take it for a person's."""
    return f"{_BEGINS}{text}\n</{LEFT_OUT_TAG}>"


def is_aside(record: Record) -> bool:
    """Return whether a record is such a text. It is no copy, and as old as the record beside it."""
    message = record.get("message")
    said = (message.get("content") or message.get("parts")) if isinstance(message, dict) else None
    if isinstance(said, list):
        said = said[0].get("text") if said and isinstance(said[0], dict) else None
    return isinstance(said, str) and said.startswith(_BEGINS)
