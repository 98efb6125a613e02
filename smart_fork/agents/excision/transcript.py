"""A transcript: a log, line by line, from which turns can be removed (a cut); and the fields that no cut changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from dataclasses import field
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from indexer.json_values import Value
from indexer.lazy_compilation import dataclass
from indexer.transcripts.model import Role, Session

#: False while only prompts get previews (see `Transcript.only_prompts_previewed`).
ALL_PREVIEWED = ContextVar("all turns have previews", default=True)
#: The name of the transcript's agent.
Tool = str


class Call(NamedTuple):
    """A tool call in a transcript, without its input."""

    id: str
    name: str


class Result(NamedTuple):
    """A tool result in a transcript, without its output: only the id of its call."""

    tool_use_id: str


class LinePlace(NamedTuple):
    """The position of a line: bytes `start` to `end` of `path`, without the newline."""

    path: Path
    start: int
    end: int


class FileVersion(NamedTuple):
    """The version of a file: its size, time and inode. They differ if the file was changed."""

    size: int
    mtime_ns: int
    inode: int


@dataclass(frozen=True, slots=True)
class TranscriptTurn:
    """One line of a transcript. Its `id` is ``line-N`` if the line has none.

    * `aliases`: the ids of further records on the line.
    * `links`: the ids that the line names, its parent's first.
    * `says`: names for the line's content, such as ``turn:ID`` and ``call:ID``.
    * `repeats`: such names in the `says` of lines that this bookkeeping line only repeats: it is removed with them.
    * `key`: a name of the record that is the same in all copies of the record.
    * `inherited`: True if the line is not in the session's own file, but in the file that this one continues.
    * `apart`: True if that file is an earlier file of the same session, not of the session that it was forked from.
    * `within`: True if the turn is part of another line, so that an edit of that line removes the turn.
    """

    #: In `repeats`: the line may repeat any turn, so every cut removes it.
    ANY: ClassVar[str] = "any turn"

    id: str
    parent_id: str | None = None
    role: Role = "system"
    timestamp: str = ""
    preview: str = ""
    token_est: int = 0
    tool_calls: tuple[Call, ...] = ()
    tool_results: tuple[Result, ...] = ()
    kept: bytes | LinePlace = b""
    meta: Mapping[str, Any] = field(default_factory=dict)
    aliases: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    repeats: tuple[str, ...] = ()
    says: tuple[str, ...] = ()
    key: str = ""
    prompt: bool = False
    inherited: bool = False
    apart: bool = False
    within: bool = False

    @property
    def is_line(self) -> bool:
        """True if the turn is a whole line of the session's own file, which a cut can drop."""
        return not (self.inherited or self.within)

    @property
    def is_parents(self) -> bool:
        """True if the turn belongs to the session that the transcript's session was forked from."""
        return self.inherited and not self.apart

    @property
    def raw(self) -> bytes:
        """The line verbatim, without its newline. It is read from the file if it is not in memory."""
        return next(self.raws((self,)))

    @property
    def place(self) -> LinePlace | None:
        """The position of the line in a file; `None` if the line is kept in memory instead."""
        return None if isinstance(self.kept, bytes) else self.kept

    @property
    def told_again(self) -> str:
        """The id of the message that this bookkeeping line repeats, such as an event for the screen; else empty."""
        named = (key.removeprefix("turn:") for key in self.repeats if key.startswith("turn:"))
        return next(named, "") if self.role == "system" else ""

    @staticmethod
    def raws(turns: Iterable[TranscriptTurn]) -> Iterator[bytes]:
        """Yield the verbatim line of each turn, without its newline. Each file is opened once."""
        with ExitStack() as stack:
            files: dict[Path, IO[bytes]] = {}
            for turn in turns:
                if isinstance(turn.kept, bytes):
                    yield turn.kept
                    continue
                path, start, end = turn.kept
                if path not in files:
                    files[path] = stack.enter_context(path.open("rb"))
                files[path].seek(start)
                yield files[path].read(end - start)


