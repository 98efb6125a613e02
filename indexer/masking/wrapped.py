"""Tokens of a known length that a line end cuts in two: what is missing stands at the beginning of the next line."""

from __future__ import annotations

from indexer.masking.phrase import Phrase, by_sign

#: How each begins, and how many characters follow.
_LENGTHS = {
    "ghp_": ("github-token", 36),
    "gho_": ("github-token", 36),
    "ghu_": ("github-token", 36),
    "ghs_": ("github-token", 36),
    "ghr_": ("github-token", 36),
    "github_pat_": ("github-token", 82),
    "glpat-": ("gitlab-token", 20),
    "npm_": ("npm-token", 36),
    "AIza": ("google-key", 35),
}
_LEAST = 4
_CHARACTER = "[A-Za-z0-9_-]"
#: A line end, and what quotes, diffs and indents put before the next line.
_BREAK = r"\\?\r?\n[ \t>+|#-]{0,12}"


def _cut(beginning: str, length: int) -> str:
    """A pattern of the token with one line end anywhere in it, and no character more than it has."""
    ways = (f"{_CHARACTER}{{{first}}}{_BREAK}{_CHARACTER}{{{length - first}}}" for first in range(_LEAST, length))
    return rf"(?<![A-Za-z0-9])({beginning}(?:{'|'.join(ways)}))(?!{_CHARACTER})"


WRAPPED = by_sign(
    *(
        Phrase(kind, beginning.lower(), _cut(beginning, length), "mixed", begins=True)
        for beginning, (kind, length) in _LENGTHS.items()
    )
)
