"""The sentences of a passage, whatever it is written in, and the one that has most of the words that were asked for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import pairwise

from indexer.patterns import late

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
