"""When the whole index is brought up to date: at the start, then by an interval or a cron expression."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from indexer.settings import INDEX_CRON

if TYPE_CHECKING:
    from apscheduler.triggers.base import BaseTrigger

log = logging.getLogger(__name__)

#: The longest interval that is one: a larger number is a mistake, and a date that far away cannot be computed.
MAX_INTERVAL = timedelta(days=366)
_INTERVAL = re.compile(r"\d+[mh]", re.ASCII)
_WEEKDAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_WEEKDAY_RANGE = re.compile(r"(\*|[0-7](?:-[0-7])?)(?:/([1-7]))?", re.ASCII)


class Schedule:
    """Calls `due` at once when it starts, and then whenever `trigger` says. `due` must return quickly.

    A moment that passed while the computer slept is made up for once; a clock that is set back does not stop the calls.
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
        """Begin; the first call comes immediately."""
        self._scheduler.start()

    def stop(self) -> None:
        """No more calls. Stopping twice does nothing."""
        if self._scheduler.running:
            self._scheduler.shutdown(wait=False)

    @property
    def next_run(self) -> datetime | None:
        """When the next call comes; `None` where it is stopped."""
        if not self._scheduler.running:
            return None
        found: datetime | None = self._job.next_run_time
        return found

    def mend(self) -> None:
        """Bring the next call forward where the clock has been set back behind the last one, or the computer slept."""
        now = self._now()
        planned, earliest = self.next_run, first_after(self._trigger, now)
        if planned is not None and planned <= now:
            self._scheduler.wakeup()  # it waits by a clock that stands still while the computer sleeps
        if planned is not None and earliest is not None and planned > earliest:
            log.info("the clock was set back: the next run is at %s", earliest.isoformat(timespec="seconds"))
            self._job.modify(next_run_time=earliest)


def trigger_of(text: str | None) -> BaseTrigger:
    """What `parsed` understands; an hour, with a warning, for anything else."""
    try:
        return parsed(text if text is not None else INDEX_CRON.default)
    except ValueError as error:
        log.warning("%s is not an interval: %r (%s); indexing every %s", INDEX_CRON, text, error, INDEX_CRON.default)
        return _interval(INDEX_CRON.default)


def parsed(text: str) -> BaseTrigger:
    """What ``15m``, ``6h`` or a cron expression of five fields means.

    Raises:
        ValueError: it is neither, or never comes due.
    """
    wanted = text.strip().lower()
    return _interval(wanted) if _INTERVAL.fullmatch(wanted) else _cron(wanted)


def first_after(trigger: BaseTrigger, now: datetime) -> datetime | None:
    """The latest moment at which something that follows `trigger` may be called next, seen from `now`."""
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
    """A cron expression as crontab reads it: 0 and 7 are Sunday, and either of two restricted days will do."""
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
    """Numbers of weekdays by their names: APScheduler counts them from Monday."""
    found = _WEEKDAY_RANGE.fullmatch(part)
    if part == "*" or found is None:
        return part
    days, step = found[1], int(found[2] or 1)
    first, _, last = ("0-6" if days == "*" else days).partition("-")
    numbers = range(int(first), int(last or (6 if found[2] else first)) + 1, step)
    if not numbers:
        raise ValueError("a range of weekdays must not go backwards")
    return ",".join(_WEEKDAYS[number % 7] for number in numbers)
