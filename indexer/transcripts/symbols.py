"""Names of code in what tools were given and gave back: a session is found by a name that it only saw.

Tool output itself is never indexed; a name such as ``getUserById`` or ``MAX_RETRY_COUNT`` is a few bytes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

#: Characters looked at in one input or output; longer ones are listings and dumps.
HEAD_CHARACTERS = 16_384
#: Different names kept a session.
MAX_SYMBOLS = 8_000
#: Parts of one list looked at.
MAX_PARTS = 100

#: snake_case, UPPER_CASE, camelCase, PascalCase; a word of one kind of letter alone is none.
_SYMBOL = re.compile(rb"[A-Za-z][a-z0-9]*(?:_[A-Za-z0-9]|[A-Z][A-Za-z0-9]*(?:[a-z0-9]|_[A-Za-z0-9]))")
_SHORTEST, _LONGEST = 6, 64
#: Keys and digests look like names with many digits in them.
_DIGITS = re.compile(rb"[0-9]")
_MAX_DIGITS = 8
#: Texts are searched so many characters together: calling NumPy for each would cost more than the search.
_BATCH = 1 << 16
_UPPER, _LOWER, _UNDERSCORE, _OTHER = b"Aa_ "


def _kind(byte: int) -> int:
    character = chr(byte)
    if not character.isascii() or not (character.isalnum() or character == "_"):
        return _OTHER
    return _UNDERSCORE if character == "_" else _UPPER if character.isupper() else _LOWER


_KINDS = bytes(map(_kind, range(256)))


class Symbols:
    """The different names in the texts that are added, in the order of their first appearance."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self._known: dict[bytes, None] = dict.fromkeys(name.encode() for name in known)
        self._waiting: list[str] = []
        self._size = 0

    def __iter__(self) -> Iterator[str]:
        self._search()
        return (name.decode() for name in self._known)

    def add(self, text: str) -> None:
        """The names at the beginning of `text`."""
        if len(self._known) < MAX_SYMBOLS:
            self._waiting.append(text[:HEAD_CHARACTERS])
            self._size += min(len(text), HEAD_CHARACTERS)
            if self._size >= _BATCH:
                self._search()

    def add_all(self, value: object) -> None:
        """The same for every text in the arguments of a call, however deep."""
        waiting = [value]
        while waiting:
            value = waiting.pop()
            if isinstance(value, str):
                self.add(value)
            elif isinstance(value, dict):
                waiting += reversed(value.values())
            elif isinstance(value, list):
                waiting += reversed(value[:MAX_PARTS])

    def _search(self) -> None:
        if not self._waiting:
            return
        known = self._known
        for name in dict.fromkeys(_candidates("\n".join(self._waiting))):
            if len(known) >= MAX_SYMBOLS:
                break
            if name not in known and _SYMBOL.match(name) and len(_DIGITS.findall(name)) <= _MAX_DIGITS:
                known[name] = None
        self._waiting, self._size = [], 0


def _candidates(text: str) -> list[bytes]:
    """The words of `text` that have an underscore, or a capital between a letter and a small one: every name does."""
    import numpy as np

    plain = f" {text} ".encode("ascii", "replace")
    kinds = np.frombuffer(plain.translate(_KINDS), dtype=np.uint8)
    within = kinds != _OTHER
    edges = np.flatnonzero(within[1:] != within[:-1])  # the last position before a word, its last, and so on
    inner = kinds[1:-1]
    signs = np.flatnonzero((inner == _UNDERSCORE) | ((inner == _UPPER) & (kinds[2:] == _LOWER) & within[:-2]))
    words = np.searchsorted(edges, signs, side="right") // 2
    words = words[np.flatnonzero(np.diff(words, prepend=-1))]
    starts, ends = edges[0::2][words] + 1, edges[1::2][words] + 1
    fitting = (ends - starts >= _SHORTEST) & (ends - starts <= _LONGEST)
    return [plain[start:end] for start, end in zip(starts[fitting].tolist(), ends[fitting].tolist(), strict=True)]
