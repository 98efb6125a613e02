"""Patterns that are compiled where they are first used: a process that soon ends uses few of those that it imports."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast


def late(pattern: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """What `re.compile` gives, made on the first use. A pattern that is wrong fails there, so a test uses each."""
    return cast("re.Pattern[AnyStr]", _Late(pattern, flags))


class _Late:
    """Stands for a pattern. The methods of the compiled one become its own, so that later uses cost nothing more."""

    def __init__(self, pattern: Any, flags: int) -> None:
        self._given = (pattern, flags)

    def __getattr__(self, name: str) -> object:
        value = getattr(re.compile(*self._given), name)
        setattr(self, name, value)
        return value
