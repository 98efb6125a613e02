"""Copies of one agent's sessions: where a copy is, its lines, and the choice of turns for a copy within a budget."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path
from typing import Any, ClassVar

from indexer.files import new_file, remove
from indexer.paths import private_dir
from indexer.shapes import dataclass
from indexer.transcripts.boilerplate import LEFT_OUT_TAG
from indexer.transcripts.lines import is_long
from indexer.transcripts.model import AgentName, Session, Turn
from smart_fork.errors import ForkRefused
from smart_fork.system.processes import Machine

#: Fields of a record that are not text for a model: ids, signatures, and encrypted data.
_NO_TEXT = frozenset({
    "type", "id", "role", "status", "call_id", "tool_use_id", "signature", "data", "encrypted_content",
    "thoughtSignature",
})  # fmt: skip
#: An estimate of an image's size in characters, independent of its file's size.
IMAGE_CHARACTERS = 6_000
_IMAGES = frozenset({"image", "input_image", "image_url", "inlineData", "document"})
#: No record is deeper.
_DEPTH = 64
#: The characters kept at either end of a shortened result; at either end of one of many texts; of the line between.
END_CHARACTERS, _LEAST_END, _LINE = 200, 20, 80
#: The fields of a result with its text.
_TEXTS = frozenset({"text", "output", "content", "error", "functionResponse", "response"})


@dataclass(frozen=True, slots=True)
class LiveRecord:
    """A record that the agent remembers: its turn's number, and the characters of it that the model is sent. `short`
    are the characters with its results shortened, if fewer. `sums_up` marks a compaction's summary.
    """

    number: int
    entry: tuple[bytes, dict[str, Any]]
    characters: int = 0
    sums_up: bool = False
    short: int | None = None


@dataclass(frozen=True, slots=True)
class Excerpt:
    """The turns `kept` in the copy, with a line before some of them about the dropped ones.

    The newest compaction's summary up to `end`, the last turn, is always copied. `tokens` are the sizes of all turns.
    Long results of the turns in `shortened` are cut, with a note.
    """

    kept: frozenset[int]
    end: int
    told: Mapping[int, str] = field(default_factory=dict)
    tokens: tuple[int, ...] = ()
    shortened: frozenset[int] = frozenset()


def newest_summary(live: Iterable[LiveRecord], end: int) -> int | None:
    """Return the position of the newest compaction's summary up to turn `end`."""
    return max((place for place, one in enumerate(live) if one.sums_up and one.number <= end), default=None)


