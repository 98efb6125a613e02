"""Reading of JSON Lines logs while agents write them. It tolerates broken lines, and can continue a reading."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any, NamedTuple

import orjson

from indexer.masking import mask, shorten
from indexer.safe_files import open_regular
from indexer.transcripts.base import Checkpoint
from indexer.transcripts.long_lines import abridged
from indexer.transcripts.model import BrokenLine, Turn
from indexer.transcripts.reader_state import unpack

#: Maximum length of a line that is decoded as a whole. Decoding takes several times its size in memory, so longer lines
#: are abridged.
MAX_LINE_BYTES = 16 * 1024 * 1024
#: Maximum number of broken lines that one reading stores. A file with more is no log.
MAX_BROKEN = 10_000
#: Number of bytes before the checkpoint that must be unchanged if a log has only grown.
PROBE_BYTES = 4096
#: Logs shorter than this, to which nothing was written for this time, are read from their start if they change. They
#: hardly ever grow, are read in a few hundredths of a second, and their states would be a third of the index.
RESUME_BYTES, RESUME_SECONDS = 2 << 20, 7 * 86_400
#: How many bytes of a log a look at a session always reads, and for how many seconds of the processor it reads more.
LOOK_BYTES, LOOK_SECONDS = 16 << 20, 4.0
#: Number of bytes at a log's beginning that are read for a list of sessions.
GLANCE_BYTES = 256 * 1024
#: Number of bytes at its end that are read as well, because agents write titles again there.
_END_BYTES = 64 * 1024
#: The end of a log is read backwards in pieces. Size of the first piece.
_TAIL_BYTES = 8 * 1024
#: Size of a hole (NUL bytes) at which reading backwards stops. A crash leaves smaller ones in the middle of a log.
_HOLE_BYTES = 512 * 1024

#: After so many bytes in a row without a record, reading a file stops; for a list of sessions, earlier. A line counts
#: as at least the third number.
GAP_BYTES, GLANCE_GAP_BYTES, _LINE_BYTES = 256 << 20, 64 << 20, 4096
#: The beginning of the reason why a file is no log.
NO_LOG = "no log: "

_PIECE_BYTES = 1 << 20
#: What may be between records: white space, a byte order mark, and NULs that a crash leaves.
_GAP = re.compile(r"[\s\0\ufeff]*")
_DECODER = json.JSONDecoder(strict=False)
_Objects = list[tuple[bytes, dict[str, Any]]]


class Stretch(NamedTuple):
    """The position of a line in a file: byte offset and size."""

    path: Path
    start: int
    size: int


class Line(NamedTuple):
    """A JSON object from a log (`record`), with its verbatim bytes, or their position in the log (`kept`).

    In the record of a long line, long texts are abridged.
    """

    number: int
    kept: bytes | Stretch
    record: dict[str, Any]

    @property
    def source(self) -> bytes:
        """Return the object's verbatim bytes. The bytes of a long line are read from the log again."""
        if isinstance(self.kept, bytes):
            return self.kept
        with open_regular(self.kept.path) as file:
            file.seek(self.kept.start)
            return file.read(self.kept.size)

    @property
    def whole(self) -> dict[str, Any]:
        """Return the record with its long texts, which are read from the log again."""
        return self.record if isinstance(self.kept, bytes) else decode_line(self.source)[0][0][1]

    @property
    def raw(self) -> bytes:
        """Return the object's verbatim bytes, without the line's end."""
        return self.source.rstrip(b"\r\n")


class Bound:
    """The time limit for reading large logs in one command. All readings of one log end at the same record.

    `measures` is True if the command also needs the sizes of records.
    """

    def __init__(self, clock: Callable[[], float], share: float, *, measures: bool) -> None:
        self._clock, self._begun, self._share, self.measures = clock, clock(), share, measures
        self._stops: dict[Path, int] = {}

    def is_over(self, seconds: float) -> bool:
        """Return True if `seconds` have passed since this time limit began."""
        return self._clock() - self._begun >= seconds

    def stops(self, path: Path, offset: int) -> bool:
        """Return True if the time limit forbids reading the log from `offset` on. The log's start is always read."""
        stop = self._stops.get(path)
        if stop is None and offset >= LOOK_BYTES and self.is_over(self._share * LOOK_SECONDS):
            stop = self._stops[path] = offset
        return stop is not None and offset >= stop


