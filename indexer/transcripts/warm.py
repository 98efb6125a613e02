"""What was packed last, as objects beside its bytes: of a log that grows all the time only what is new is packed and
unpacked.

It saves time alone: whatever is not here is made again, and comes out the same.
"""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from indexer.transcripts.model import Turn

#: Bytes of packed turns: the logs of some dozen sessions that go on at the same time. As objects they are ten times it.
KEPT_BYTES = 4 << 20


class WarmTurns(NamedTuple):
    """Some turns of a log in a row, and their packed form."""

    turns: tuple[Turn, ...]
    packed: bytes


class _Log(NamedTuple):
    digest: bytes
    batches: tuple[WarmTurns, ...]


class Warm:
    """The logs that were packed last. For any number of threads."""

    def __init__(self, most: int = KEPT_BYTES) -> None:
        self._most = most
        self._size = 0
        self._lock = threading.Lock()
        #: By the first turn, the object itself: it lives as long as the entry does.
        self._logs: OrderedDict[int, _Log] = OrderedDict()

    def remember(self, packed: bytes, batches: Sequence[WarmTurns]) -> None:
        """These are the `batches` of which `packed` consists; they take the place of what that log had before."""
        if not batches:
            return
        first = id(batches[0].turns[0])
        with self._lock:
            self._let_go(first)
            self._logs[first] = _Log(_digest(packed), tuple(batches))
            self._size += _size(batches)
            while self._size > self._most:
                self._let_go(next(iter(self._logs)))

    def recall(self, packed: bytes) -> list[Turn] | None:
        """The turns in `packed`, if they are still here."""
        digest = _digest(packed)
        with self._lock:
            found = next((log for log in self._logs.values() if log.digest == digest), None)
        return None if found is None else [turn for batch in found.batches for turn in batch.turns]

    def batches(self, first: Turn) -> tuple[WarmTurns, ...]:
        """What is known of the log that begins with this turn."""
        with self._lock:
            log = self._logs.get(id(first))
        return log.batches if log is not None else ()

    def _let_go(self, first: int) -> None:
        log = self._logs.pop(first, None)
        if log is not None:
            self._size -= _size(log.batches)


def _digest(packed: bytes) -> bytes:
    return hashlib.blake2b(packed, digest_size=16).digest()


def _size(batches: Sequence[WarmTurns]) -> int:
    return sum(len(batch.packed) for batch in batches)
