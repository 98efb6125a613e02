"""Where a secret stands in a text, and what tells one thing of a text from another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, NamedTuple

from indexer.patterns import late

#: What stands for a character of a mask: nothing that a secret is looked for in has it.
HIDDEN = "\ufffe"
SHAPE, PHRASE, NAME, NEAR = 0, 1, 2, 3

_CHANGES = late(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")


class Span(NamedTuple):
    """Where a secret is. `source` puts one known by its shape before one that is assigned, or stands beside a name."""

    start: int
    source: int
    end: int
    kind: str


def lines_at(plain: bytes, positions: Iterable[int]) -> list[tuple[int, int]]:
    """The lines at ascending `positions`, each once, with the line end before them."""
    lines: list[tuple[int, int]] = []
    end = -1
    for position in positions:
        if position > end:
            start = max(0, plain.rfind(b"\n", 0, position))
            end = plain.find(b"\n", position)
            end = len(plain) if end < 0 else end
            lines.append((start, end))
    return lines


def begun(text: str, position: int, most: int) -> int:
    """Return where the line at a position begins, at `most` so many characters before it."""
    return max(text.rfind("\n", max(0, position - most), position) + 1, position - most, 0)


def ended(text: str, position: int, most: int) -> int:
    """Return where the line at a position ends, at `most` so many characters behind it."""
    end = text.find("\n", position, position + most)
    return end if end >= 0 else position + most


def positions_of(text: AnyStr, needle: AnyStr) -> Iterator[int]:
    """Where `needle` is."""
    position = text.find(needle)
    while position >= 0:
        yield position
        position = text.find(needle, position + len(needle))


def monotone(value: str) -> bool:
    """Whether the end of `value` is one or two characters over and over, as in ``ghp_xxxxxxxx``."""
    return len(value) >= 8 and len(set(value[-12:])) <= 2


def changes(value: str) -> int:
    """How often digits and letters follow each other."""
    return len(_CHANGES.findall(value))
