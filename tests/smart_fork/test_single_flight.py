"""A request that comes twice is answered once."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from smart_fork.server.sessions import KEPT_SECONDS, SingleFlight
from tests.smart_fork.forks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def test_a_request_that_comes_again_while_the_first_is_answered_gets_that_answer(clock):
    flights: SingleFlight[int] = SingleFlight(clock.now)
    begun, go_on = threading.Event(), threading.Event()
    done: list[int] = []

    def work() -> int:
        begun.set()
        assert go_on.wait(90)
        done.append(1)
        return 7

    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(flights.do, "key", work)
        assert begun.wait(90)
        second = pool.submit(flights.do, "key", work)
        go_on.set()
        assert (7, 7, [1]) == (first.result(20), second.result(20), done)


def test_an_answer_is_given_again_for_some_seconds_and_then_worked_for(clock):
    flights: SingleFlight[int] = SingleFlight(clock.now)
    answers = iter(range(9))

    def next_answer() -> int:
        return next(answers)

    assert (0, 0, 1) == tuple(flights.do(key, next_answer) for key in ("a", "a", "b"))
    clock.time += KEPT_SECONDS
    assert 0 == flights.do("a", next_answer)
    clock.time += 1
    assert 2 == flights.do("a", next_answer)


def test_what_failed_is_tried_again(clock):
    flights: SingleFlight[int] = SingleFlight(clock.now)

    def fail() -> int:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        flights.do("a", fail)
    assert 1 == flights.do("a", lambda: 1, keep=lambda answer: answer > 1)
    assert 2 == flights.do("a", lambda: 2, keep=lambda answer: answer > 1)
    assert 2 == flights.do("a", lambda: 3)
