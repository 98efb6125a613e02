"""Whether what a session has sent is still in its model's cache, where reading it costs a fraction."""

from __future__ import annotations

import time
from datetime import datetime

#: For so long after its last use providers keep what they have read, at least by what they say.
KEPT_SECONDS = 300.0


def may_be_cached(last_used: str, now: float | None = None) -> bool:
    """Whether what was sent at that time may still be there. A time ahead of the clock is no time."""
    try:
        age = (time.time() if now is None else now) - datetime.fromisoformat(last_used).timestamp()
    except (ValueError, OverflowError):
        return False
    return 0 <= age < KEPT_SECONDS
