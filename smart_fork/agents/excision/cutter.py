"""The base of cutters: objects that load an agent's logs line by line, so that turns can be removed (a cut).

An agent's cutter must define only `Cutter.detect` and `Cutter.load`.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from sys import intern
from typing import IO, Any, NamedTuple

from indexer.masking import NOTHING, Masked, mask, shorten
from indexer.safe_files import DISK, Disk, open_regular, replace_file
from indexer.transcripts.lines import GLANCE_GAP_BYTES, Line, current_bound, decode_line
from indexer.transcripts.model import Item, Role
from smart_fork.agents.description import AgentFacet
from smart_fork.agents.excision import titles, transcript
from smart_fork.agents.excision.transcript import CutWarning, FileVersion, Tool, Transcript, TranscriptTurn
from smart_fork.agents.record_reader import LineFold
from smart_fork.errors import ForkRefused, NotFound, Usage, advice
from smart_fork.json_edit import respelled


class Files:
    """Reads, replaces and deletes transcripts (logs from which turns are removed) that are plain files."""

    def has(self, path: Path) -> bool:
        """Return True if the transcript exists."""
        return path.is_file()

    def stamp(self, path: Path, disk: Disk = DISK) -> FileVersion | None:
        """Return the version of a transcript, by which a later change is detected; `None` without a transcript."""
        return stamp_of(now) if (now := disk.look(path)) else None

    def content(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            yield from pieces(file.read)

    def begins_with(self, path: Path, before: Iterable[bytes]) -> bool:
        """Return True if a transcript still begins with all the bytes `before`."""
        with path.open("rb") as file:
            return all(piece == file.read(len(piece)) for piece in before)

    def replace(self, path: Path, pieces: Iterable[bytes], expected: FileVersion | None, disk: Disk = DISK) -> None:
        """Replace a transcript, completely or not at all, if it still has the version `expected`.

        Raises:
            ForkRefused: The transcript has changed.
            OSError: The transcript could not be written, and is unchanged.
        """

        def unchanged() -> None:
            if expected is not None and self.stamp(path, disk) != expected:
                raise ForkRefused(
                    f"The transcript changed during reading: {path}", "Its agent is working. End it and try again."
                )

        replace_file(path, pieces, like_before=True, ready=unchanged, disk=disk)

    def remove(self, path: Path) -> None:
        """Delete a transcript."""
        path.unlink(missing_ok=True)

    def finish(self, path: Path) -> None:
        """Complete a `replace` during which the process was killed. A plain file never needs that."""


class Cutter(Files, AgentFacet, ABC):
    """Loads one agent's transcripts (logs), so that turns can be removed."""

    #: The suffixes of its files.
    suffixes: tuple[str, ...] = (".jsonl",)
    #: True if text that a team withdraws is cut out of copies; else the copies are written again.
    withdraws = True
    #: Files in its home with the prompts of all sessions.
    histories: tuple[str, ...] = ("history.jsonl",)

    @property
    def tool(self) -> Tool:
        """The agent's name."""
        return self.agent

    @abstractmethod
    def detect(self, path: Path) -> bool:
        """Return True if the file is one of this agent's transcripts."""

    @abstractmethod
    def load(self, path: Path, composer: str = "") -> Transcript:
        """Load the session in `path`. In a file with several sessions, `composer` names the session.

        Raises:
            NotFound: The session, or a session that it was forked from, does not exist.
            OSError: The file cannot be read.
        """

    def load_and_feed(self, path: Path, composer: str, fold: LineFold | None) -> Transcript:
        """Load the session in `path`, and feed `fold` (another reader) the lines, so that the log is read only once."""
        before = _FED.set(fold)
        try:
            return self.load(path, composer)
        finally:
            _FED.reset(before)

    def newest(self) -> Path | None:
        """Return the newest transcript, for commands that name none; `None` if the logs do not tell.

        Raises:
            NotFound: There is no transcript.
        """
        return None

    def conversations(self, path: Path) -> list[tuple[str, int]]:
        """Return the id and the number of turns of each session in a file with several.

        Raises:
            Usage: Each file of this agent has one session.
        """
        raise Usage(
            f"One file has one conversation with {self.tool}: {path}",
            advice("List its turns without --conversations.", tool="List its turns."),
        )

    def public(self) -> Mapping[str, object]:
        """Return the agent's objects, by name, that `smart_fork.excise` exports because existing scripts use them."""
        return {}

    def written(self, path: Path) -> Path:
        """Return the file that a cut of the transcript at `path` writes, such as one beside a database."""
        return path

    def of_others(self, session: Transcript) -> list[bytes]:
        """Return the lines of other sessions in the same file, to write them again unchanged with this one."""
        return []

    def relinked(self, turns: Sequence[TranscriptTurn], gone: Collection[str]) -> Edits:
        """Return edits of kept lines that name a removed record: they name the nearest kept record instead."""
        return {}

    def without_repetitions(self, session: Transcript, gone: Collection[str]) -> Edits:
        """Return edits of kept lines that quote removed records, such as lists of messages: the quotations go."""
        return {}

    def is_said(self, turn: TranscriptTurn) -> bool:
        """Return True if a line is part of the conversation; False for bookkeeping."""
        return turn.role != "system"

    def numbered(self, turns: Sequence[TranscriptTurn], numbers: Sequence[int | None]) -> Sequence[int | None]:
        """Return the message number of each line: a line that repeats a message gets the message's number."""
        return numbers

    def holds(self, path: Path, keys: Collection[str]) -> bool:
        """Return True if a record in the transcript's own file has one of `keys`, names that all its copies share."""
        try:
            with Transcript.only_prompts_previewed():
                return any(turn.key in keys for turn in self.load(path).own)
        except (NotFound, OSError):
            return False

    def may_have_others(self, path: Path) -> bool:
        """Return False if the beginning of a transcript shows that no record is another session's, to skip the rest."""
        return True

    def files_of(self, path: Path) -> list[Path]:
        """Return the files beside a transcript that belong to it."""
        return []

    def stores(self, session_id: str) -> list[Path]:
        """Return the agent's other files and folders with a session's text, to warn that a cut does not change them."""
        return []

    def apart(self) -> list[Path]:
        """Return the agent's files outside its folder that may have text of sessions, to search for removed text."""
        return []

    def beside(self, path: Path, removed: Sequence[TranscriptTurn]) -> list[Path]:
        """Return the files beside a transcript that belong to removed records, such as long results: they go too."""
        return []

    def pieces(self, line: bytes) -> list[bytes]:
        """Return the records on a line of a snapshot, each with the bytes that it has as `TranscriptTurn.raw`."""
        return [line]

    def revised(self, path: Path, keys: Collection[str]) -> Mapping[Path, bytes]:
        """Return the new content, by path, of each file beside a transcript that repeats records with these keys."""
        return {}

    def forget(self, session: Transcript) -> None:
        """Delete data that the agent derived from a session and keeps elsewhere. A rollback does not restore it.

        Raises:
            ForkRefused: The data cannot be deleted now.
        """

    def others(self, path: Path) -> list[Path]:
        """Return the session's other logs, which may have its records too, such as turns from before a rewind."""
        return []

    def heirs(self, paths: Collection[Path], first: int = 0) -> list[Path]:
        """Return the logs of forks, and of their forks, that refer to records in `paths` from number `first` on."""
        return []

    def without_header(self, session: Transcript) -> list[CutWarning]:
        """Return a warning if the log lacks its first record, which the agent needs to load the session; else empty."""
        return []


