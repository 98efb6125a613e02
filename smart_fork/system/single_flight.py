"""One answer for a request that comes twice: a client that has given up waiting asks again."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from dataclasses import field
from typing import Generic, TypeVar

from indexer.shapes import dataclass

T = TypeVar("T")

#: How long an answer is kept for a request that comes again.
KEPT_SECONDS = 10.0


@dataclass(slots=True)
class _Flight(Generic[T]):
    answer: Future[T] = field(default_factory=Future)
    done_at: float | None = None


class SingleFlight(Generic[T]):
    """Work that is done once for requests of the same key that come while it is done, or shortly after."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._flights: dict[Hashable, _Flight[T]] = {}

    def do(self, key: Hashable, work: Callable[[], T], *, keep: Callable[[T], bool] = lambda _: True) -> T:
        """What `work` gives, or what it gave for the same key just now.

        An answer that is not to be kept, or an error, goes to those who are waiting and to nobody who comes later.
        """
        with self._lock:
            self._forget()
            flight = self._flights.get(key)
            mine = flight is None
            if flight is None:
                flight = self._flights[key] = _Flight()
        if not mine:
            return flight.answer.result()
        try:
            answer = work()
        except BaseException as error:
            self._land(key, flight, kept=False)
            flight.answer.set_exception(error)
            raise
        self._land(key, flight, kept=keep(answer))
        flight.answer.set_result(answer)
        return answer

    def _land(self, key: Hashable, flight: _Flight[T], *, kept: bool) -> None:
        with self._lock:
            flight.done_at = self._now()
            if not kept:
                del self._flights[key]

    def _forget(self) -> None:
        now = self._now()
        old = [key for key, flight in self._flights.items() if flight.done_at and now - flight.done_at > KEPT_SECONDS]
        for key in old:
            del self._flights[key]
