"""Where a secret stands in a text, and what tells one thing of a text from another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import AnyStr, NamedTuple

from indexer.patterns import late

#: What stands for a character of a mask: nothing that a secret is looked for in has it.
HIDDEN = "\ufffe"
SHAPE, PHRASE, NAME, NEAR = 0, 1, 2, 3

_CHANGES = late(r"[A-Za-z](?=[0-9])|[0-9](?=[A-Za-z])")
#: What placeholders are made of: words that say so, and words beside them.
_STANDS = r"redacted|placeholder|example|your|dummy|todo|replaced?|undefined"
_SAYS_SO = rf"{_STANDS}|change[-_ .]?(?:me|this|it)|changed"
_BESIDE = (
    r"pass(?:w(?:or)?d|phrase|code)?|pwd?|secrets?|secure|tokens?|keys?|api|access|auth|client|private|public|signing|"
    r"value|string|text|here|with|the|an?|my|in|for|to|and|or|of|me|this|it|some|very|super|strong|long|real|random|"
    r"prod(?:uction)?|dev|development|staging|local|test|db|database|user(?:name)?|admin|root|app|default|only|please|"
    r"\d{1,3}[-_ ]?bits?"
)
_STANDS_FOR = late(
    rf"(?i)^[^a-z0-9]*(?:(?:{_BESIDE})[-_ .]?)*(?:{_SAYS_SO})(?:[-_ .]?(?:{_SAYS_SO}|{_BESIDE}))*[^a-z0-9]*$|"
    rf"^(?:[a-z]+[-_ .])*(?:{_STANDS})(?:[-_ .][a-z_ .-]*)?$|"  # words without a digit or a sign
    r"^(?-i:[yY]our(?:[A-Z][a-z]+)+|YOUR[A-Z_]*|[A-Z][A-Z0-9_+/]*EXAMPLE(?:KEY)?)$|(?-i:[A-Za-z0-9]EXAMPLE(?:KEY)?$)|"
    r"^your(?-i:(?:[-_ ](?:[a-z]+|[A-Z]+|\d{1,3}-?bit|1234\d*))+)$|//[^/]*\.?example\.(?:com|org|net)|"
    r"xxxx|(?-i:REDACTED)|^x{3}|[-_.]x{3}$|\*\*\*|\.\.\.|…|\$\{|\{\{|%\(|"
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
