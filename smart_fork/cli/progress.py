"""Shows the progress of long work on stderr: bars on a terminal, else lines at its beginning and its end."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from smart_fork.cli.output import err, say, wants_json
from smart_fork.snippets import Stage

if TYPE_CHECKING:
    from rich.progress import Task
    from rich.text import Text

    from smart_fork.finding.session_library import Library

#: A stage that takes no longer needs no line; between two lines; how often it is looked whether one is due.
FIRST_SECONDS, SAY_SECONDS, LOOK_SECONDS = 2.0, 10.0, 0.5
#: How wide a bar is: all fits into 80 columns.
BAR_WIDTH = 16


class ProgressBar:
    """One bar a stage, with its share and the time that is left; shown when there is something to do.

    Work that cannot be counted has a bar that moves, and the time that it has taken.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.progress import BarColumn, Progress, ProgressColumn, SpinnerColumn, TextColumn

        stages = self._stages = dict[str, Stage]()

        class Share(ProgressColumn):
            def render(self, task: Task) -> Text:
                from rich.text import Text

                stage = stages[task.fields["stage"]]
                return Text(stage.ended(task.fields["ended"]) if task.fields["ended"] else stage.share(clock()))

        self._clock = clock
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(bar_width=BAR_WIDTH), Share())
        self._new = partial(Progress, *columns, console=err.console, transient=True)
        self._tasks: dict[str, Any] = {}

    def __call__(self, stage: str, done: int, total: int) -> None:
        if total == 0:
            return
        now = self._clock()
        known = self._stages.setdefault(stage, Stage(stage, now, done, done, total))
        known.done, known.total = done, total
        if stage not in self._tasks:
            if not self._tasks:
                self._bars = self._new()
                self._bars.start()
            self._tasks[stage] = self._bars.add_task(known.title, total=None, stage=stage, ended=None)
        counted = total if total > 1 or done >= total else None
        self._bars.update(self._tasks[stage], completed=done, total=counted, ended=now if done >= total else None)

    def close(self) -> None:
        """Take the bars away, until there is more to do."""
        if self._tasks:
            self._bars.stop()
            self._tasks.clear()


class ProgressLines:
    """A line where a stage takes longer than a moment, every few seconds while it goes on, and one at its end."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._looking: threading.Thread | None = None
        self._stage: Stage | None = None
        self._say_at = 0.0
        self._told = False

    def __call__(self, stage: str, done: int, total: int) -> None:
        if total == 0:
            return
        with self._lock:
            now = self._clock()
            if self._stage is None or self._stage.name != stage:
                self._end(now)
                self._stage, self._say_at = Stage(stage, now, done, done, total), now + FIRST_SECONDS
            self._stage.done, self._stage.total = done, total
            if done >= total:
                self._end(now)
        self.look()
        if self._looking is None:  # who works may have nothing to tell for long
            self._looking = threading.Thread(target=self._look_again, name="progress", daemon=True)
            self._looking.start()

    def look(self) -> None:
        """Say the line that is due."""
        with self._lock:
            now = self._clock()
            if self._stage is not None and now >= self._say_at:
                say(f"{self._stage.title}: {self._stage.share(now)}")
                self._say_at, self._told = now + SAY_SECONDS, True

    def close(self) -> None:
        """Say how it ended."""
        self._over.set()
        with self._lock:
            self._end(self._clock())

    def _end(self, now: float) -> None:
        if self._stage is not None and self._told:
            say(f"{self._stage.title}: {self._stage.ended(now)}")
        self._stage, self._told = None, False

    def _look_again(self) -> None:
        while not self._over.wait(LOOK_SECONDS):
            self.look()


@contextmanager
def progress_bar(*, quiet: bool = False) -> Iterator[ProgressBar | ProgressLines | None]:
    """Bars where stderr is a terminal that can show them, else lines; `None` with `quiet` or --json."""
    if quiet or wants_json():
        yield None
        return
    lines = not err.is_terminal or os.environ.get("TERM") == "dumb"
    progress = ProgressLines() if lines else ProgressBar()
    try:
        yield progress
    finally:
        progress.close()


@contextmanager
def working(stage: str, *, quiet: bool = False) -> Iterator[None]:
    """Work in here takes its time, and cannot be counted."""
    with progress_bar(quiet=quiet) as progress:
        if progress is not None:
            progress(stage, 0, 1)
        yield


def starting(place: str | None, *, quiet: bool = False) -> AbstractContextManager[None]:
    """In here it is waited until an agent has taken up its work; nothing is drawn where this terminal becomes its."""
    return working("starting the agent", quiet=quiet or place == "here")


@contextmanager
def library_shown(path: str | None = None, **how: Any) -> Iterator[Library]:
    """The sessions that the command line finds, see `Library.open`; what is done for that is shown."""
    from smart_fork.finding.session_library import library

    with progress_bar() as progress, library(path, progress, **how) as known:
        yield known
