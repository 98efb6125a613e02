"""How a browser gets in: a code that works once and soon expires, exchanged for a cookie.

The token itself never stands in an address, where the browser's history would keep it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable

CODE_SECONDS = 60.0
MAX_CODES = 16


class Codes:
    """Codes that were given out and not used."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def new(self) -> str:
        """A code for one entry."""
        code = secrets.token_urlsafe(24)
        with self._lock:
            while len(self._until) >= MAX_CODES:
                self._until.pop(next(iter(self._until)))
            self._until[code] = self._now() + CODE_SECONDS
        return code

    def use(self, code: str) -> bool:
        """Whether `code` opens now; it never does again."""
        with self._lock:
            return self._until.pop(code, 0.0) > self._now()
