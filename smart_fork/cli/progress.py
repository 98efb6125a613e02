"""How far long work is, on stderr: bars where a person looks at a terminal, now and then a line elsewhere."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from smart_fork.cli.output import err, say

#: What the stages of the pipeline are called for people.
NAMES = {"reading": "reading logs", "embedding": "embedding passages"}
#: Work that takes no longer needs no line; between two lines.
FIRST_SECONDS, SAY_SECONDS = 5.0, 10.0


class ProgressBar:
    """One bar a stage, with the time that is left; shown when there is something to do."""

    def __init__(self) -> None:
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeRemainingColumn,
        )

        self._bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("left"),
            console=err.console,
            transient=True,
        )
        self._tasks: dict[str, Any] = {}
        self._started = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        if total == 0:
            return
        if not self._started:
            self._bars.start()
            self._started = True
        if stage not in self._tasks:
            self._tasks[stage] = self._bars.add_task(NAMES.get(stage, stage), total=total)
        self._bars.update(self._tasks[stage], completed=done, total=total)

    def close(self) -> None:
        """Take the bars away."""
        if self._started:
            self._bars.stop()


class ProgressLines:
    """A line every few seconds, with about how long it still takes, of work that takes longer than that."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._say_at = clock() + FIRST_SECONDS
        self._stage, self._began, self._before = "", 0.0, 0

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = self._clock()
        if stage != self._stage:
            self._stage, self._began, self._before = stage, now, done
        if total and now >= self._say_at:
            say(f"{NAMES.get(stage, stage)}: {done:,} of {total:,}{self._left(now, done, total)}")
            self._say_at = now + SAY_SECONDS

    def _left(self, now: float, done: int, total: int) -> str:
        """The time that is left where the rest goes as fast as what is done; nothing before anything is."""
        if done <= self._before or now <= self._began:
            return ""
        return f", about {_duration((total - done) * (now - self._began) / (done - self._before))} left"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[ProgressBar | ProgressLines | None]:
    """Bars where stderr is a terminal that can show them, else lines; `None` with `quiet`."""
    if quiet:
        yield None
    elif not err.console.is_terminal or os.environ.get("TERM") == "dumb":
        yield ProgressLines()
    else:
        bar = ProgressBar()
        try:
            yield bar
        finally:
            bar.close()
