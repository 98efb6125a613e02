"""The names of Codex's rollouts, ``YYYY/MM/DD/rollout-<local time>-<id>.jsonl``, and what they tell."""

from __future__ import annotations

import re
from pathlib import Path

_ID = re.compile(r"([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12})$")
_DAY = re.compile(r"rollout-(\d{4})-(\d\d)-(\d\d)T")


def is_id(session_id: str) -> bool:
    """Whether a rollout may be named after it."""
    return _ID.fullmatch(session_id) is not None


def id_in(path: Path) -> str:
    """The id of the session that the file is named after; empty where it is not."""
    named = _ID.search(path.stem)
    return named[1] if named else ""


def day_of(name: str) -> tuple[str, ...]:
    """Year, month and day that the name of a rollout says; nothing where it is none's."""
    day = _DAY.match(name)
    return day.groups() if day else ()


def is_moved(path: Path) -> bool:
    """Codex files each session under the day that its name says; what it archives it moves."""
    day = day_of(path.name)
    return bool(day) and path.parent.parts[-3:] != day
