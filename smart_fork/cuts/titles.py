"""Titles that quote a prompt. A cut of the prompt finds them in the session and in copies with the same title."""

from __future__ import annotations

import re
from collections.abc import Iterable

from indexer.transcripts.boilerplate import strip_boilerplate
from indexer.transcripts.titles import title_of
from smart_fork.cuts.marks import mark

_SUFFIX = re.compile(r"(\s*\(Branch(?: \d+)?\))+$", re.IGNORECASE)
_PREFIX = "title:"
#: Titles are made from at most this many characters of a prompt.
_LOOKED_AT = 1 << 16


def without_suffix(title: str) -> str:
    """Return the title of a branch's parent."""
    return _SUFFIX.sub("", title).strip()


def key(title: str) -> str:
    """Return the title in a form for comparison."""
    return " ".join(title.split()).casefold()


def made_of(prompt: str) -> tuple[str, ...]:
    """Return the mark of the title that a prompt gives its session; nothing for automated prompts."""
    said = strip_boilerplate(prompt[:_LOOKED_AT])
    return (_mark(title_of("", (said,))),) if said.strip() else ()


def quoting(title: object) -> tuple[str, ...]:
    """Return the mark of the prompt that a title may quote."""
    return (_mark(without_suffix(title)),) if isinstance(title, str) and title.strip() else ()


def marks(keys: Iterable[str]) -> set[str]:
    """Return the keys that are marks of titles."""
    return {one for one in keys if one.startswith(_PREFIX)}


def _mark(title: str) -> str:
    return f"{_PREFIX}{mark(key(title).encode('utf-8', 'surrogatepass'))}"
