"""Triggers of index runs: an interval or a cron expression, and changes of logs.

Changes come from the system's notifications. If the system can watch no more folders, all logs are checked regularly.
Each folder with logs is watched separately, also a linked one, but no folder inside a session's own folder.
"""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import TYPE_CHECKING, NamedTuple

from indexer.transcripts.base import AgentAdapter, folders_of

if TYPE_CHECKING:
    from apscheduler.triggers.base import BaseTrigger
    from watchfiles._rust_notify import RustNotify


log = logging.getLogger(__name__)

#: The longest interval. A larger number is a mistake, and would lead to dates that cannot be computed.
MAX_INTERVAL = timedelta(days=366)
_INTERVAL = re.compile(r"\d+[mh]", re.ASCII)
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WEEKDAY_RANGE = re.compile(r"(\*|[0-7](?:-[0-7])?)(?:/([1-7]))?", re.ASCII)


class Schedule:
    """A scheduler that calls `due` when it starts, and then at the times of `trigger`. `due` must return quickly.

    All calls missed while the computer slept are replaced by one. A clock that is set back does not stop the calls.
    """

    def __init__(
        self, due: Callable[[], None], trigger: BaseTrigger, now: Callable[[], datetime] = lambda: datetime.now(UTC)
    ) -> None:
        from apscheduler.executors.debug import DebugExecutor
        from apscheduler.schedulers.background import BackgroundScheduler

        self._now = now
        self._trigger = trigger
        # `due` only wakes somebody up: it is called in the scheduler's own thread, which ends with the process.
        self._scheduler = BackgroundScheduler(executors={"default": DebugExecutor()}, daemon=True)
        self._job = self._scheduler.add_job(due, trigger, misfire_grace_time=None, coalesce=True, next_run_time=now())

    def start(self) -> None:
        """Start the scheduler. The first call of `due` comes immediately."""
        self._scheduler.start()

    def stop(self) -> None:
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    @property
    def next_run(self) -> datetime | None:
        """Return when `due` is called next; `None` if the scheduler is stopped."""
        if not self._scheduler.running:
            return None
        found: datetime | None = self._job.next_run_time
        return found

    def mend(self) -> None:
        """Correct the time of the next call of `due`, after the clock was set back or the computer slept."""
        now = self._now()
        planned, earliest = self.next_run, first_after(self._trigger, now)
        if planned is not None and planned <= now:
            self._scheduler.wakeup()  # it waits by a clock that stands still while the computer sleeps
        if planned is not None and earliest is not None and planned > earliest:
            log.info("the clock was set back: the next run is at %s", earliest.isoformat(timespec="seconds"))
            self._job.modify(next_run_time=earliest)


def parsed(text: str) -> BaseTrigger:
    """Return a trigger for ``15m``, ``6h`` or five cron fields. Raise ValueError if `text` is invalid or never due."""
    wanted = text.strip().lower()
    return _interval(wanted) if _INTERVAL.fullmatch(wanted) else _cron(wanted)


def first_after(trigger: BaseTrigger, now: datetime) -> datetime | None:
    """Return the latest possible time of a trigger's next call. A later plan shows that the clock was set back."""
    from apscheduler.triggers.interval import IntervalTrigger

    if isinstance(trigger, IntervalTrigger):
        return now + timedelta(seconds=trigger.interval_length)
    found: datetime | None = trigger.get_next_fire_time(None, now)
    return found


def _interval(text: str) -> BaseTrigger:
    from apscheduler.triggers.interval import IntervalTrigger

    number = int(text[:-1][:9])
    length = timedelta(minutes=number) if text.endswith("m") else timedelta(hours=number)
    if not timedelta() < length <= MAX_INTERVAL:
        raise ValueError("it must be between a minute and a year")
    return IntervalTrigger(seconds=int(length.total_seconds()))


def _cron(text: str) -> BaseTrigger:
    """Return a trigger for a cron expression as crontab reads it: Sunday is 0 or 7; a day of month or week suffices."""
    from apscheduler.triggers.combining import OrTrigger
    from apscheduler.triggers.cron import CronTrigger

    fields = text.split()
    if len(fields) != 5:
        raise ValueError("such as 15m, 6h or five cron fields")
    minute, hour, day, month, weekday = fields
    weekday = ",".join(_weekdays(part) for part in weekday.split(","))
    whole = {"minute": minute, "hour": hour, "month": month}
    if day != "*" and weekday != "*":
        return OrTrigger([CronTrigger(**whole, day=day), CronTrigger(**whole, day_of_week=weekday)])
    trigger = CronTrigger(**whole, day=day, day_of_week=weekday)
    if trigger.get_next_fire_time(None, datetime.now(UTC)) is None:
        raise ValueError("it never comes")
    return trigger


def _weekdays(part: str) -> str:
    """Replace numbers of weekdays by names in one part of a cron field, since APScheduler counts from Monday."""
    found = _WEEKDAY_RANGE.fullmatch(part)
    if part == "*" or found is None:
        return part
    days, step = found[1], int(found[2] or 1)
    first, _, last = ("0-6" if days == "*" else days).partition("-")
    numbers = range(int(first), int(last or (6 if found[2] else first)) + 1, step)
    if not numbers:
        raise ValueError("a range of weekdays must not go backwards")
    return ",".join(_WEEKDAYS[number % 7] for number in numbers)


