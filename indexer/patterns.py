"""Patterns that are compiled where they are first used: a process that soon ends uses few of those that it imports."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any


def compile_all() -> None:
    """Compile all patterns of the modules that are imported: for a process that is to be ready."""
    for one in _made:
        for name in ("search", "match", "fullmatch", "finditer", "findall", "sub", "split"):
            getattr(one, name)


class _Late:
    """Stands for a pattern. The methods of the compiled one become its own, so that later uses cost nothing more."""

    def __init__(self, pattern: Any, flags: int = 0) -> None:
        self._given = (pattern, flags)
        _made.append(self)

    def __getattr__(self, name: str) -> object:
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value


_made: list[_Late] = []

if TYPE_CHECKING:
    late = re.compile  # what type checkers know
else:
    #: What `re.compile` gives, made on the first use. A pattern that is wrong fails there, so a test uses each.
    late = _Late
