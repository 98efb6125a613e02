"""A phrase: words with a secret between them, and how it is found."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import cache

from indexer.masking.spans import HIDDEN, PHRASE, Span, lines_at, monotone, placeholder, positions_of
from indexer.masking.values import (
    is_base64_pair,
    is_chosen,
    is_dense,
    is_hard,
    is_identity,
    is_long,
    is_mixed,
    is_opaque,
    is_strange,
    is_strong,
    is_told,
    is_unlike_words,
    is_worded,
    looks_random,
)
from indexer.shapes import dataclass

_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "any": lambda value: True,  # noqa: ARG005
    "key": lambda value: looks_random(value) and "_" not in value and not is_identity(value),
    "long": is_long,
    "dense": is_dense,
    "chosen": lambda value: is_told(value) and (is_chosen(value) or looks_random(value)),
    "given": lambda value: is_hard(value) or (" " in value and is_worded(value)),
    "hard": is_hard,
    "mixed": is_mixed,
    "opaque": is_opaque,
    "pair": is_base64_pair,
    "random": lambda value: looks_random(value, lenient=True),
    "strong": is_strong,
    "strange": is_strange,
    "told": is_told,
    "unlike": is_unlike_words,
    "worded": is_worded,
}


@dataclass(frozen=True, slots=True, eq=False)  # told apart as objects: their long texts are compared nowhere
class Phrase:
    """Words with a secret between them. In lower case a text has one of `anchors`; the group is the secret.

    `whole`: more than a line is looked at, or `reach` characters behind the line as well; `begins`: the pattern begins
    with the anchor, and is tried nowhere else. `words`: whole words one of which a text has as well. `least` is how a
    value must look beside being no placeholder.
    """

    kind: str
    anchors: str
    pattern: str
    least: str = "any"
    whole: bool = False
    reach: int = 0
    begins: bool = False
    words: str = ""


QUOTE = r"\\{0,3}[\"'`]"
IDENTITY = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
VALUE = (
    rf"(?:'([^'\n{HIDDEN}]{{3,256}}+)'|\"([^\"\n{HIDDEN}]{{3,256}}+)\"|"
    rf"([^\s\"'`|;&<>(){HIDDEN}-][^\s\"'`|<>{HIDDEN}]{{2,256}}+))"
)


def by_sign(*phrases: Phrase) -> dict[bytes, tuple[Phrase, ...]]:
    """Phrases by what a text has in which they are: one of their words, else of their anchors."""
    rows: dict[bytes, tuple[Phrase, ...]] = {}
    for phrase in phrases:
        for sign in phrase.words.split() or phrase.anchors.split("|"):
            rows[sign.encode()] = (*rows.get(sign.encode(), ()), phrase)
    return rows


def found_in(phrase: Phrase, text: str, lower: bytes, absent: Collection[bytes]) -> Iterator[Span]:
    """The secrets of a phrase in `text`, which is `lower` with one byte a character and no capitals.

    `absent` are literals of which it is known that they are not there.
    """
    places = [place for anchor in _anchors(phrase) if anchor not in absent for place in positions_of(lower, anchor)]
    if phrase.begins:
        matches = (_pattern(phrase).match(text, place) for place in places)
        yield from (span for match in matches if match for span in _secret(phrase, match))
    elif places:
        lines = [(0, len(text))] if phrase.whole else lines_at(lower, sorted(places))
        yield from found_at(phrase, text, _stretched(lines, phrase.reach) if phrase.reach else lines)


def _stretched(lines: list[tuple[int, int]], reach: int) -> list[tuple[int, int]]:
    """Lines with so many characters behind each; where one reaches the next, both are one."""
    stretches = lines[:1]
    for start, end in lines[1:]:
        first, last = stretches[-1]
        if start <= last + reach:
            stretches[-1] = (first, end)
        else:
            stretches.append((start, end))
    return [(start, end + reach) for start, end in stretches]


def found_at(phrase: Phrase, text: str, lines: list[tuple[int, int]]) -> Iterator[Span]:
    """The secrets of a phrase in stretches of `text`."""
    for start, end in lines:
        for match in _pattern(phrase).finditer(text, start, end):
            yield from _secret(phrase, match)


def _secret(phrase: Phrase, match: re.Match[str]) -> Iterator[Span]:
    group = match.lastindex
    if not group or HIDDEN in (value := match[group]) or monotone(value) or placeholder(value):
        return
    if _CHECKS[phrase.least](value):
        yield Span(match.start(group), PHRASE, match.end(group), phrase.kind)


@cache
def _anchors(phrase: Phrase) -> tuple[bytes, ...]:
    return tuple(anchor.encode() for anchor in phrase.anchors.split("|"))


@cache
def _pattern(phrase: Phrase) -> re.Pattern[str]:
    """Compiled where one of its anchors is in a text."""
    return re.compile(phrase.pattern)
