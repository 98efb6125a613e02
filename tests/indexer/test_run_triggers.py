"""Times of runs over all logs."""

import logging
import queue
import time
from datetime import UTC, datetime, timedelta

import pytest
import tzlocal
from apscheduler.triggers.interval import IntervalTrigger

from indexer.environment import Setting
from indexer.run_triggers import Schedule, first_after
from smart_fork.cli.service.app import trigger_of
from tests.support.cases import parametrize_subtests

HOUR = timedelta(hours=1)
SATURDAY = datetime(2026, 11, 21, 12, 30, tzinfo=UTC)


@pytest.fixture(autouse=True)
def utc():
    """The time zone is UTC, before the process asks for it and remembers it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        tzlocal.reload_localzone()
        yield
    time.tzset()
    tzlocal.reload_localzone()


@pytest.mark.parametrize(
    ("text", "minutes"), [("15m", 15), ("1h", 60), ("6h", 360), ("  6H\n", 360), ("90M", 90), ("001m", 1)]
)
def test_an_interval_is_minutes_or_hours_in_any_case_and_with_blanks_around(text, minutes, caplog):
    """F-187."""
    assert SATURDAY + timedelta(minutes=minutes) == first_after(trigger_of(text), SATURDAY)
    assert [] == caplog.records


def test_left_out_it_is_an_hour(caplog):
    """F-187."""
    assert SATURDAY + HOUR == first_after(trigger_of(None), SATURDAY)
    assert [] == caplog.records


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0m",
        "0h",
        "1d",
        "abc",
        "-5m",
        "5 m",
        "1.5h",
        "٣m",
        "9" * 30 + "h",
        "* * * *",
        "99 * * * *",
        "0 0 30 2 *",
        "* * * * 5-1",
    ],
)
def test_anything_else_is_an_hour_with_a_warning(text, caplog):
    """F-187."""
    assert SATURDAY + HOUR == first_after(trigger_of(text), SATURDAY)
    assert ["WARNING"] == [record.levelname for record in caplog.records]
    assert repr(text) in caplog.text


@parametrize_subtests(
    ("text", "expected"),
    [
        ("0 9 * * *", "Sun 22 09:00"),
        ("*/20 * * * *", "Sat 21 12:40"),
        ("0 9 * * 1", "Mon 23 09:00"),
        ("0 9 * * 0", "Sun 22 09:00"),
        ("0 9 * * 7", "Sun 22 09:00"),
        ("0 9 * * 1-5", "Mon 23 09:00"),
        ("0 9 * * MON-FRI", "Mon 23 09:00"),
        ("0 9 * * 4,2", "Tue 24 09:00"),
        ("0 9 * * */2", "Sun 22 09:00"),
        ("0 9 25 * 1", "Mon 23 09:00"),
        ("0 9 22 * 1", "Sun 22 09:00"),
    ],
)
def test_a_cron_expression_means_what_crontab_means(text, expected):
    """F-187: APScheduler would count weekdays from Monday and ask for both of two restricted days."""
    assert expected == first_after(trigger_of(text), SATURDAY).strftime("%a %d %H:%M")


def test_the_first_call_comes_at_once_and_the_next_after_each_interval():
    """F-188."""
    calls: queue.Queue = queue.Queue()
    schedule = Schedule(lambda: calls.put(1), IntervalTrigger(seconds=1))
    schedule.start()
    try:
        calls.get(timeout=90)
        calls.get(timeout=90)
        assert schedule.next_run is not None
    finally:
        schedule.stop()
        schedule.stop()
    assert schedule.next_run is None


def test_a_call_that_fails_does_not_end_the_schedule(caplog):
    """F-188."""
    calls: queue.Queue = queue.Queue()

    def due():
        calls.put(1)
        raise RuntimeError("broken")

    schedule = Schedule(due, IntervalTrigger(seconds=1))
    schedule.start()
    calls.get(timeout=90)
    calls.get(timeout=90)
    schedule.stop()


def test_a_clock_that_is_set_back_does_not_stop_the_calls(caplog):
    """F-188."""
    caplog.set_level(logging.INFO)
    time = [datetime.now(UTC) + timedelta(days=3)]
    schedule = Schedule(lambda: None, trigger_of("6h"), lambda: time[0])
    schedule._job.modify(next_run_time=time[0] + 6 * HOUR)
    schedule._scheduler.start(paused=True)
    try:
        schedule.mend()
        assert time[0] + 6 * HOUR == schedule.next_run

        time[0] -= timedelta(days=3)
        schedule.mend()
        assert time[0] + 6 * HOUR == schedule.next_run
        assert "set back" in caplog.text
    finally:
        schedule.stop()


def test_a_moment_that_passed_while_the_computer_slept_is_made_up_for_when_it_wakes(monkeypatch):
    """F-188: what waits for that moment counts only the time that the computer was awake."""
    slept = [timedelta()]

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return datetime.now(tz) + slept[0]

    monkeypatch.setattr("apscheduler.schedulers.base.datetime", Clock)
    calls: queue.Queue = queue.Queue()
    schedule = Schedule(lambda: calls.put(1), trigger_of("6h"), lambda: Clock.now(UTC))
    schedule.start()
    try:
        calls.get(timeout=90)
        slept[0] = timedelta(hours=8)
        schedule.mend()
        calls.get(timeout=90)
    finally:
        schedule.stop()


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("1", True),
        ("true", True),
        (" YES ", True),
        ("On", True),
        ("0", False),
        ("", False),
        ("maybe", False),
        ("off", False),
    ],
)
def test_a_switch_is_on_for_four_words_in_any_case(value, on):
    """F-180."""
    assert on is Setting.INDEXING.is_on({"SMART_FORK_INDEXING": value})


def test_a_switch_that_is_left_out_is_off(monkeypatch):
    """F-180."""
    assert not Setting.INDEXING.is_on({})
    monkeypatch.setenv("SMART_FORK_INDEXING", "on")
    assert Setting.INDEXING.is_on()
