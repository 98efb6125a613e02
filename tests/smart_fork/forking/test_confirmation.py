"""Waiting for a sign of life of a worker that was started."""

from __future__ import annotations

import pytest

from smart_fork.agents.plan import ForkRequest, plan_fork
from smart_fork.forking.confirmation import CONFIRM_SECONDS, SCREEN_SECONDS, confirm, world_of
from smart_fork.forking.report import remark
from smart_fork.places.base import Started
from tests.smart_fork import screens
from tests.smart_fork.forks import NEW, SESSION, FakeClock, FakeProcesses


class Showing:
    """A place whose screens are these, one after the other; the last one stays."""

    def __init__(self, *shown: str) -> None:
        self.shown = list(shown)

    def ended(self, *_):
        return None

    def screen(self, *_):
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]


@pytest.fixture
def plan(home):
    request = ForkRequest(
        agent="claude", session_id=SESSION, source_path=home / "x", source_cwd=str(home), target_cwd=home,
        program="claude", new_session_id=NEW, prompt="go on",
    )  # fmt: skip
    return plan_fork(request)


def seen(plan, *shown: str):
    clock = FakeClock()
    world = world_of("claude", FakeProcesses(), {}, clock)
    return confirm(plan, Showing(*shown), Started(), world, clock.now()), clock


def test_a_worker_that_stops_at_a_question_is_not_waited_for_any_longer(plan):
    """It says what it asks, long before the time is up."""
    found, clock = seen(plan, screens.CLAUDE_TRUST)

    assert not found.taken
    assert "trust" in found.asks
    assert clock.slept < 3 * SCREEN_SECONDS
    assert found.asks in remark(plan, Started(attach="tmux attach"), found)


def test_a_question_that_is_gone_at_the_next_look_was_none(plan):
    found, clock = seen(plan, screens.CLAUDE_TRUST, screens.CLAUDE_WORKING)

    assert "" == found.asks
    assert clock.slept >= CONFIRM_SECONDS
    assert "may be asking something" in remark(plan, Started(), found)
