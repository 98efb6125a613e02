"""Secrets out of what is exported, indexed, logged or shown: `mask` puts ``[REDACTED:<kind>]`` in their place.

`Masked` is a text that went through it. Only such a text can be shortened, which is done here alone: of a secret that a
cut has gone through, nothing would be known any more. A mask is never cut in two.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import NewType

from indexer.masking.rules import MARK

__all__ = [
    "MARK",
    "NOTHING",
    "VERSION",
    "Masked",
    "Masks",
    "beginning",
    "between",
    "ending",
    "joined",
    "knowing",
    "mask",
    "mask_cut",
    "mask_once",
    "mask_parts",
    "mask_screen",
    "shorten",
]


#: A text from which secrets were taken out.
Masked = NewType("Masked", str)
NOTHING = Masked("")

#: Raised whenever the output changes for the same input: all that was made of masked texts is then made again.
VERSION = 15

_CUT = "..."
#: `MARK`, a kind of at most 40 characters, and the bracket.
_LONGEST_MASK = len(MARK) + 41


def shorten(text: Masked, limit: int) -> Masked:
    """`text` on one line, white space collapsed, at most `limit` characters with an ellipsis at a cut."""
    line = " ".join(text[: limit * 8].split())
    if len(line) <= limit:
        return Masked(line)
    end = max(0, limit - len(_CUT))
    start, _ = _mask_around(line, end)
    return Masked(line[: min(start, end)].rstrip() + _CUT[:limit])


def beginning(text: Masked, limit: int) -> Masked:
    """The first `limit` characters of `text`, and behind them how many more there are."""
    if len(text) <= limit:
        return text
    end, _ = _mask_around(text, limit)
    return Masked(f"{text[:end]}\n… ({len(text) - end} more characters)")


def ending(text: Masked, limit: int) -> Masked:
    """The last `limit` characters of `text`."""
    _, start = _mask_around(text, max(0, len(text) - limit))
    return Masked(text[start:])


def between(text: Masked, start: int, end: int, *, cut: tuple[bool, bool] = (False, False)) -> Masked:
    """Return what stands between two positions, with an ellipsis where it is `cut` off before or behind."""
    _, start = _mask_around(text, start)
    end, _ = _mask_around(text, end)
    return Masked("…" * cut[0] + text[start:end].rstrip() + "…" * cut[1])


def joined(by: str, texts: Iterable[Masked]) -> Masked:
    """`texts` as one, with `by` between them."""
    return Masked(by.join(texts))


def _mask_around(text: str, position: int) -> tuple[int, int]:
    """Return where the mask that a cut at `position` would go through begins and ends; without one, `position`."""
    start = text.rfind(MARK, max(0, position - _LONGEST_MASK), position + len(MARK) - 1)
    end = text.find("]", start, start + _LONGEST_MASK) + 1 if start >= 0 else 0
    return (start, end) if start < position < end else (position, position)


_KNOWN: ContextVar[tuple[str, ...]] = ContextVar("secrets known here", default=())


@contextmanager
def knowing(secrets: Iterable[str]) -> Iterator[None]:
    """Mask these texts as well, wherever they are: a session shows elsewhere that they are secret."""
    before = _KNOWN.set(tuple(secrets))
    try:
        yield
    finally:
        _KNOWN.reset(before)


def mask(text: str) -> Masked:
    """`text` with every secret in it replaced by ``[REDACTED:<kind>]``; ids, hashes, code and placeholders stay.

    Doing it again changes nothing.
    """
    return Masked(_redact()(_without_known(text)))


def mask_cut(text: str) -> Masked:
    """A text that others have cut, masked: what could be the beginning of a secret at its end is taken for one."""
    from indexer.masking.secrets import masked_before_a_cut

    return Masked(masked_before_a_cut(text))


def mask_parts(parts: Sequence[str]) -> list[Masked]:
    """Texts that were cut from one, in order, masked: a secret may go from one into the next."""
    from indexer.masking.secrets import redact_parts

    return [Masked(part) for part in redact_parts([_without_known(part) for part in parts])]


def mask_screen(text: str) -> Masked:
    """Mask a terminal's screen: a secret may be wrapped, or cut at an ellipsis or the end."""
    from indexer.masking.secrets import masked_screen

    return Masked(masked_screen(text))


def _without_known(text: str) -> str:
    for secret in _KNOWN.get():
        text = text.replace(secret, f"{MARK}secret]")
    return text


@cache
def _redact() -> Callable[[str], str]:
    """Patterns are compiled where there is something to mask."""
    from indexer.masking.secrets import redact

    return redact


#: Characters of texts that are remembered, the oldest of which are let go of: those of some dozen long sessions.
KEPT_CHARACTERS = 8 << 20


class Masks:
    """`mask`, remembered. For any number of threads."""

    def __init__(self, mask: Callable[[str], Masked], most: int = KEPT_CHARACTERS) -> None:
        self._mask = mask
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        self._known: dict[str, Masked] = {}

    def __call__(self, text: str) -> Masked:
        """`text`, masked."""
        known = self._known.get(text)
        if known is not None:
            return known
        masked = self._mask(text)
        self.know(text, masked)
        return masked

    def know(self, text: str, masked: Masked) -> None:
        """Remember what `text` is masked. Other processes mask as well."""
        with self._lock:
            if text not in self._known:
                self._known[text] = masked
                self._size += len(text)
            while self._size > self._most:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._size -= len(oldest)


#: `mask` for what is read into the index, where the same text comes more than once.
mask_once = Masks(mask)
