"""Names in program code (of functions, types and constants) that a session's tool inputs and outputs mention.

A search can find a session by such a name alone. Tool output itself is never indexed, but a name such as
``getUserById`` or ``MAX_RETRY_COUNT`` takes a few bytes. A part of a secret may look like a name, so each new name must
also be visible in the masked lines around it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import orjson

from indexer.json_values import dict_in, json_in
from indexer.masking import mask

#: Number of characters of one input or output that are searched. Longer ones are listings and dumps.
HEAD_CHARACTERS = 16_384
#: A longer text is cut between two lines, or this far behind those characters, so that no secret in them is split.
_EXTRA_CHARACTERS = 4_096
#: Number of characters above a line that may show that the line has a secret.
_CONTEXT_CHARACTERS = 200
#: Names of arguments that show that a value is secret; below, arguments whose value may be such a name.
_TELLING = re.compile(r"(?i)pass|pw|secret|token(?!s)|key|auth|cookie|credential")
_NAMES = ("name", "key", "id", "property", "header")
#: Maximum number of different names of a session.
MAX_SYMBOLS = 8_000
#: Maximum number of items of a list that are searched.
MAX_PARTS = 100

#: snake_case, UPPER_CASE, camelCase or PascalCase. The possessive quantifiers save time, because most words are no
#: names.
_SYMBOL = re.compile(
    r"\b[A-Za-z][a-z0-9]*+(?=[A-Z_])(?:_[A-Za-z0-9]|[A-Z][A-Za-z0-9]*(?:[a-z0-9]|_[A-Za-z0-9]))\w*+", re.ASCII
)
_MIN_CHARACTERS, _MAX_CHARACTERS = 6, 64
#: Error codes, also numbers that a word identifies as codes.
_CODE = re.compile(
    r"\b(?:[A-Z]{1,12}[-_]?[0-9]{2,8}|0x[0-9A-Fa-f]{4,16}|E(?!RROR|X)[A-Z]{3,20}(?:[ \t]+[\w.-]{1,64}:\d{1,5})?"
    r"|SQLSTATE[ :\[(]{0,3}[0-9A-Z]{5}|HTTP(?:/[\d.]{1,3})?[ :]{1,2}[45]\d\d|[45]\d\d[ \t]+(?:[A-Z][a-z]{2,15}[ \t]?)+"
    r"|(?:[Ee]xit|[Ss]tatus|[Ee]rror|[Rr]eturn)(?:[ \t](?:code|status))?[ :=]{1,2}(?:-?\d{2,10}|[3-9]))\b",
    re.ASCII,
)
#: Keys and digests look like names, but have many digits.
_DIGITS = re.compile(r"[0-9]")
_MAX_DIGITS = 8
#: Texts are collected up to this size before they are searched, because many are short.
_BATCH = 1 << 16
#: A cache of names that masking does not hide. Sessions of one run have most names in common.
_shown: dict[str, None] = {}
_MAX_SHOWN = 200_000


class Symbols:
    """A collector of names of code, such as ``getUserById``, in the added texts: each once, in order of appearance."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: dict[str, None] = dict.fromkeys(known)
        self._waiting: list[str] = []
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        self._search()
        return iter(self._known)

    def add(self, text: str) -> None:
        """Add the names of code at the beginning of `text`."""
        if len(self._known) < MAX_SYMBOLS:
            head = _head(text)
            if len(head) > HEAD_CHARACTERS:
                self._search()
            self._waiting.append(head)
            self._size += len(head)
            if len(head) > HEAD_CHARACTERS or self._size >= _BATCH:
                self._search()

    def add_all(self, value: object) -> None:
        """Add the names of code in each text of a call's input, at any depth."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                self.add(value)
            elif isinstance(value, dict):
                waiting += reversed((_masked(value) if _tells(value) else value).values())
            elif isinstance(value, list):
                parts = value[:MAX_PARTS]
                words = [part for part in parts if isinstance(part, str)]
                if words == parts and sum(map(len, words)) < HEAD_CHARACTERS:
                    self.add(" ".join(words))  # a command: one word tells what the next one is
                else:
                    waiting += reversed(parts)

    def add_codes(self, lines: Iterable[str]) -> None:
        """Add error codes (E0308, ENOENT, HTTP 418, SQLSTATE 42P01) in `lines`, the error lines of an output."""
        for line in lines:
            found = [one for one in _CODE.findall(line) if one not in self._known]
            if found and len(self._known) + len(found) <= MAX_SYMBOLS:
                self._search()  # names keep the order in which they were read
                shown = mask(line)
                self._known.update(dict.fromkeys(one for one in found if one in shown))

    def _search(self) -> None:
        text, known = "\n".join(self._waiting), self._known
        new: dict[str, int] = {}
        # A text that is longer is alone. What is beyond its head only shows whether a secret goes on there.
        last = HEAD_CHARACTERS if len(self._waiting) == 1 else len(text)
        for found in _SYMBOL.finditer(text):
            if found.start() >= last:
                break
            name = found[0]
            if name not in known and name not in new and _is_name(name):
                new[name] = found.start()
        shown = {name for name in new if name in _shown}
        shown.update(_shown_in(text, {name: place for name, place in new.items() if name not in shown}))
        for name in new:
            if name in shown and len(known) < MAX_SYMBOLS:
                known[name] = None
        if len(_shown) > _MAX_SHOWN:
            _shown.clear()
        _shown.update(dict.fromkeys(shown))
        self._waiting, self._size = [], 0

    @classmethod
    def forget_shown(cls) -> None:
        """Clear the cache of names that masking does not hide, so that removed text is not left in memory."""
        _shown.clear()


def _head(text: str) -> str:
    """Return the beginning of `text`, up to a line's end so that no secret is split. Private keys are masked."""
    if len(text) > HEAD_CHARACTERS:
        end = text.rfind("\n", HEAD_CHARACTERS - _EXTRA_CHARACTERS, HEAD_CHARACTERS)
        text = text[: end if end >= 0 else HEAD_CHARACTERS + _EXTRA_CHARACTERS]
    return _known(text) if "-----BEGIN" in text or "Private-Lines:" in text else text  # they go on for many lines


