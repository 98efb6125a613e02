"""Tests of the wait until a started worker shows that it works."""

from __future__ import annotations

from dataclasses import replace

import pytest

from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.forking.confirmation import CONFIRM_SECONDS, HEARS_SECONDS, SCREEN_SECONDS, confirm
from smart_fork.system.processes import Machine
from smart_fork.workers.worker_place import WorkerLocation, WorkerPlace
from tests.smart_fork import agent_screens
from tests.smart_fork.forks import NEW, SESSION, FakeClock, FakeProcesses


class Showing:
    """A place with a list of screens, shown one after the other; the last one stays."""

    def __init__(self, *shown: str) -> None:
        self.shown = list(shown)

    def ended(self, *_):
        return None

    def screen(self, *_):
        return self.shown.pop(0) if len(self.shown) > 1 else self.shown[0]


@pytest.fixture
def plan(home):
    request = LaunchRequest(
        agent="claude", session_id=SESSION, target_cwd=home,
        program="claude", new_session_id=NEW, prompt="go on",
    )  # fmt: skip
    return ForkPlan.of(request)


def seen(plan, *shown: str):
    clock = FakeClock()
    world = Machine(FakeProcesses(), {}, clock)
    return confirm(plan, Showing(*shown), WorkerLocation(), world, clock.now()), clock


def test_a_worker_that_stops_at_a_question_is_not_waited_for_any_longer(plan):
    """The confirmation has the question long before the time limit."""
    found, clock = seen(plan, agent_screens.CLAUDE_TRUST)

    assert not found.taken
    assert "trust" in found.asks
    assert clock.slept < 3 * SCREEN_SECONDS
    assert found.asks in found.remark(plan, WorkerLocation(attach="tmux attach"))


def test_a_question_that_is_gone_at_the_next_look_was_none(plan):
    found, clock = seen(plan, agent_screens.CLAUDE_TRUST, agent_screens.CLAUDE_WORKING)

    assert "" == found.asks
    assert clock.slept >= CONFIRM_SECONDS
    assert "may be asking something" in found.remark(plan, WorkerLocation())


TYPES = "  \u276f "


class Terminal(Showing):
    """A terminal whose agent shows an input line when it is ready. Pasted text stays there until Enter."""

    def __init__(self, *before: str) -> None:
        super().__init__(*before, TYPES)
        self.pasted: list[str] = []
        self.keys: list[str] = []

    def paste(self, _started, text, *_):
        self.pasted.append(text)
        self.shown = [f"{TYPES}{text}"]

    def press(self, _started, key, *_):
        self.keys.append(key)
        self.shown = [TYPES]

    typist = WorkerPlace.typist


def typing(plan):
    return replace(plan, delivery="typed")


def wait_for(plan, place, **how):
    clock = FakeClock()
    world = Machine(FakeProcesses(), {}, clock)
    return confirm(typing(plan), place, WorkerLocation(attach="tmux attach"), world, clock.now(), **how), clock


def test_a_prompt_that_is_typed_is_typed_once_and_only_when_there_is_a_line_for_it(plan):
    place = Terminal("loading", "still loading")
    wait_for(plan, place)

    assert (["go on"], ["Enter"]) == (place.pasted, place.keys)


def test_a_slow_program_is_waited_for_until_it_hears(plan):
    """Without the wait, its prompt would never be typed."""
    place = Terminal(*["loading"] * 60)
    found, clock = wait_for(plan, place, patience=5.0)

    assert ["go on"] == place.pasted
    assert clock.slept > 25
    assert not found.untold


@pytest.mark.slow
def test_a_program_that_never_hears_is_told_of(plan):
    found, clock = wait_for(plan, Showing("loading"))

    assert found.untold
    assert HEARS_SECONDS <= clock.slept < HEARS_SECONDS + 2
    assert "The prompt could not be typed. Type it yourself. See: tmux attach" == found.remark(
        plan, WorkerLocation(attach="tmux attach")
    )


def test_nothing_is_typed_into_a_question(plan):
    place = Terminal(*[agent_screens.CLAUDE_TRUST] * 9)
    found, _ = wait_for(plan, place)

    assert ([], []) == (place.pasted, place.keys)
    assert "Its prompt was not typed." in found.remark(plan, WorkerLocation())


def test_a_program_that_does_not_take_what_is_typed_is_told_of(plan):
    class Deaf(Terminal):
        def paste(self, _started, text, *_):
            self.pasted.append(text)

    place = Deaf()
    found, _ = wait_for(plan, place)

    assert found.untold
    assert [] == place.keys
