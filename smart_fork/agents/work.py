"""What the calls in an agent's records were given and gave back, in full: for a person who reads what was done."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from indexer.transcripts.model import Session
from smart_fork.agents.forms import Record, Told


class UsedTool(NamedTuple):
    """A call: its id, its tool as calls are described, and what the tool was given."""

    id: str
    name: str
    given: Mapping[str, Any] | str


class GivenBack(NamedTuple):
    """What came back from a call, a shell's exit status first; of an edit, what it has changed as a unified diff."""

    id: str
    output: str
    failed: bool = False
    patch: str = ""


class Work(ABC):
    """How the records of one agent tell of its tools. What is not as expected is left out."""

    @abstractmethod
    def used(self, record: Record) -> Iterator[UsedTool]:
        """The calls that a record makes."""

    @abstractmethod
    def gave(self, record: Record) -> Iterator[GivenBack]:
        """What came back from calls, as a record says it."""

    def told(self, record: Record) -> Told:
        """What of a record is neither text nor call, of an agent without forms."""
        return Told(outputs=tuple((one.id, one.output) for one in self.gave(record)))

    def thought(self, record: Record) -> str:
        """What the model thought, as a record says it; empty where it does not."""
        del record
        return ""

    def thoughts_between(self, session: Session) -> Mapping[int, str]:
        """What it thought that stands in records of their own, by the numbers of the turns that these stand before."""
        del session
        return {}


def patch_shown(display: object) -> str:
    """The unified diff in what a program shows of an edit; empty where there is none."""
    patch = display.get("fileDiff") if isinstance(display, Mapping) else None
    return patch if isinstance(patch, str) else ""


def in_paragraphs(texts: Iterable[object]) -> str:
    """Those of these that are texts, one below the other."""
    return "\n\n".join(said for text in texts if isinstance(text, str) and (said := text.strip()))
