"""Whether what a session has sent is still in its model's cache, where reading it costs a fraction."""

from __future__ import annotations

import time
from datetime import datetime

#: For so long after its last use providers keep what they have read, at least by what they say.
KEPT_SECONDS = 300.0


def may_be_cached(last_used: str, now: float | None = None) -> bool:
    """Whether what was sent at that time may still be there. A time ahead of the clock is no time."""
    age = age_of(last_used, now)
    return age is not None and age < KEPT_SECONDS


def age_of(moment: str, now: float | None = None) -> float | None:
    """How many seconds ago that was; `None` for what is no time, or is yet to come."""
    try:
        age = (time.time() if now is None else now) - datetime.fromisoformat(moment).timestamp()
    except (ValueError, OverflowError):
        return None
    return age if age >= 0 else None
