"""What is quoted of others: the stretch of a chunk that shows why it matched, sentences, and texts for a terminal."""

from __future__ import annotations

import json
import re
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import overload

from indexer.masking import Masked, between, mask, shorten
from indexer.masking.invisible import BRACKETS, INVISIBLE, QUOTES
from indexer.patterns import late

SNIPPET_CHARACTERS = 500
#: Of what somebody gave and was wrong, how much an error repeats.
QUOTED_CHARACTERS = 80
#: Characters that no font has: private ones, halves of others, and those that are not assigned.
_UNKNOWN = "\ufffd"
#: Replaces characters that could end a quotation or its element.
_PLAIN_MARKS = str.maketrans(BRACKETS + QUOTES, "[]" * (len(BRACKETS) // 2) + "'" * len(QUOTES))
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


def quotation(text: str, characters: int) -> Masked:
    """Return a text on one line, without characters that could end the quotation or its element."""
    line = " ".join(printable(mask(text)).split())
    return shorten(mask(line.translate(_PLAIN_MARKS)), characters)


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


#: Where a sentence ends within a line: in scripts without spaces at once, else before one; not after a number in a list
#: or what is often abbreviated.
_END = late(
    r"[\u3002\uff01\uff1f\uff61]+[\u300d\u300f\uff09\u3011\u201d\u2019]*|"
    r"(?<!\be\.g)(?<!\bi\.e)(?<!\betc)(?<!\bvs)(?<!\bcf)(?<!^\d)(?<!^\d\d)[.!?\u2026]+[\"'\u201d\u2019)\]*_`]*(?=\s)",
    re.MULTILINE,
)
_LINE = late(r"[^\n]+")
#: A line that is at least this long and goes on in small letters was broken to fit a screen.
_WRAPPED = 40
_TOKEN = late(r"\w+")
_DENSE = late(r"[\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff\uac00-\ud7af\u0e00-\u0e7f]")
#: What a word counts that begins as one of those asked for, and does not end so.
_BEGINNING = 0.8


def sentences(text: str) -> list[tuple[int, int]]:
    """Where each begins and ends, in order, without the white space around it."""
    spans = []
    for start, end in _paragraphs(text):
        cuts = [start, *(found.end() for found in _END.finditer(text, start, end) if found.end() < end), end]
        spans += [_trimmed(text, *span) for span in pairwise(cuts)]
    return [(start, end) for start, end in spans if start < end]


def evidence(sentence: str, words: Iterable[str]) -> float:
    """How many of the `words` a sentence has, as they are, inside names, or by their stem."""
    text = sentence.lower()
    tokens = {*_TOKEN.findall(text), *_TOKEN.findall(text.replace("_", " "))}
    beginnings = f" {' '.join(tokens)}"
    return sum([_found(word, tokens, beginnings, text) for word in words])


def best(text: str, spans: Sequence[tuple[int, int]], words: Sequence[str]) -> int | None:
    """Which of the sentences of `text` has the best evidence for `words`, among equals the first; `None` for none."""
    given = [evidence(text[start:end], words) for start, end in spans]
    return given.index(max(given)) if any(given) else None


def _paragraphs(text: str) -> list[tuple[int, int]]:
    """The lines, those together that one sentence was broken into."""
    found: list[tuple[int, int]] = []
    for line in _LINE.finditer(text):
        start, end = line.span()
        if found and _goes_on(text, found[-1], start):
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def _goes_on(text: str, before: tuple[int, int], start: int) -> bool:
    line = text[text.rfind("\n", 0, before[1]) + 1 : before[1]].rstrip()
    return before[1] == start - 1 and len(line) >= _WRAPPED and line[-1] not in ".!?:;{}()[]" and text[start].islower()


def _trimmed(text: str, start: int, end: int) -> tuple[int, int]:
    whole = text[start:end]
    return start + len(whole) - len(whole.lstrip()), start + len(whole.rstrip())


def _found(word: str, tokens: set[str], beginnings: str, text: str) -> float:
    word = word.lower()
    if word in tokens:
        return 1.0
    if not word.isascii() and _DENSE.search(word):  # such scripts have no spaces: by pairs of characters
        pairs = [word[i : i + 2] for i in range(max(1, len(word) - 1))]
        return sum(pair in text for pair in pairs) / len(pairs)
    stem = word[: max(4, len(word) - 2)]
    return _BEGINNING if len(word) > 3 and f" {stem}" in beginnings else 0.0


def tokens_about(count: int) -> str:
    """A number of tokens, as exact as it is known: "850", "13.8k", "214k"."""
    return str(count) if count < 1000 else f"{count / 1000:.{int(count < 100_000)}f}k"