def shortened(result: Any, kind: str = "text", end: int = END_CHARACTERS, depth: int = 0) -> Any:
    """Return a tool result with both ends of each text, and a text of that `kind` for each image."""
    if isinstance(result, str):
        gone = len(result) - 2 * end
        if gone <= _LINE:
            return result
        return f"{result[:end]}\n[… {gone:,} characters dropped from this copy …]\n{result[-end:]}"
    if depth >= _DEPTH:
        return result
    if isinstance(result, list):
        each = max(_LEAST_END, end // max(1, len(result)))
        return [shortened(part, kind, each, depth + 1) for part in result]
    if isinstance(result, dict):
        if str(result.get("type")) in _IMAGES or "inlineData" in result:
            return {"type": kind, "text": "[an image, dropped from this copy]"}
        return {
            name: shortened(part, kind, end, depth + 1) if name in _TEXTS else part for name, part in result.items()
        }
    return result


def characters(value: Any, depth: int = 0) -> int:
    """Return how many characters of a value a model reads."""
    if isinstance(value, str):
        return len(value)
    if depth >= _DEPTH:
        return 0
    if isinstance(value, list):
        return sum(characters(part, depth + 1) for part in value)
    if isinstance(value, dict):
        if str(value.get("type")) in _IMAGES or "inlineData" in value:
            return IMAGE_CHARACTERS
        return sum(len(name) + characters(part, depth + 1) for name, part in value.items() if name not in _NO_TEXT)
    return 0 if value is None else 4


Record = dict[str, Any]
#: A record, with its bytes in the log.
Entry = tuple[bytes, Record]


@dataclass(frozen=True, slots=True)
class NewSession:
    """The new session of a copy. `cwd` is its directory, if it differs from the source's."""

    id: str
    cwd: Path | None
    now: datetime
    title: str = ""


@dataclass(frozen=True, slots=True)
class Written:
    """A written copy: its path, all files made for it (its own last), and warnings for people.

    `forget` removes the parts that are not files.
    """

    path: Path
    created: tuple[Path, ...]
    warnings: tuple[str, ...] = ()
    forget: Callable[[], object] | None = None


class Copy(ABC):
    """The lines of one copy, made while they are read. After the last line, `copied` is the number of records."""

    copied: int = 0

    @abstractmethod
    def __iter__(self) -> Iterator[bytes]:
        """Yield the lines without newlines, the title last if there is one.

        Raises:
            NotFound: A session that this one was forked from is gone.
            ForkRefused: The log was rewritten meanwhile.
        """

    def copy_beside(self, target: Path, created: list[Path]) -> list[str]:
        """Copy the files beside the log, after its lines are written; return what is missing, in words.

        New files are added to `created`. The caller deletes these after a failure.

        Raises:
            OSError: A file cannot be copied.
            ForkRefused: Another file of the same name exists.
        """
        return []


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


def compacted_at(turns: Sequence[Turn]) -> int:
    """Return the position of the last compaction's summary, the only system turn that loads tokens."""
    return max((i for i, turn in enumerate(turns) if turn.role == "system" and turn.loaded), default=0)


class Copier(ABC):
    """Copies one agent's sessions."""

    name: AgentName
    #: The class of its copies within a budget.
    within_budget: ClassVar[type[Distilled] | None] = None

    @abstractmethod
    def place(self, source: Path, new: NewSession) -> Path:
        """Return the path at which the agent finds the copy from its directory, or found the `source`."""

    @abstractmethod
    def up_to(self, session: Session, end: int, new: NewSession) -> Copy:
        """Copy turns 0 to `end` of a session."""

    def short(self, record: Record) -> Record:
        """Return a record with its results shortened."""
        return record

    @abstractmethod
    def of_records(self, session: Session, records: Iterable[Entry], new: NewSession) -> Copy:
        """Copy these records of a session, in file order."""

    def live(self, session: Session) -> Iterator[LiveRecord]:
        """Yield the records that the agent remembers of a session, and those forgotten by compactions, in order.

        Raises:
            NotFound: A session that this one was forked from is gone.
            ForkRefused: The log was rewritten meanwhile, or turns of this agent's sessions cannot be dropped.
        """
        raise ForkRefused(
            f"Sessions of {self.name} can only be forked whole",
            "Fork it without a budget, or at an earlier message (at).",
        )

    def distilled(self, session: Session, excerpt: Excerpt, new: NewSession) -> Copy:
        """Copy the turns of a session that an `excerpt` keeps.

        Raises:
            ForkRefused: Turns of this agent's sessions cannot be dropped.
        """
        if self.within_budget is None:
            self.live(session)
            raise NotImplementedError
        return self.within_budget(self, session, excerpt, new)

    def write(self, copy: Copy, target: Path, new: NewSession, machine: Machine, last: Callable[[], object]) -> Written:
        """Write a copy to `target`, and call `last` before it appears there.

        The file appears when it is complete; an error leaves nothing behind.

        Raises:
            ForkRefused: A session of that id exists, or the source was rewritten meanwhile.
            ProgramFailed: The agent's own program, run on `machine`, refuses the copy.
            OSError: The copy cannot be written.
        """
        created: list[Path] = []
        private_dir(target.parent)
        with _undone_on_failure(created), new_file(target) as file:
            file.writelines(line + b"\n" for line in copy)
            warnings = copy.copy_beside(target, created)
            last()
        return Written(target, (*created, target), tuple(warnings))


@contextlib.contextmanager
def _undone_on_failure(created: list[Path]) -> Iterator[None]:
    """Delete the `created` files after a failure.

    Raises:
        ForkRefused: Instead of `FileExistsError`.
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
