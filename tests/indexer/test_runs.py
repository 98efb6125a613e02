"""The result of the last run and the time of the next one, which the index tells any process."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta

import orjson
import pytest

from indexer.log_changes import Report
from indexer.runs import FailedLog, LastRun, announce, ended_run, json_time, keep_run, next_run, recording_run
from indexer.safe_files import index_db
from indexer.store.damage import open_sound

NOW = datetime.now(UTC)
LATER = json_time(NOW + timedelta(hours=1))


@pytest.fixture
def store(home):
    with open_sound(index_db()) as opened:
        yield opened


def test_nothing_is_told_before_the_first_run(store):
    assert (None, None) == (LastRun.of(store), next_run(store, NOW))


def test_what_a_run_did_and_what_it_could_not(store):
    report = Report(files=3, read=2, embedded=7, failed={f"log-{number}": "odd" for number in range(30)})
    keep_run(store, ended_run(json_time(NOW), 1.5, "completed", report))

    told = LastRun.of(store)

    assert (3, 2, 7, 30, "completed") == tuple(
        getattr(told, key) for key in ("logs", "read", "embedded", "failed_logs", "outcome")
    )
    assert FailedLog("log-0", "odd") == told.failed[0]
    assert 10 == len(told.failed)


def test_a_run_that_fails_says_why_and_fails_all_the_same(store):
    with pytest.raises(RuntimeError), recording_run(store, Report(), unless=KeyError):
        raise RuntimeError("the disk is full")

    assert ("failed", "the disk is full") == (LastRun.of(store).outcome, LastRun.of(store).error)


def test_a_run_that_another_process_makes_unneeded_leaves_no_trace(store):
    with pytest.raises(KeyError), recording_run(store, Report(), unless=KeyError):
        raise KeyError

    assert LastRun.of(store) is None


def test_the_next_run_counts_for_as_long_as_its_process_lives(store):
    announce(store, LATER)
    assert LATER == next_run(store, NOW)

    other = subprocess.Popen(["sleep", "60"])
    told = orjson.loads(store.meta("next_run"))
    store.set_meta("next_run", orjson.dumps(told | {"pid": other.pid}).decode())
    assert next_run(store, NOW) is None  # that process is another one, of the same number

    other.kill()
    other.wait()
    assert next_run(store, NOW) is None


def test_a_run_that_should_have_been_is_no_next_one(store):
    announce(store, json_time(NOW - timedelta(seconds=1)))

    assert next_run(store, NOW) is None


@pytest.mark.parametrize(
    "text", ["", "no JSON", "[]", "{}", '{"at": 5, "pid": "x"}', '{"at": "9", "pid": -1, "born": null}']
)
def test_whatever_stands_there_is_read_without_harm(store, text):
    for key in ("last_run", "next_run"):
        store.set_meta(key, text)

    assert LastRun.of(store) in (None, LastRun())
    assert next_run(store, NOW) is None
