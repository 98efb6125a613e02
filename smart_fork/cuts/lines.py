"""The lines of a transcript with where they stand, one at a time, however long they are."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import IO, Any, NamedTuple

from indexer.masking import Masked, mask, shorten
from indexer.transcripts.lines import GLANCE_GAP_BYTES, decode_line, open_regular
from smart_fork.cuts.model import Place, Stamp, TranscriptTurn

PREVIEW_CHARACTERS = 120
#: How much of a text stands for it where something is looked for that repeats it.
HEAD_CHARACTERS = 80
#: How many lines at the beginning of a transcript may be damaged: what a machine that lost power has left.
DAMAGED_LINES = 20
_PIECE, _OVERLAP = 1 << 20, 512
_UUID = re.compile(rb'"uuid"\s*:\s*"([^"\\]{1,200})"')


class RawLine(NamedTuple):
    """One line that is not blank, and the objects on it: usually one, none where it cannot be decoded."""

    number: int
    place: Place
    objects: tuple[dict[str, Any], ...]


def raw_lines(file: IO[bytes], path: Path) -> Iterator[RawLine]:
    """The lines of an open file. Blank ones are passed over."""
    end = 0
    for number, raw in enumerate(file, start=1):
        start, end = end, end + len(raw)
        if raw.isspace():
            continue
        objects, _ = decode_line(raw)
        place = Place(path, start, end - 1 if raw.endswith(b"\n") else end)
        yield RawLine(number, place, tuple(record for _, record in objects))


def opened(path: Path) -> tuple[IO[bytes], Stamp]:
    """The file and what it was when it was opened: the stamp comes before the first byte is read."""
    file = open_regular(path)
    return file, stamp_of(os.fstat(file.fileno()))


def first_record(path: Path) -> dict[str, Any]:
    """The first object of a file, behind the first lines if those are damaged; empty where there is none."""
    try:
        file, _ = opened(path)
    except OSError:
        return {}
    with file:
        for _ in range(DAMAGED_LINES):
            raw = file.readline(GLANCE_GAP_BYTES)
            if objects := decode_line(raw)[0]:
                return objects[0][1]
            if not raw.endswith(b"\n"):  # torn, or too long for any record
                break
    return {}


def names_one_of(path: Path, keys: Collection[str]) -> bool:
    """Whether a record of a log with one record a line has one of these as its ``uuid``. No line is decoded."""
    rest = b""
    try:
        with open_regular(path) as file:
            while piece := file.read(_PIECE):
                if any(found[1].decode("utf-8", "replace") in keys for found in _UUID.finditer(rest + piece)):
                    return True
                rest = piece[-_OVERLAP:]
    except OSError:
        return False
    return False


def stamp_of(info: os.stat_result) -> Stamp:
    """What tells this version of a file from another."""
    return Stamp(info.st_size, info.st_mtime_ns, info.st_ino)


def preview(text: str, calls: Sequence[str] = (), results: Sequence[str] = ()) -> Masked:
    """About 120 characters on one line, cut between characters."""
    parts = [text, *(f"[tool_use: {name}]" for name in calls), *(f"[tool_result] {said}" for said in results)]
    return shorten(mask(" ".join(parts)), PREVIEW_CHARACTERS)


def tokens(size: int, calls: int = 0) -> int:
    """About how many a text of that length is."""
    return -(-size // 4) + 8 * calls


def head(text: str) -> str:
    """How a text begins, white space collapsed."""
    return " ".join(text[: HEAD_CHARACTERS * 4].split())[:HEAD_CHARACTERS]


def with_sources(
    turns: list[TranscriptTurn], heads: dict[str, str], copies: dict[str, str]
) -> tuple[TranscriptTurn, ...]:
    """`turns`, where those in `copies` (id -> how what they repeat begins) say which turn that is.

    What was said twice is said by several turns (`heads`: id -> beginning): a copy is that of the nearest.
    """
    order = {turn.id: position for position, turn in enumerate(turns)}
    saying: defaultdict[str, list[str]] = defaultdict(list)
    for identity, words in heads.items():
        if words:
            saying[words].append(identity)
    return tuple(_with_source(turn, saying.get(copies.get(turn.id, ""), ()), order) for turn in turns)


def _with_source(turn: TranscriptTurn, sources: Sequence[str], order: dict[str, int]) -> TranscriptTurn:
    if not sources:
        return turn
    here = order[turn.id]
    nearest = min(sources, key=lambda one: abs(order[one] - here))
    return replace(turn, repeats=(*turn.repeats, f"turn:{nearest}"))
