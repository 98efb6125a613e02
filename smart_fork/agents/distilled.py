"""A copy that leaves something out, as lines: what all agents' have in common."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Iterator

from indexer.transcripts.boilerplate import LEFT_OUT_TAG
from smart_fork.agents.copier import Copy, Entry
from smart_fork.agents.excerpt import Excerpt, LiveRecord


class Distilled(Copy):
    """The lines of a copy that leaves something out; an agent says how its records become those of the copy."""

    def __init__(self, live: Iterable[LiveRecord], excerpt: Excerpt, newest: int | None) -> None:
        self._live, self._excerpt, self._newest = live, excerpt, newest
        self.copied = 0

    def __iter__(self) -> Iterator[bytes]:
        """See `Copy.__iter__`."""
        yield from self.first()
        waiting = sorted(self._excerpt.told.items())
        for place, one in enumerate(self._live):
            summary = one.sums_up and place == self._newest
            if not summary and (one.sums_up or one.number not in self._excerpt.kept):
                continue
            while waiting and waiting[0][0] <= one.number and not summary:
                yield from self.line(waiting.pop(0)[1], one.entry)
                self.copied += 1
            made = self.summary(one.entry) if summary else self.record(one.number, one.entry)
            for line in made:
                self.copied += 1
                yield line
        yield from self.last()

    def first(self) -> Iterable[bytes]:
        """What stands before all else."""
        return ()

    def last(self) -> Iterable[bytes]:
        """What stands behind all else: the title, where it gets one."""
        return ()

    @abstractmethod
    def record(self, number: int, entry: Entry) -> Iterable[bytes]:
        """A record of turn `number` as one of the copy."""

    @abstractmethod
    def summary(self, entry: Entry) -> Iterable[bytes]:
        """What a compaction has left, as something that is said: what was before it is remembered beside it."""

    @abstractmethod
    def line(self, text: str, before: Entry) -> Iterable[bytes]:
        """A line that nobody has said, before a record."""


def aside(text: str) -> str:
    """A text of ours in the place of something that a person has said: readers do not take it for that."""
    return f"<{LEFT_OUT_TAG}>\n{text}\n</{LEFT_OUT_TAG}>"