#: The time limit of the current look at a session, or `None`.
current_bound: ContextVar[Bound | None] = ContextVar("bound", default=None)


@contextmanager
def bounded(
    share: float = 1.0, clock: Callable[[], float] = time.thread_time, *, measures: bool = False
) -> Iterator[None]:
    """Limit the time in which large logs are read in this block, as `clock` measures it.

    `share` is the part of the usual time for this block: less than 1 if the command does more with the turns than show
    them. With `measures`, the sizes of records are computed while they are read.
    """
    token = current_bound.set(current_bound.get() or Bound(clock, share, measures=measures))
    try:
        yield
    finally:
        current_bound.reset(token)


def is_over(seconds: float) -> bool:
    """Return True if `seconds` have passed since the block of `bounded` (a time limit for reading logs) began."""
    return (bound := current_bound.get()) is not None and bound.is_over(seconds)


class LineReader:
    """An iterator over the JSON objects in a log that remembers where it ended. It abridges long lines.

    Broken lines are collected. An unfinished last line is skipped. After iteration, `offset` and `lines` are the end of
    the complete lines, and `odd` says why no record was found. With `most`, reading ends after the record that reaches
    so many bytes. `left` is the number of bytes that are not read because of a time limit (see `bounded`).
    """

    def __init__(self, path: Path, offset: int = 0, lines: int = 0, most: int = 0) -> None:
        self.path = path
        self.odd = ""
        self._most = most
        self._gap = GLANCE_GAP_BYTES if most else GAP_BYTES
        self.start = offset
        self.offset = offset
        self.lines = lines
        self.broken: list[BrokenLine] = []
        self.bytes_read = 0
        self.left = 0
        self.bound = current_bound.get()

    @property
    def worth_resuming(self) -> bool:
        """Return True if the reader's state is worth storing: the log may still grow, is long, or has broken lines."""
        long = self.start > 0 or self.offset >= RESUME_BYTES or bool(self.broken)
        return long or time.time() - self.path.stat().st_mtime < RESUME_SECONDS

    def __iter__(self) -> Iterator[Line]:
        with open_regular(self.path) as file:
            number = self.lines if self.offset and _stands_within_a_line(file, self.offset) else self.lines + 1
            found, gap = self.start > 0, 0
            while not self._stops(file) and (raw := file.readline(MAX_LINE_BYTES)):
                size = len(raw)
                ended = raw.endswith(b"\n")
                long = not ended and size == MAX_LINE_BYTES
                if long:
                    objects, reason, size, ended = _decode_long(file, raw, self._gap)
                    self.odd = "" if found or ended else f"{NO_LOG}no line break in {size >> 20} MiB"
                else:
                    objects, reason = decode_line(raw)
                if reason and not ended:  # still being written: read again when it is complete
                    return
                where = Stretch(self.path, self.offset, size) if long and len(objects) == 1 else None
                self.offset += size
                self.bytes_read += size
                self.lines = number
                number += 1
                if reason and len(self.broken) < MAX_BROKEN:
                    self.broken.append(BrokenLine(self.path, self.lines, reason))
                for source, record in objects:
                    yield Line(self.lines, where or source, record)
                if objects:
                    found, gap, self.odd = True, 0, ""
                else:
                    gap += max(size, _LINE_BYTES)
                    self.odd = self.odd or ("" if found else _odd(raw, reason, self.bytes_read))
                if gap > self._gap or (found and 0 < self._most < self.bytes_read):
                    return

    def _stops(self, file: IO[bytes]) -> bool:
        if self.bound is None or not self.bound.stops(self.path, self.offset):
            return False
        self.left = max(0, file.seek(0, os.SEEK_END) - self.offset)
        return True


def _odd(raw: bytes, reason: str, read: int) -> str:
    """Return why a file is no log, or "". It has no record up to the line `raw`, which has the error `reason`."""
    if reason:
        return f"{NO_LOG}no line is a valid record"
    return f"{NO_LOG}only blanks and NUL bytes" if b"\0" in raw or read > _LINE_BYTES else ""


