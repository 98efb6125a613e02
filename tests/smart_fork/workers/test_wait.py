"""Tests of waiting for workers."""

from __future__ import annotations

import pytest

from smart_fork.errors import NotFound, Usage
from smart_fork.workers.observation import LATEST_SECONDS, SOON_SECONDS, wait_workers
from smart_fork.workers.registry import Registry
from tests.smart_fork import agent_screens
from tests.smart_fork.fake_tmux import LATER, LATEST, Script, Stage


@pytest.fixture
def stage(world, shop) -> Stage:
    stage = Stage(world, shop)
    stage.asked("go", LATER)
    return stage


def nothing() -> None:
    pass


def test_it_returns_when_the_worker_is_done_with_its_last_words(stage):
    stage.clock.happens = [nothing, nothing, lambda: stage.said("It is done.", LATEST)]

    answer = wait_workers([stage.id], around=stage.around).as_json()

    (one,) = answer["workers"]
    assert (True, "idle", True, "It is done.") == (answer["done"], one["status"], one["settled"], one["last_words"])
    assert 3 == len(stage.clock.sleeps)


def test_a_question_and_an_end_are_told_as_well(stage):
    stage.clock.happens = [lambda: setattr(stage.terminal, "screen", agent_screens.CLAUDE_PERMISSION)]
    (one,) = wait_workers([stage.session], around=stage.around).as_json()["workers"]
    assert ("waiting", True) == (one["status"], one["settled"])

    stage.clock.happens = []
    stage.terminal.close()
    (one,) = wait_workers(["fixer"], around=stage.around).as_json()["workers"]
    assert ("ended", "Its window was closed.") == (one["state"], one["last_words"])


def test_a_hook_is_enough(stage):
    stage.clock.happens = [lambda: stage.hooked("idle")]

    assert wait_workers([stage.id], around=stage.around).as_json()["done"]


def test_all_are_waited_for_or_the_first(world, shop, stage):
    other = Stage(world, shop, clock=stage.clock)
    other.said("Mine is done.")
    both = [stage.id, other.id, stage.session]
    with Registry() as registry:  # two windows
        registry._set(other.id, "place = 'here', pid = NULL")

    answer = wait_workers(both, any_of=True, around=stage.around).as_json()
    assert (True, {stage.id: False, other.id: True}) == (
        answer["done"], {one["worker_id"]: one["settled"] for one in answer["workers"]},
    )  # fmt: skip
    assert [] == stage.clock.sleeps
    stage.clock.happens = [lambda: stage.said("So is mine.", LATEST)]
    assert wait_workers(both, around=stage.around).as_json()["done"]


def test_a_time_that_is_over_ends_it(stage):
    told = []

    answer = wait_workers([stage.id], timeout=10, told=lambda *about: told.append(about), around=stage.around).as_json()

    assert (False, False) == (answer["done"], answer["workers"][0]["settled"])
    assert sum(stage.clock.sleeps) == pytest.approx(10)
    assert {(0, 1)} == {about[:2] for about in told}
    assert [*sorted(about[2] for about in told)] == [about[2] for about in told]
    assert not wait_workers([stage.id], timeout=0, around=stage.around).as_json()["done"]


def test_it_looks_ever_less_often_until_something_changes(stage):
    stage.clock.happens = [nothing] * 30 + [lambda: stage.asked("more", LATEST)]

    wait_workers([stage.id], timeout=100, around=stage.around)

    sleeps = stage.clock.sleeps
    assert (SOON_SECONDS, LATEST_SECONDS) == (sleeps[0], sleeps[30])
    assert SOON_SECONDS == sleeps[31]
    assert len(sleeps) < 100


def test_none_and_unknown_ones_are_errors(stage):
    with pytest.raises(Usage, match="No worker is named"):
        wait_workers([])
    with pytest.raises(NotFound):
        wait_workers([stage.id, "nobody"])
    for odd in (-1, float("nan")):
        with pytest.raises(Usage, match="timeout"):
            wait_workers([stage.id], timeout=odd)
    assert Script().sleeps == []
