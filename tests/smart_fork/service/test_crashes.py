"""A loop of crashes ends, and its log stays small."""

from __future__ import annotations

import pytest

from indexer.safe_files import state_home
from smart_fork.cli.service.instance import KEPT_BYTES, LIMIT, WINDOW, forget_starts, note_start, shorten_log
from tests.smart_fork.forks import FakeClock


def start(clock: FakeClock, seconds: float) -> bool:
    clock.sleep(seconds)
    return note_start(state_home(), clock.now)


def test_a_loop_of_crashes_ends():
    """F-201: launchd would restart the service forever."""
    clock = FakeClock()

    assert [True] * LIMIT + [False, False] == [start(clock, 60) for _ in range(LIMIT + 2)]


def test_it_may_start_again_when_time_has_passed():
    clock = FakeClock()
    for _ in range(LIMIT + 1):
        start(clock, 1)

    assert start(clock, WINDOW)


def test_a_service_that_ends_as_it_was_told_to_is_no_crash():
    clock = FakeClock()

    for _ in range(3 * LIMIT):
        assert start(clock, 1)
        forget_starts(state_home())


def test_one_that_crashes_now_and_then_goes_on():
    clock = FakeClock()

    assert all(start(clock, WINDOW / (LIMIT - 1)) for _ in range(3 * LIMIT))


def test_a_clock_that_was_set_back_does_not_stop_it():
    clock = FakeClock()
    for _ in range(LIMIT):
        start(clock, 1)

    assert start(clock, -3600)


@pytest.mark.parametrize("content", [b"", b"{", b"[null]", b"7", b"\xff", b'["x"]'])
def test_damaged_notes_do_not_stop_it(content, home):
    note_start(home)
    (home / "service-starts.json").write_bytes(content)

    assert note_start(home)


def test_ending_twice_is_no_error():
    forget_starts(state_home())
    forget_starts(state_home())


def test_the_log_of_crashes_keeps_its_end_and_stays_the_same_file(tmp_path):
    log = tmp_path / "crash.log"
    log.write_text("".join(f"line {i}\n" for i in range(200_000)))
    with log.open("a") as held:  # as launchd and systemd hold it
        shorten_log(log)
        held.write("after\n")

    lines = log.read_text().splitlines()
    assert ["line 199999", "after"] == lines[-2:]
    assert lines[0].startswith("line ")
    assert log.stat().st_size <= KEPT_BYTES + 10


def test_a_small_log_of_crashes_is_left_alone(tmp_path):
    log = tmp_path / "crash.log"
    shorten_log(log)
    log.write_text("x" * 10 * KEPT_BYTES)

    shorten_log(log)

    assert log.stat().st_size == 10 * KEPT_BYTES