#: The fold that is fed with the lines of its log while these are read for a cut.
_FED: ContextVar[LineFold | None] = ContextVar("fold", default=None)


PREVIEW_CHARACTERS = 120
#: The characters of a longer text that are masked for a preview, unless most of them are secret: no secret is nearly
#: this long.
_MASKED_CHARACTERS = 1 << 11
#: The number of characters by which a repeated text is recognized.
HEAD_CHARACTERS = 80
#: The most damaged lines at the beginning of a transcript, as a power failure leaves them.
DAMAGED_LINES = 20
_PIECE, _OVERLAP = 1 << 20, 512


class RawLine(NamedTuple):
    """A line that is not blank, with its JSON objects: usually one; none if the line cannot be decoded."""

    number: int
    place: transcript.LinePlace
    objects: tuple[dict[str, Any], ...]


def raw_lines(file: IO[bytes], path: Path) -> Iterator[RawLine]:
    """Yield the lines of an open file, without blank ones, up to the limit that `current_bound` sets for reading."""
    end, bound = 0, current_bound.get() if transcript.ALL_PREVIEWED.get() else None
    fold = fed if (fed := _FED.get()) and fed.path == path else None
    for number, raw in enumerate(file, start=1):
        if bound and bound.stops(path, end):
            if fold:
                fold.unread = max(0, os.fstat(file.fileno()).st_size - end)
            return
        start, end = end, end + len(raw)
        if raw.isspace():
            continue
        objects, reason = decode_line(raw)
        ended = raw.endswith(b"\n")
        if fold and (ended or not reason):  # else it is still being written
            fold.take(Line(number, source, record) for source, record in objects)
        place = transcript.LinePlace(path, start, end - 1 if ended else end)
        yield RawLine(number, place, tuple(record for _, record in objects))


def opened(path: Path) -> tuple[IO[bytes], FileVersion]:
    """Return an open file and its version, taken before the first byte is read.

    Raises:
        NotFound: The file does not exist.
        OSError: The file cannot be opened.
    """
    try:
        file = open_regular(path)
    except FileNotFoundError as error:
        raise NotFound(f"No such transcript: {path}") from error
    return file, stamp_of(os.fstat(file.fileno()))


