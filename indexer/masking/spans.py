"""Where a secret stands in a text, and what tells one thing of a text from another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, NamedTuple

from indexer.patterns import late

#: What stands for a character of a mask: nothing that a secret is looked for in has it.
HIDDEN = "\ufffe"
SHAPE, PHRASE, NAME, NEAR = 0, 1, 2, 3

_CHANGES = late(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
_STANDS_FOR = late(
    r"(?i)redacted|placeholder|change.?me|example|your|dummy|xxxx|^x{3}|[-_.]x{3}$|\*\*\*|\.\.\.|…|\$\{|\{\{|%\(|"
    r"todo|replace|undefined|"
    r"/.*\.[a-z]{2,5}$|^\{[\w.()\[\]\"' !:]*\}$|\|(?:string|confirmed|min:\d+|max:\d+|nullable)(?:\||$)|"
    r"(?-i:^[A-Z_]*(?:PASSWORD|PASSPHRASE|SECRET|TOKEN|KEY|HERE)[A-Z_]*$)|"
    r"^\[\w{1,20}\]$|^vault:v\d:|^Ag[A-D][A-Za-z0-9+/]{50}|^(?:pk_(?:live|test)_|pk\.eyJ|phc_|sb_publishable_|"
    r"G-|GTM-)|"  # to be shown to everybody
    r"^(?:pass|passw(?:or)?d|secret|token|string|none|null|true|false|hidden|masked|optional|required)$"
)


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


def placeholder(value: str) -> bool:
    """Whether `value` only stands for a secret."""
    return _STANDS_FOR.search(value[:256]) is not None or value[:1] in "<$" or len(set(value)) <= 2


def changes(value: str) -> int:
    """How often digits and letters follow each other."""
    return len(_CHANGES.findall(value))
