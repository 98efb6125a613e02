"""The type of a text without secrets, what marks where they were, and such texts made shorter.

That is done here alone: a text is masked first, and a mask is never cut in two.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NewType

#: A text from which secrets were taken out.
Masked = NewType("Masked", str)
NOTHING = Masked("")

#: Raised whenever the output changes for the same input: all that was made of masked texts is then made again.
VERSION = 15

#: How a mask begins; behind it stand the kind of the secret and a bracket.
MARK = "[REDACTED:"

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
