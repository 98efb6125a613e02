"""Whether what a session has sent is still in its model's cache, where reading it costs a fraction."""

from __future__ import annotations

import time
from datetime import datetime, timedelta

from indexer.transcripts.model import Cache
from indexer.unchecked import seconds_in
from smart_fork.agents.checkpoints import author_of


def own_cached_until(path: str, cache: Cache) -> str:
    """Return until when the model's cache has what a fork of the session in a log is sent, as `cached_until` says it.

    Nothing of another person's session is in a cache that is ours.
    """
    return "" if author_of(path) else cached_until(cache)


def cached_until(cache: Cache) -> str:
    """Return until when a cache lives; empty where the log does not say it. A time ahead of the clock is no time."""
    if not cache.seconds or age_of(cache.used) is None:
        return ""
    until = datetime.fromisoformat(cache.used) + timedelta(seconds=cache.seconds)
    return until.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def is_cached(until: str) -> bool:
    """Whether a cache that lives until then is still there."""
    return (_left(until) or 0) > 0


def cache_in_words(until: str, first: int = 0) -> str:
    """How long a cache still lives, for a person; empty where the log does not say it. With `first` it has so many
    tokens of a fork.
    """
    left = _left(until)
    if left is None or left <= 0:
        return "" if left is None else "no longer cached"
    minutes = round(left / 60)
    words = f"still cached for about {minutes} minute{'s' * (minutes > 1)}" if minutes else "still cached for seconds"
    return f"the first {first:,} {words}" if first else words


def age_of(moment: str) -> float | None:
    """How many seconds ago that was; `None` for what is no time, or is yet to come."""
    left = _left(moment)
    return -left if left is not None and left <= 0 else None


def ago(seconds: float) -> str:
    """An age for a person."""
    for least, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= least:
            return f"{int(seconds // least)} {unit}"
    return f"{int(seconds)} s"


def _left(moment: str) -> float | None:
    at = seconds_in(moment)
    return None if at is None else at - time.time()