@dataclass(frozen=True, slots=True)
class Transcript:
    """A log from which turns can be removed. `composer_id` names one session of a file with several.

    With `padded`, blanks replace the bytes of removed text, so that all other bytes keep their positions. `numbers` are
    the turns' message numbers, if known; several turns can have one number, and some have none. `conversation` is the
    session, read from the same log, whose messages they count.
    """

    #: The tool of an unknown agent.
    UNKNOWN: ClassVar[Tool] = "unknown"

    tool: Tool
    source_path: Path
    session_id: str
    turns: tuple[TranscriptTurn, ...]
    composer_id: str = ""
    stamp: FileVersion | None = None
    padded: bool = False
    base: str = ""
    numbers: tuple[int | None, ...] = ()
    conversation: Session | None = None

    @staticmethod
    @contextmanager
    def only_prompts_previewed() -> Iterator[None]:
        """Within this context, load transcripts with previews of prompts only, because masking tool output is slow."""
        before = ALL_PREVIEWED.set(False)
        try:
            yield
        finally:
            ALL_PREVIEWED.reset(before)

    @property
    def own(self) -> tuple[TranscriptTurn, ...]:
        """The turns in the session's own file."""
        return tuple(turn for turn in self.turns if not turn.inherited)

    @property
    def tokens(self) -> int:
        """The estimated tokens of all turns."""
        return sum(turn.token_est for turn in self.turns)


@dataclass(frozen=True, slots=True, order=True)
class CutWarning(Value):
    """A warning that a cut (removal of turns) would break something at the turn `turn_id`."""

    turn_id: str
    reason: str


#: The limit of nesting, deeper than any record.
MAX_DEPTH = 64
#: Fields that are never searched or changed.
FIXED_FIELDS = frozenset({
    "uuid", "parentUuid", "logicalParentUuid", "leafUuid", "sessionId", "session_id", "id", "type", "role", "model",
    "timestamp", "signature", "encrypted_content", "tool_use_id", "call_id", "toolUseID", "parentToolUseID", "data",
    "requestId", "messageId", "thread_id", "turn_id", "name", "namespace", "version", "cwd", "gitBranch", "ordinal",
    "media_type", "composerId", "bubbleId", "toolCallId", "sourceToolAssistantUUID", "promptId", "base_instructions",
    "messageUuid", "parentId", "agentId", "interactionId", "apiCallId", "usageId", "reasoningOpaque",
    "encryptedContent", "transcriptPath", "transcript_path", "gitRoot", "headCommit",
    "sessionID", "messageID", "parentID", "callID", "message_id", "aggregate_id", "project_id",
    "projectID", "providerID", "modelID",
})  # fmt: skip
#: The fields of `FIXED_FIELDS` that are paths.
PATH_FIELDS = frozenset({"cwd", "gitRoot", "transcriptPath", "transcript_path"})


def is_fixed_field(name: str, value: object) -> bool:
    """Return True for a field that cuts never search or change: ids, signatures, and ``data`` that is no object."""
    return (name in FIXED_FIELDS and not (name == "data" and isinstance(value, dict))) or name.lower().endswith(
        "signature"
    )


def searchable_texts(
    value: object, is_left_out: Callable[[str, object], bool] = is_fixed_field, depth: int = 0
) -> Iterator[str]:
    """Yield every text in a decoded record, except in fields for which `is_left_out` returns True."""
    if isinstance(value, str):
        yield value
    elif depth < MAX_DEPTH and isinstance(value, dict):
        for key, part in value.items():
            if not is_left_out(key, part):
                yield from searchable_texts(part, is_left_out, depth + 1)
    elif depth < MAX_DEPTH and isinstance(value, list):
        for part in value:
            yield from searchable_texts(part, is_left_out, depth + 1)
