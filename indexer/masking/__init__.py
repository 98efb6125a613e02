"""Masking of secrets in text that is exported, indexed, logged or shown: `mask` replaces each by ``[REDACTED:<kind>]``.

Shorten text only here, and only after masking: half a secret would not be recognized, and a mask must not be split.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NewType

from indexer.masking.rules import MARK

#: A text in which secrets are masked.
Masked = NewType("Masked", str)
NOTHING = Masked("")

#: Increase this when the output for an equal input changes. Everything that is made of masked texts is then made again.
VERSION = 15

_CUT = "..."
#: Length of the longest mask: `MARK`, a kind of at most 40 characters, and the bracket.
_LONGEST_MASK = len(MARK) + 41


def shorten(text: Masked, limit: int) -> Masked:
    """Return `text` on one line with collapsed white space, of at most `limit` characters. An ellipsis marks a cut."""
    line = " ".join(text[: limit * 8].split())
    if len(line) <= limit:
        return Masked(line)
    end = max(0, limit - len(_CUT))
    start, _ = _mask_around(line, end)
    return Masked(line[: min(start, end)].rstrip() + _CUT[:limit])


def beginning(text: Masked, limit: int) -> Masked:
    """Return the first `limit` characters of `text`, followed by a note on how many characters are left out."""
    if len(text) <= limit:
        return text
    end, _ = _mask_around(text, limit)
    return Masked(f"{text[:end]}\n… ({len(text) - end} more characters)")


def ending(text: Masked, limit: int) -> Masked:
    """Return the last `limit` characters of `text`, with the whole of a mask that the cut would split."""
    _, start = _mask_around(text, max(0, len(text) - limit))
    return Masked(text[start:])


def between(text: Masked, start: int, end: int, *, cut: tuple[bool, bool] = (False, False)) -> Masked:
    """Return the text between two positions. `cut` says whether to put an ellipsis before the result, and behind it."""
    _, start = _mask_around(text, start)
    end, _ = _mask_around(text, end)
    return Masked("…" * cut[0] + text[start:end].rstrip() + "…" * cut[1])


def joined(by: str, texts: Iterable[Masked]) -> Masked:
    """Join masked `texts` with the separator `by`."""
    return Masked(by.join(texts))


def _mask_around(text: str, position: int) -> tuple[int, int]:
    """Return the start and end of the mask that contains `position`. Outside a mask, return `position` twice."""
    start = text.rfind(MARK, max(0, position - _LONGEST_MASK), position + len(MARK) - 1)
    end = text.find("]", start, start + _LONGEST_MASK) + 1 if start >= 0 else 0
    return (start, end) if start < position < end else (position, position)


_KNOWN: ContextVar[tuple[str, ...]] = ContextVar("secrets known here", default=())


@contextmanager
def knowing(secrets: Iterable[str]) -> Iterator[None]:
    """Mask also the strings `secrets` in this block. Another part of the session shows that they are secret."""
    before = _KNOWN.set(tuple(secrets))
    try:
        yield
    finally:
        _KNOWN.reset(before)


def mask(text: str) -> Masked:
    """Replace each secret in `text` by ``[REDACTED:<kind>]``. Masking a masked text changes nothing."""
    return Masked(_redact()(_without_known(text)))


def mask_cut(text: str) -> Masked:
    """Mask a text that another program has truncated, including a possible beginning of a secret at its end."""
    from indexer.masking.secrets import masked_before_a_cut

    return Masked(masked_before_a_cut(text))


def mask_parts(parts: Sequence[str]) -> list[Masked]:
    """Mask `parts`, which follow each other in one text. A secret may continue in the next part."""
    from indexer.masking.secrets import redact_parts

    return [Masked(part) for part in redact_parts([_without_known(part) for part in parts])]


def mask_screen(text: str) -> Masked:
    """Mask secrets in the screen of a terminal, which may wrap or truncate them."""
    from indexer.masking.secrets import masked_screen

    return Masked(masked_screen(text))


def _without_known(text: str) -> str:
    for secret in _KNOWN.get():
        text = text.replace(secret, f"{MARK}secret]")
    return text


@cache
def _redact() -> Callable[[str], str]:
    """Return the function that masks secrets. Its rules take long to load, so they are loaded on first use."""
    from indexer.masking.secrets import redact

    return redact


#: Maximum number of characters of cached texts, those of some dozen long sessions. The oldest ones are dropped.
KEPT_CHARACTERS = 8 << 20


class Masks:
    """A thread-safe cache of texts with their masked forms."""

    def __init__(self, mask: Callable[[str], Masked], most: int = KEPT_CHARACTERS) -> None:
        self._mask = mask
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        self._known: dict[str, Masked] = {}

    def __call__(self, text: str) -> Masked:
        known = self._known.get(text)
        if known is not None:
            return known
        masked = self._mask(text)
        self.know(text, masked)
        return masked

    def know(self, text: str, masked: Masked) -> None:
        """Add a `text` that another process has masked."""
        with self._lock:
            if text not in self._known:
                self._known[text] = masked
                self._size += len(text)
            while self._size > self._most:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._size -= len(oldest)


#: `mask` with a cache, for texts that are read into the index, because many occur more than once.
mask_once = Masks(mask)
