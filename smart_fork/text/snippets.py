"""What is quoted of others: the stretch of a chunk that shows why it matched, and texts for a terminal."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import overload

from indexer.masking import Masked, between, mask, shorten
from indexer.masking.invisible import INVISIBLE
from indexer.patterns import late

SNIPPET_CHARACTERS = 500
#: Of what somebody gave and was wrong, how much an error repeats.
QUOTED_CHARACTERS = 80
#: Characters that no font has: private ones, halves of others, and those that are not assigned.
_UNKNOWN = "\ufffd"
_WORD = late(r"\w+", re.UNICODE)
_HEADING = late(r"^\s*#{2,6}(?:\s+|$)")
#: A line of marks: of headings, rules, quotations, lists and tables, or the fence around a block of code.
_MARKS = late(r"[\s#>*+=_|:~`.-]*|\s*(?:`{3,}|~{3,})[\w+-]*\s*")


def snippet(
    text: Masked, words: Iterable[str], limit: int = SNIPPET_CHARACTERS, *, nearest: int | None = None
) -> Masked:
    """At most `limit` characters of `text` from the sentence on that matched, cut between characters.

    That is the one with the best evidence for `words`; where none has any the `nearest` one, else the first. Control
    characters are taken out: a snippet is shown in terminals.
    """
    from smart_fork.text.sentences import best, sentences  # its patterns are compiled where something is quoted

    text, words = tidied(text), tuple(words)
    spans = sentences(text)
    if not spans:
        return shorten(text, limit)
    chosen = best(text, spans, words)
    if chosen is None:
        chosen = nearest if nearest is not None and nearest < len(spans) else 0
    start, end = spans[chosen]
    if end - start > limit:  # no sentence, or a very long one: around where most of the words stand
        start += _densest(text[start:end], frozenset(words), limit - 2)
        space = text.find(" ", start, start + 40) if start > spans[chosen][0] else start - 1
        start = space + 1 if space >= 0 else start
        return between(text, start, min(end, start + limit - 2), cut=(start > spans[chosen][0], True))
    for _, after in spans[chosen + 1 :]:
        if after - start > limit:
            break
        end = after
    return between(text, start, end)


def tidied(text: str) -> Masked:
    """What can be shown of `text`: without blank lines, and without lines that are marks of Markdown alone."""
    lines = (_HEADING.sub("", line.rstrip()) for line in printable(text).strip().splitlines())
    return mask("\n".join(line for line in lines if not _MARKS.fullmatch(line)))


def matched_words(text: str, words: Iterable[str]) -> tuple[str, ...]:
    """Those of `words` that `text` has, also as the beginning of a longer word."""
    text = text.lower()
    there = {*_WORD.findall(text), *_WORD.findall(text.replace("_", " "))}
    in_order = sorted(there)
    return tuple(word for word in words if word in there or (len(word) > 3 and _begins_one(word, in_order)))


def _begins_one(word: str, in_order: Sequence[str]) -> bool:
    """Whether one of these begins with `word`: if any does, the first that does not come before it."""
    place = bisect_left(in_order, word)
    return place < len(in_order) and in_order[place].startswith(word)


@overload
def printable(text: Masked) -> Masked: ...
@overload
def printable(text: str) -> str: ...
def printable(text: str) -> str:
    """Without what steers a terminal and what nobody sees, but with line breaks and tabs."""
    seen = INVISIBLE.sub("", text)
    return seen if "".join(seen.split()).isprintable() else "".join(map(_visible, seen))


def quoted(given: str, limit: int = QUOTED_CHARACTERS) -> Masked:
    """What somebody gave, as an error repeats it: on one line, without secrets, shortened."""
    return shorten(printable(mask(given)), limit)


def storable(given: str) -> str:
    """Return what somebody gave as a database takes it: bytes of an argument that are no UTF-8 become "?"."""
    return given.encode(errors="replace").decode()


def _visible(character: str) -> str:
    return character if character.isprintable() or character.isspace() else _UNKNOWN


def shown(value: object) -> Masked:
    """What was given, as a refusal repeats it: as JSON."""
    return quoted(json.dumps(value, ensure_ascii=False, default=str))


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
