"""A transcript as it is cut: one `TranscriptTurn` a line, with the bytes of that line, whoever wrote it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, NamedTuple

from indexer.shapes import dataclass
from indexer.transcripts.model import Role
from indexer.values import Value

#: The name of the agent whose transcript it is.
Tool = str
#: It is not known whose.
UNKNOWN: Tool = "unknown"


class Call(NamedTuple):
    """A tool call of the agent."""

    id: str
    name: str


class Result(NamedTuple):
    """What came back from a call."""

    tool_use_id: str


class Place(NamedTuple):
    """Where a line stands: bytes `start` to `end` of `path`, without its newline."""

    path: Path
    start: int
    end: int


class Stamp(NamedTuple):
    """What tells that a file is still the one that was read."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """One line of a transcript. Lines without an id are called ``line-N``.

    `aliases` are the ids of further records on the same line. `links` are the records that it names, its parent first.
    `repeats` are keys of what a line of bookkeeping only repeats: it goes when that goes. `says` are the keys under
    which this one can be repeated. `key` is the same in every copy of this record. `inherited` says that it stands in
    the file of the session that this one was forked from.
    """

    id: str
    parent_id: str | None = None
    role: Role = "system"
    timestamp: str = ""
    preview: str = ""
    token_est: int = 0
    tool_calls: tuple[Call, ...] = ()
    tool_results: tuple[Result, ...] = ()
    kept: bytes | Place = b""
    meta: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    key: str = ""
    prompt: bool = False
    inherited: bool = False

    @property
    def raw(self) -> bytes:
        """The verbatim line without its newline; read again from the file, where that is where it is kept."""
        if isinstance(self.kept, bytes):
            return self.kept
        path, start, end = self.kept
        with path.open("rb") as file:
            file.seek(start)
            return file.read(end - start)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A transcript that can be cut. `composer_id` tells the conversations of one file apart. `padded` says that
    cut lines leave blanks behind.

    `numbers` are those of its turns, where they are known: several lines may be one message, and some are none.
    """

    tool: Tool
    source_path: Path
    session_id: str
    turns: tuple[TranscriptTurn, ...]
    composer_id: str = ""
    stamp: Stamp | None = None
    padded: bool = False
    base: str = ""
    numbers: tuple[int | None, ...] = ()

    @property
    def own(self) -> tuple[TranscriptTurn, ...]:
        """The turns in its own file."""
        return tuple(turn for turn in self.turns if not turn.inherited)

    @property
    def tokens(self) -> int:
        """About how many tokens all turns are."""
        return sum(turn.token_est for turn in self.turns)


@dataclass(frozen=True, slots=True, order=True)
class CutWarning(Value):
    """What a cut would break."""

    turn_id: str
    reason: str


def told_again(turn: TranscriptTurn) -> str:
    """The id of the message that an event only tells again; empty for all else.

    Either of the two may be the one that a reader is shown.
    """
    named = (key.removeprefix("turn:") for key in turn.repeats if key.startswith("turn:"))
    return next(named, "") if turn.role == "system" else ""
