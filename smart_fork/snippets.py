"""The stretch of a chunk that shows why it matched."""

from __future__ import annotations

import re
from collections.abc import Iterable

SNIPPET_CHARACTERS = 500
#: White space that moves a terminal's cursor, or ends a line for some programs.
_BREAKS = "\r\x0b\x0c\x1c\x1d\x1e\x1f\x85\u2028\u2029"
_WORD = re.compile(r"\w+", re.UNICODE)


def snippet(text: str, words: Iterable[str], limit: int = SNIPPET_CHARACTERS) -> str:
    """At most `limit` characters of `text` around where most of `words` stand, cut between characters (F-042).

    Control characters are taken out: a snippet is shown in terminals.
    """
    text = printable(text.strip())
    if len(text) <= limit:
        return text
    start = _densest(text, frozenset(words), limit - 2)
    end = min(len(text), start + limit - 2)
    if start > 0:  # begin at a word
        space = text.find(" ", start, start + 40)
        start = space + 1 if space >= 0 else start
    return ("…" if start > 0 else "") + text[start:end].rstrip() + ("…" if end < len(text) else "")


def matched_words(text: str, words: Iterable[str]) -> tuple[str, ...]:
    """Those of `words` that `text` has, also as the beginning of a longer word."""
    text = text.lower()
    there = {*_WORD.findall(text), *_WORD.findall(text.replace("_", " "))}
    return tuple(
        word for word in words if word in there or any(len(word) > 3 and one.startswith(word) for one in there)
    )


def printable(text: str) -> str:
    """Without control characters (escape sequences of terminals among them), but with line breaks and tabs."""
    return "".join(c for c in text if c in "\n\t" or c.isprintable() or (c.isspace() and c not in _BREAKS))


def _densest(text: str, words: frozenset[str], width: int) -> int:
    """Where a window of `width` characters has the most different words of the query, a little before the first one."""
    stems = tuple(word[: max(4, len(word) - 2)] for word in words)
    places = (
        [(m.start(), m[0].lower()) for m in _WORD.finditer(text) if m[0].lower().startswith(stems)] if stems else []
    )
    best, start = 0, 0
    for first, (begin, _) in enumerate(places):
        inside = {word for at, word in places[first:] if at < begin + width - 60}
        if len(inside) > best:
            best, start = len(inside), max(0, begin - 60)
    return min(start, max(0, len(text) - width))