#: `mask` with a small cache: what a session writes is searched twice, and read again later.
_known = lru_cache(maxsize=16)(mask)


def _tells(arguments: Mapping[str, Any]) -> bool:
    """Return True if one argument of a call can show that another argument is secret, such as a name "PASSWORD"."""
    return any(map(_is_telling, arguments)) or any(
        key in arguments and isinstance(name := arguments[key], str) and _TELLING.search(name) for key in _NAMES
    )


@lru_cache(maxsize=1024)
def _is_telling(name: str) -> bool:
    return _TELLING.search(name) is not None


def _masked(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's input, masked as one JSON text, in which a name can show that its value is secret."""
    try:
        return dict_in(json_in(mask(orjson.dumps(arguments).decode())))
    except TypeError:
        return {}


def _is_name(word: str) -> bool:
    return _MIN_CHARACTERS <= len(word) <= _MAX_CHARACTERS and len(_DIGITS.findall(word)) <= _MAX_DIGITS


def _shown_in(text: str, names: Mapping[str, int]) -> Iterator[str]:
    """Yield those `names` (with positions in `text`) that stay visible when the lines around them are masked."""
    for start, end, inside in _surroundings(text, names):
        lines = text[start:end]
        masked = mask(lines)
        yield from inside if masked == lines else set(_SYMBOL.findall(masked)).intersection(inside)


def _surroundings(text: str, names: Mapping[str, int]) -> Iterator[tuple[int, int, list[str]]]:
    """Yield (start, end, names) for separate parts of `text`: the lines of some `names`, with some text above them."""
    start, end, inside = 0, -1, list[str]()
    for name, place in names.items():
        if place > end:
            above = text.rfind("\n", 0, max(0, place - _CONTEXT_CHARACTERS)) + 1
            if above > end:
                if inside:
                    yield start, end, inside
                start, inside = above, []
            end = text.find("\n", place)
            end = len(text) if end < 0 else end
        inside.append(name)
    if inside:
        yield start, end, inside