def first_record(path: Path) -> dict[str, Any]:
    """Return the first JSON object in a file, after a few damaged lines at most; empty if there is none."""
    try:
        file, _ = opened(path)
    except (NotFound, OSError):
        return {}
    with file:
        for _ in range(DAMAGED_LINES):
            raw = file.readline(GLANCE_GAP_BYTES)
            if objects := decode_line(raw)[0]:
                return objects[0][1]
            if not raw.endswith(b"\n"):  # torn, or too long for any record
                break
    return {}


def pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    """Yield in pieces the rest of the open file that has the method `read`."""
    return iter(partial(read, _PIECE), b"")


def overlapping(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield `pieces` of a file, each after a copy of the last one's end, so that a search finds words across ends."""
    rest = b""
    for piece in pieces:
        yield rest + piece
        rest = piece[-_OVERLAP:]


def stamp_of(info: os.stat_result) -> FileVersion:
    """Return the version of a file (size, time and inode) from its `os.stat` result."""
    return FileVersion(info.st_size, info.st_mtime_ns, info.st_ino)


def preview(text: str, calls: Sequence[str] = (), results: Sequence[str] = (), *, prompt: bool = False) -> Masked:
    """Return a masked preview, of about 120 characters, of a line's text, calls (names) and results (outputs)."""
    if not prompt and not transcript.ALL_PREVIEWED.get():
        return NOTHING
    parts = [text, *(f"[tool_use: {name}]" for name in calls), *(f"[tool_result] {said}" for said in results)]
    said = " ".join(parts)
    masked = mask(said[:_MASKED_CHARACTERS])
    if len(said) > _MASKED_CHARACTERS > 2 * len(masked):
        masked = mask(said)
    return shorten(masked, PREVIEW_CHARACTERS)


def tokens(size: int, calls: int = 0) -> int:
    """Estimate the tokens of a text with `size` characters, and of a number of tool calls."""
    return -(-size // 4) + 8 * calls


def turn_of(
    identity: str, role: Role, said: str, item: Item, *,
    prompt: bool, note: str = "", says: Iterable[str] = (), counts: bool = True, **more: Any,
) -> TranscriptTurn:  # fmt: skip
    """Return the turn of a record with the text `said`, and the tool calls and results in `item`.

    `note` is the preview of a record without text. `says` are further names for its content (see `TranscriptTurn`). If
    `counts` is False, the turn's estimate of tokens is 0. `more` are other fields of the turn.
    """
    calls = tuple(transcript.Call(intern(call.id), intern(call.name)) for call in item.calls)
    outputs = [result.output for result in item.results]
    size = len(said) + sum(map(len, outputs)) + sum(len(str(call.given)) for call in item.calls if call.given)
    keys = (f"turn:{identity}", *(f"call:{call.id}" for call in calls if call.id), *says)
    return TranscriptTurn(
        id=identity,
        role=role,
        preview=preview(said or note, [call.name for call in calls], outputs, prompt=prompt),
        token_est=tokens(size, len(calls)) if counts else 0,
        tool_calls=calls,
        tool_results=tuple(transcript.Result(intern(result.id)) for result in item.results),
        says=(*keys, *(titles.mark_of_prompt(said) if prompt else ())),
        prompt=prompt,
        **more,
    )


def head(text: str) -> str:
    """Return a text's beginning, with whitespace collapsed. Lines that repeat the text have the same beginning."""
    return " ".join(text[: HEAD_CHARACTERS * 4].split())[:HEAD_CHARACTERS]


def with_sources(
    turns: list[TranscriptTurn], heads: dict[str, str], copies: dict[str, str]
) -> tuple[TranscriptTurn, ...]:
    """Return `turns`. Each turn that repeats another's text names the nearest such turn in its `repeats`.

    `heads` has the beginnings (see `head`) of texts that others may repeat, `copies` those of repeating texts, by turn.
    """
    order = {turn.id: position for position, turn in enumerate(turns)}
    saying: defaultdict[str, list[str]] = defaultdict(list)
    for identity, words in heads.items():
        if words:
            saying[words].append(identity)

    def linked(turn: TranscriptTurn) -> TranscriptTurn:
        sources, here = saying.get(copies.get(turn.id, "")), order[turn.id]
        nearest = min(sources or (), key=lambda one: abs(order[one] - here), default="")
        return replace(turn, repeats=(*turn.repeats, f"turn:{nearest}")) if nearest else turn

    return tuple(map(linked, turns))


#: New bytes for kept lines, by the turn's position: ids are not unique.
Edits = Mapping[int, bytes]


def rewritten(raw: bytes, change: Callable[[dict[str, Any]], bool]) -> bytes:
    """Return the line `raw` with its JSON objects edited by `change`, which returns True for an object that it edited.

    Values that stay keep their spelling.
    """
    done = []
    touched = False
    for source, record in decode_line(raw)[0]:
        changed = change(record)
        touched = touched or changed
        done.append(respelled(source, record) if changed else source.rstrip(b"\r\n"))
    return b" ".join(done) if touched else raw
