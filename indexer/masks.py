"""Masking each text once: a session that grows comes again and again with all that it had before."""

from __future__ import annotations

import threading
from collections.abc import Callable

from indexer.masking import Masked

#: Characters of texts that are remembered, the oldest of which are let go of: those of some dozen long sessions.
KEPT_CHARACTERS = 8 << 20


class Masks:
    """`mask`, remembered. For any number of threads."""

    def __init__(self, mask: Callable[[str], Masked], most: int = KEPT_CHARACTERS) -> None:
        self._mask = mask
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        self._known: dict[str, Masked] = {}

    def __call__(self, text: str) -> Masked:
        """`text`, masked."""
        known = self._known.get(text)
        if known is not None:
            return known
        masked = self._mask(text)
        with self._lock:
            if text not in self._known:
                self._known[text] = masked
                self._size += len(text)
            while self._size > self._most:
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._size -= len(oldest)
        return masked