def resume(path: Path, checkpoint: Checkpoint | None) -> tuple[LineReader, tuple[dict[str, Any], list[Turn]] | None]:
    """Return a reader of the log, and the facts and turns that an earlier reading stored.

    If the log has only grown, the reader continues at `checkpoint`. Otherwise it starts at the beginning, and `None` is
    returned in place of facts and turns.
    """
    kept = unpack(checkpoint.state) if checkpoint and only_grown(path, checkpoint) else None
    if checkpoint is None or kept is None:
        return LineReader(path), None
    return LineReader(path, checkpoint.offset, checkpoint.lines), kept


def first_lines(path: Path, lacks: Callable[[], str] = str) -> Iterator[Line]:
    """Yield the lines in the first 256 KB of a log, and more, up to 16 MB, while `lacks` names what the caller needs.

    Raises:
        OSError: these lines have no record, or not what the caller needs.
    """
    reader = LineReader(path, most=GLANCE_BYTES)
    yield from reader
    if reader.odd:
        raise OSError(reader.odd)
    while reader.bytes_read and (lacking := lacks()):
        if reader.offset >= LOOK_BYTES:
            raise OSError(f"{lacking} in its first {LOOK_BYTES >> 20} MB")
        reader = LineReader(path, reader.offset, reader.lines, GLANCE_BYTES)
        yield from reader


def last_lines(path: Path, most: int = LOOK_BYTES, behind: int = 0) -> Iterator[bytes]:
    """Yield the lines in the last `most` bytes of a log, but not before the offset `behind`, last line first."""
    with open_regular(path) as file:
        start = size = file.seek(0, os.SEEK_END)  # of a compressed log, as it was
        first, rest, piece, hole = max(behind, size - most), b"", _TAIL_BYTES, 0
        while start > first:
            end, start = start, max(first, start - piece)
            file.seek(start)
            data = file.read(end - start)
            piece *= 4  # of a long line not every piece is joined again
            if data.strip(b"\0"):
                rest, *lines = (data + rest).split(b"\n")
                yield from reversed(lines)
                hole = 0
            elif (hole := hole + len(data)) > _HOLE_BYTES:
                return
        if not start:
            yield rest


def last_records(path: Path, kinds: Collection[bytes]) -> Iterator[dict[str, Any]]:
    """Yield records in the last 64 KB of a log that contain one of `kinds`, except those that `first_lines` reads."""
    lines = (line for line in last_lines(path, _END_BYTES, GLANCE_BYTES) if any(kind in line for kind in kinds))
    for line in reversed(list(lines)):
        for _, record in decode_line(line)[0]:
            yield record


def probe(path: Path, offset: int) -> str:
    """Return a digest of a log's first bytes and of those before `offset`. It is equal while the log only grows."""
    with open_regular(path) as file:
        head = file.read(min(offset, PROBE_BYTES))
        file.seek(max(0, offset - PROBE_BYTES))
        tail = file.read(min(offset, PROBE_BYTES))
    return hashlib.blake2b(head + tail, digest_size=16).hexdigest()


def only_grown(path: Path, checkpoint: Checkpoint) -> bool:
    """Return True if the log has not changed before the offset of the checkpoint, at which its last reading ended."""
    return path.stat().st_size >= checkpoint.offset and probe(path, checkpoint.offset) == checkpoint.probe


def _stands_within_a_line(file: IO[bytes], offset: int) -> bool:
    """Return True if `offset` is inside a line. Move the file's position to `offset`."""
    file.seek(max(0, offset - 1))
    return file.read(min(offset, 1)) not in (b"", b"\n")


