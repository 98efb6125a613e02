"""Browsers that were let in: each has a cookie, which ends when it is not used, and in any case after a while.

A cookie opens nothing but the page. What is kept of it opens nothing at all, and belongs to one token: with another
all cookies have ended.
"""

from __future__ import annotations

import hashlib
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from indexer.files import replace_file
from indexer.paths import private_dir

#: A cookie ends when it was not used for so long, and when it is so old.
IDLE_SECONDS, LONGEST_SECONDS = 12 * 3600.0, 30 * 86_400.0
#: What a clock may be set back without anybody having to come in again.
SLACK_SECONDS = 300.0
#: When it was last used is written down so often: a restart takes no longer from it.
NOTED_SECONDS = 600.0
#: The one that was not used for longest gives way.
MAX_VISITS = 64

log = logging.getLogger(__name__)


class Visits:
    """The cookies called `name` that are good, kept in `file` over a restart. `token` gives the token of now."""

    def __init__(self, name: str, file: Path, token: Callable[[], str], now: Callable[[], float] = time.time) -> None:
        self.name = name
        self._file = file
        self._token = token
        self._now = now
        self._seen = self._kept()
        self._noted = 0.0

    def begin(self) -> str:
        """Let a browser in: what its cookie holds."""
        value = secrets.token_urlsafe(32)
        now = self._now()
        self._seen = {key: times for key, times in self._seen.items() if self._lasts(*times)}
        while len(self._seen) >= MAX_VISITS:
            del self._seen[min(self._seen, key=lambda key: self._seen[key][1])]
        self._seen[self._key(value)] = (now, now)
        self._note()
        return value

    def good(self, values: Sequence[str]) -> bool:
        """Whether one of these is a cookie of ours that has not ended; it is being used."""
        return any(self._use(value) for value in values)

    def end(self) -> None:
        """End all of them."""
        self._seen.clear()
        self._note()

    def _use(self, value: str) -> bool:
        key = self._key(value)
        times = self._seen.get(key)
        if times is None:
            return False
        if not self._lasts(*times):
            del self._seen[key]
            return False
        self._seen[key] = (times[0], self._now())
        if self._now() - self._noted >= NOTED_SECONDS:
            self._note()
        return True

    def _lasts(self, begun: float, used: float) -> bool:
        now = self._now()
        return -SLACK_SECONDS <= now - begun < LONGEST_SECONDS and -SLACK_SECONDS <= now - used < IDLE_SECONDS

    def _key(self, value: str) -> str:
        """What of a cookie is kept: what is looked up by it tells nothing by how long it takes."""
        return hashlib.blake2b(value.encode("utf-8", "replace"), key=self._token().encode()[:64]).hexdigest()

    def _note(self) -> None:
        self._noted = self._now()
        try:
            replace_file(private_dir(self._file.parent) / self._file.name, [orjson.dumps(self._seen)], durable=False)
        except OSError as error:  # a restart will end them, which is the safe side
            log.warning("who was let in cannot be written down: %s", error)

    def _kept(self) -> dict[str, tuple[float, float]]:
        try:
            given = orjson.loads(self._file.read_bytes())
            return {str(key): (float(begun), float(used)) for key, (begun, used) in given.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}
