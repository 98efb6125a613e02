"""A score for people: as a percentage, and in a word."""

from __future__ import annotations

#: Each word, and the lowest score that it describes.
_WORDS = ((0.6, "very likely"), (0.3, "likely"), (0.1, "possible"), (0.0, "unlikely"))


def chance(score: float) -> str:
    """Return the word for a score from 0 to 1."""
    return next(word for least, word in _WORDS if score >= least)


def percent(score: float) -> str:
    """Return a score from 0 to 1 as text: "72 %". Its ends are "< 1 %" and "> 99 %"."""
    if score < 0.01:
        return "< 1 %"
    return "> 99 %" if score > 0.99 else f"{score:.0%}".replace("%", " %")