#: How long notifications are collected before they are reported, and how often they are checked, in milliseconds.
COLLECT_MILLISECONDS, STEP_MILLISECONDS = 600, 200
#: A watched folder that was deleted and made again is noticed after at most this time.
CHECK_MILLISECONDS = 30_000
#: Interval at which all logs are checked if the system cannot notify of changes. This costs one `stat` a log.
POLL_SECONDS = 10.0
#: Time after which notifications are tried again.
POLLING_SECONDS = 600.0
#: Time after which folders are looked for again that have just come or gone.
RETRY_SECONDS = 0.2

#: The number with which `RustNotify` reports a deleted path.
_DELETED = 3

#: A function that gets the paths of changed logs, or `None` if any log may have changed.
Changed = Callable[[Collection[str] | None], None]


class _Folder(NamedTuple):
    """A watched folder with logs. Its device and inode mostly change when it is deleted and made again."""

    path: str
    device: int
    inode: int


class Watcher:
    """A watcher of log folders. It calls `changed` with the paths of logs that were written, created or deleted."""

    def __init__(
        self, adapters: Iterable[AgentAdapter], changed: Changed, *, poll_seconds: float = POLL_SECONDS
    ) -> None:
        every = list(adapters)
        self._roots = [root for agent in every for root in agent.folders()]
        self._endings = tuple({ending for agent in every for ending in agent.endings})
        self._changed = changed
        self._poll_seconds = poll_seconds

    def run(self, stop: Event) -> None:
        """Watch the log folders until `stop` is set. If notifications fail, warn, and check all logs regularly."""
        said = ""
        while not stop.is_set():
            try:
                self._notified(stop)
            except FileNotFoundError:
                stop.wait(RETRY_SECONDS)  # a folder went while it was about to be watched
            except Exception as error:  # noqa: BLE001 - no watches left, a limit of the system, a library that fails
                level = logging.DEBUG if str(error) == said else logging.WARNING
                said, often = str(error), self._poll_seconds
                log.log(level, "changes cannot be watched (%s); the logs are checked every %g seconds", said, often)
                self._look(stop)

    def _look(self, stop: Event) -> None:
        """Report regularly that any log may have changed. Return after some minutes, to try notifications again."""
        until = time.monotonic() + POLLING_SECONDS
        while time.monotonic() < until and not stop.wait(self._poll_seconds):
            self._changed(None)

    def _notified(self, stop: Event) -> None:
        """Report changed logs as the system notifies of them, until a log folder appears, moves or is deleted.

        The caller then calls this again. Each call first has all logs checked, so no change between calls is missed.
        """
        folders = frozenset(self._folders())
        names = _names(folders)
        notify = _watching(folders)
        try:
            self._changed(None)  # what happened before the folders were watched
            while True:
                raw = notify.watch(COLLECT_MILLISECONDS, STEP_MILLISECONDS, CHECK_MILLISECONDS, stop)
                if raw in ("stop", "signal"):
                    return
                changes = raw if isinstance(raw, set) else set()
                paths = {path for _, path in changes}
                if logs := _logs(paths, names, self._endings):
                    self._changed(logs)
                if any(change == _DELETED and path in names for change, path in changes):
                    return  # made again immediately, it may have the same inode, and nobody watches it
                only_logs = bool(paths) and all(path.endswith(self._endings) for path in paths)
                if not only_logs and folders != frozenset(self._folders()):
                    return
        finally:
            notify.close()

    def _folders(self) -> Iterator[_Folder]:
        """Yield the folders to watch. In place of a missing log folder, this is its nearest existing parent."""
        for root, depth in self._roots:
            there = next((folder for folder in (root, *root.parents) if folder.is_dir()), None)
            if there == root:
                yield from _below(str(root), depth)
            elif there is not None:
                yield from _below(str(there), 0)


def _names(folders: Collection[_Folder]) -> dict[str, str]:
    """Return the watched folders' paths by the paths that the system may report for them: with and without links."""
    return {os.path.realpath(folder.path): folder.path for folder in folders} | {
        folder.path: folder.path for folder in folders
    }


def _logs(paths: set[str], names: Mapping[str, str], endings: tuple[str, ...]) -> set[str]:
    """Return the logs among the reported `paths`. `names` has the watched folder's own path for each reported one."""
    split = [path.rpartition("/") for path in paths if path.endswith(endings)]
    return {f"{names[folder]}/{name}" for folder, _, name in split if folder in names}


def _watching(folders: Collection[_Folder]) -> RustNotify:
    from watchfiles._rust_notify import RustNotify

    return RustNotify([folder.path for folder in folders], False, False, 300, False, False)  # noqa: FBT003 - its way


def _below(path: str, depth: int) -> Iterator[_Folder]:
    """Yield the folder `path` and the folders up to `depth` levels below it. Unreadable folders are skipped."""
    for one in folders_of(path, depth):
        with suppress(OSError):
            info = os.stat(one)  # noqa: PTH116 - as text
            yield _Folder(one, info.st_dev, info.st_ino)
