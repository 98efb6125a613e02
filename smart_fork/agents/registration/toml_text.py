"""Splits a TOML text into statements, so that one table can be edited without changes to comments and line ends.

Python's TOML parser decides where a statement ends: at the first line that completes it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator
from typing import Any

from indexer.shapes import dataclass

_LINE = re.compile(r"[^\n]*\n|[^\n]+")


@dataclass(frozen=True, slots=True)
class Statement:
    """Whole lines: a table's header, a key with its value, or blanks and comments (neither `table` nor `key`)."""

    text: str
    table: tuple[str, ...] | None = None
    key: str | None = None


def statements(text: str) -> list[Statement]:
    """Return the statements of `text`. Joined, they are `text` again."""
    return list(_statements(text))


def _statements(text: str) -> Iterator[Statement]:
    lines = _LINE.findall(text)
    at = 0
    while at < len(lines):
        for end in range(at + 1, len(lines) + 1):
            piece = "".join(lines[at:end])
            try:
                read = tomllib.loads(piece)
            except tomllib.TOMLDecodeError:
                continue
            yield _statement(piece, read)
            at = end
            break
        else:  # not reached for what is TOML as a whole
            raise ValueError("it is not plain TOML")


def _statement(piece: str, read: dict[str, Any]) -> Statement:
    if piece.lstrip().startswith("["):
        return Statement(piece, table=tuple(_names(read)))
    return Statement(piece, key=next(iter(read), None))


def _names(read: Any) -> Iterator[str]:
    while read:
        if isinstance(read, list):
            read = read[0]
            continue
        name, read = next(iter(read.items()))
        yield name


def line_end(text: str) -> str:
    """Return the line end used in a text."""
    return "\r\n" if "\r\n" in text else "\n"