def _decode_long(file: IO[bytes], begun: bytes, most: int) -> tuple[_Objects, str, int, bool]:
    """Read the rest of a long line that begins with `begun`. If it has no JSON object, stop after `most` bytes.

    Return the abridged objects in the line, an error text, the line's size, and True if the line has ended.
    """
    size, ended = 0, False

    def pieces() -> Iterator[bytes]:
        nonlocal size, ended
        piece = begun
        while piece and not ended:
            size, ended = size + len(piece), piece.endswith(b"\n")
            yield piece
            piece = b"" if ended or size > GAP_BYTES else _piece(file)

    line = pieces()
    made = abridged(line)
    while made is None and size < most and next(line, b""):
        pass  # too much of it: only its size is of interest
    objects, reason = (
        decode_line(made) if made is not None and (ended or size <= GAP_BYTES) else (_Objects(), "too long")
    )
    return objects, reason and f"a line of {size} bytes", size, ended


def _piece(file: IO[bytes]) -> bytes:
    """Read the next piece of a line, at most to the line's end."""
    piece = file.read(_PIECE_BYTES)
    end = piece.find(b"\n") + 1
    if end:
        file.seek(end - len(piece), os.SEEK_CUR)
    return piece[:end] if end else piece


def decode_file(path: Path) -> Iterator[Line]:
    """Yield the JSON object that is the content of a file, as a line; nothing if the content is no object."""
    with open_regular(path) as file:
        data = file.read(MAX_LINE_BYTES + 1)
        if not is_long(data):
            yield from (Line(1, source, record) for source, record in decode_line(data)[0][:1])
            return
        made = abridged(_rest(data, file))
        size = os.fstat(file.fileno()).st_size
    for _, record in decode_line(made or b"")[0][:1]:
        yield Line(1, Stretch(path, 0, size), record)


def decode_document(path: Path) -> tuple[Any, int]:
    """Return the JSON value in a file (`None` if it is not JSON), with long texts abridged, and the file's size."""
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        begun = [b'{"document":', file.read(min(size, MAX_LINE_BYTES) + 1)]
        if is_long(begun[1]):
            made = abridged(chain(begun[:1], _rest(begun.pop(), file), [b"}"]))
        else:
            made = b"".join([*begun, b"}"])
        del begun
    found = decode_line(made or b"")[0][:1]
    return (found[0][1].get("document") if found else None), size


def _rest(begun: bytes, file: IO[bytes]) -> Iterator[bytes]:
    """Yield a file's content in pieces: first `begun`, which was read already. Stop at the maximum size of a record."""
    return chain([begun], islice(iter(partial(file.read, _PIECE_BYTES), b""), GAP_BYTES // _PIECE_BYTES))


def as_read(source: bytes) -> _Objects:
    """Return (bytes, object) for each JSON object in a line, usually one. Long texts in a long line are abridged."""
    made = abridged([source]) if is_long(source) else source
    return decode_line(made or b"")[0]


def is_long(source: bytes) -> bool:
    """Return True if a line is so long that `LineReader` abridges it."""
    return len(source) > MAX_LINE_BYTES


def decode_line(raw: bytes) -> tuple[_Objects, str]:
    """Return (bytes, object) for each JSON object in a line, usually one, and an error text if more is in the line."""
    try:
        record = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return _repaired(raw, shorten(mask(str(error)), 200))
    if isinstance(record, dict):
        return [(raw, record)], ""
    return [], f"a JSON {type(record).__name__}, not an object"


def _repaired(raw: bytes, reason: str) -> tuple[_Objects, str]:
    """Return the objects at the beginning of a line that is not valid JSON, and `reason` if more is in the line.

    The newline between several objects was lost (seen in Claude Code 2.1 and Codex), or the line has bytes that are not
    UTF-8, control characters or half surrogates.
    """
    text = raw.decode("utf-8", "surrogateescape")
    objects: _Objects = []
    start = _end_of_gap(text, 0)
    while start < len(text):
        try:
            value, end = _DECODER.raw_decode(text, start)
            # What cannot be stored becomes a question mark here, once.
            value = orjson.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
        except (ValueError, RecursionError):
            return objects, reason
        if not isinstance(value, dict):
            return objects, f"a JSON {type(value).__name__}, not an object"
        objects.append((text[start:end].encode("utf-8", "surrogateescape"), value))
        start = _end_of_gap(text, end)
    return objects, ""


def _end_of_gap(text: str, start: int) -> int:
    gap = _GAP.match(text, start)
    return gap.end() if gap else start
