"""Which changed logs are due: those that have been left alone for a moment, or have waited long enough."""

from __future__ import annotations

from collections.abc import Iterable

#: A log is read when nobody has written to it for so long …
QUIET_SECONDS = 1.0
#: … or after so long, where somebody writes without pause.
LONGEST_SECONDS = 10.0


class Batch:
    """Changed paths, with the times of their first and last change. Times are of a clock that only grows."""

    def __init__(self, quiet: float = QUIET_SECONDS, longest: float = LONGEST_SECONDS) -> None:
        self._quiet, self._longest = quiet, longest
        self._times: dict[str, tuple[float, float]] = {}

    def __len__(self) -> int:
        return len(self._times)

    def add(self, paths: Iterable[str], now: float) -> None:
        """Note that these have changed."""
        for path in paths:
            first, _ = self._times.get(path, (now, now))
            self._times[path] = (first, now)

    def clear(self) -> None:
        """Let go of all: they are looked at together with everything else."""
        self._times.clear()

    def due_at(self) -> float | None:
        """When the next one is due; `None` where nothing waits."""
        return min(map(self._due, self._times.values()), default=None)

    def take(self, now: float) -> set[str]:
        """Those that are due, which wait no longer."""
        due = {path for path, times in self._times.items() if self._due(times) <= now}
        for path in due:
            del self._times[path]
        return due

    def _due(self, times: tuple[float, float]) -> float:
        first, last = times
        return min(last + self._quiet, first + self._longest)
