"""The session that a fork of Codex goes on from: the fork's file has only the records that are its own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class ForkBase(NamedTuple):
    """A session, and the number of its first record that the fork has no more; empty and `None` where a log is odd."""

    session_id: str
    end: int | None


def base_of(header: Mapping[str, Any]) -> ForkBase | None:
    """What a header says of it; `None` where the file has all records itself."""
    base = header.get("history_base")
    if not isinstance(base, dict):
        return None
    named, end = base.get("thread_id"), base.get("end_ordinal_exclusive")
    return ForkBase(named if isinstance(named, str) else "", end if type(end) is int else None)
