"""What the questions of one process share: many clients that ask at once are one look at the logs, not one each."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection

from indexer.project import Project
from indexer.writer import LOCK_SECONDS, IndexBusyError

#: A look at all logs holds so long for all who ask.
HOLDS_SECONDS = 1.0


class Together:
    """Shared by the questions of a process that stays. `doing` says what its indexer is at, such as ``reading 3/7``,
    `None` where it has none; `go_on` has it do what is left, the project of whoever asks first; `put_first` has it make
    the vectors of these passages before all others.

    Where there is one, questions read for a moment only and make no vectors. While it reads or embeds everything, they
    do neither: they are answered with what there is, and do not wait for a lock that is not to be had, or, worse, get
    it and do the indexer's work while somebody waits.
    """

    def __init__(
        self,
        doing: Callable[[], str | None],
        go_on: Callable[[Project | None], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
        put_first: Callable[[Project | None, Collection[int]], None] = lambda *_: None,
    ) -> None:
        self._doing, self._clock = doing, clock
        self.go_on, self.put_first = go_on, put_first
        self._looking = threading.Lock()
        self._looked_at: float | None = None

    @property
    def indexed(self) -> bool:
        """Whether there is an indexer."""
        return self._doing() is not None

    @property
    def reading(self) -> bool:
        """Whether it is reading logs."""
        return (self._doing() or "").startswith("reading")

    def left(self, look: Callable[[], int]) -> int:
        """How many changed logs `look` leaves unread; 0 without another look where one has just left none.

        Raises:
            IndexBusyError: another question is at it, and takes long.
        """
        if not self._looking.acquire(timeout=LOCK_SECONDS):
            raise IndexBusyError("another search is updating the index")
        try:
            now = self._clock()
            if self._looked_at is not None and now - self._looked_at < HOLDS_SECONDS:
                return 0
            self._looked_at = None
            left = look()
            if not left:
                self._looked_at = now
            return left
        finally:
            self._looking.release()
