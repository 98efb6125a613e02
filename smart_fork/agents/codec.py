"""An agent's records as items, and back: each agent says once where in a record its texts, calls and results are."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, ClassVar, NamedTuple

from indexer.transcripts.items import GivenBack, Item, UsedTool
from indexer.transcripts.model import Session

Record = dict[str, Any]


class Told(NamedTuple):
    """The parts of a record that are neither text nor call: results by their calls' ids, and the numbers of thoughts,
    of images, and of agents that it starts.
    """

    outputs: tuple[tuple[str, str], ...] = ()
    thoughts: int = 0
    images: int = 0
    agents: int = 0


class Codec(ABC):
    """One agent's records. Unexpected parts of a record are skipped."""

    #: The names of its tools in descriptions of calls, where they differ from its own.
    tools: ClassVar[Mapping[str, str]] = MappingProxyType({})
    #: The tools that start another agent.
    starting: ClassVar[tuple[str, ...]] = ()

    #: The types of the objects that hold thoughts: some are signed as they are.
    thoughts: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    def decode(self, record: Record) -> Item:
        """Return what a record says."""

    def used(self, record: Record) -> Iterator[UsedTool]:
        """Yield the calls of a record, their tools by the names in descriptions."""
        for call in self.decode(record).calls:
            if isinstance(call.given, dict | str):
                yield call._replace(name=self.tools.get(call.name, call.name))

    def gave(self, record: Record) -> Iterator[GivenBack]:
        """Yield the results in a record."""
        yield from self.decode(record).results

    def calls(self, record: Record) -> Iterator[UsedTool]:
        """Yield the calls of a record as they are."""
        yield from self.decode(record).calls

    def told(self, record: Record) -> Told:
        """Count what of a record is neither text nor call."""
        item = self.decode(record)
        outputs = tuple((one.id, one.output) for one in item.results)
        return Told(outputs, len(item.thoughts), item.images, sum(call.name in self.starting for call in item.calls))

    def thought(self, record: Record) -> str:
        """Return the thoughts in a record; empty without any."""
        return in_paragraphs(self.decode(record).thoughts)

    def thoughts_between(self, session: Session) -> Mapping[int, str]:
        """Return the thoughts in records of their own, by the numbers of the turns that follow them."""
        del session
        return {}

    def _is_thought(self, value: Mapping[str, Any]) -> bool:
        return value.get("type") in self.thoughts


class MessageCodec(Codec):
    """Records whose message has a list of parts: each part says, calls, answers or thinks."""

    #: The field of a message that has its parts.
    field: ClassVar[str]

    def parts(self, record: Record) -> list[Record]:
        """Return the parts of a record's message."""
        message = record.get("message")
        return dicts_in(message.get(self.field)) if isinstance(message, dict) else []

    def changed(self, record: Record, change: Callable[[Record], Record | None]) -> Record | None:
        """Return the record with each part changed, itself if none is; `None` if no part is left."""
        old = self.parts(record)
        new = [one for part in old if (one := change(part)) is not None]
        if new == old:
            return record
        return record | {"message": record["message"] | {self.field: new}} if new else None

    def without_thoughts(self, record: Record, of: Callable[[Record], bool]) -> Record | None:
        """Return the record without those of its thoughts for which `of` is true; `None` if nothing is left."""
        return self.changed(record, lambda part: None if self._is_thought(part) and of(part) else part)


def dicts_in(content: object) -> list[Record]:
    """Return the objects in a list; none if it is not a list."""
    return [one for one in content if isinstance(one, dict)] if isinstance(content, list) else []


def only(record: Record, names: Collection[str]) -> Record:
    """Return the fields of a record that have these names."""
    return {name: value for name, value in record.items() if name in names}


def patch_shown(display: object) -> str:
    """Return the unified diff that a program shows of an edit; empty without one."""
    patch = display.get("fileDiff") if isinstance(display, Mapping) else None
    return patch if isinstance(patch, str) else ""


def in_paragraphs(texts: Iterable[object]) -> str:
    """Join the texts among these, without blanks around them."""
    return "\n\n".join(said for text in texts if isinstance(text, str) and (said := text.strip()))
