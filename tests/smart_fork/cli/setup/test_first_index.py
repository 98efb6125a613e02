"""The first index of the setup may be left: the rest is done in the background."""

from __future__ import annotations

import pytest

from smart_fork.cli.setup import first_index
from smart_fork.cli.setup.plan import SetupPlan
from smart_fork.cli.setup.step import Step
from smart_fork.finding.index_access import known_index
from smart_fork.system.processes import Processes


@pytest.fixture
def started(monkeypatch):
    """Return the commands that would start in the background. None of them starts."""
    commands: list[list[str]] = []
    monkeypatch.setattr(Processes, "start", lambda self, argv, **_: commands.append(list(argv)))
    return commands


def plan(*steps):
    return SetupPlan("/opt/smart-fork", (), (), steps)


@pytest.fixture
def left(monkeypatch):
    """Return a progress that raises Ctrl-C in the middle of indexing."""

    def leave(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("smart_fork.cli.setup.complete", leave)


def test_a_small_one_is_whole(world, shop, command_model, started):
    world.claude(shop, "add retry", "done")

    assert ["Indexed: 1 session."] == first_index(plan())
    assert [] == started


def test_of_a_large_one_the_words_are_searchable_when_it_ends(world, shop, command_model, started, monkeypatch):
    """A person must not wait for the last passage of a thousand sessions before the first search."""
    monkeypatch.setattr("smart_fork.cli.setup._FEW", 0)
    for number in range(3):
        world.claude(shop, f"add retry number {number}", "done")

    (note,) = first_index(plan())

    assert note == "Indexed: words of 3 sessions. Rest in the background: `smart-fork index status`"
    assert [["index", "run", "--if-idle"]] == [argv[-3:] for argv in started]
    with known_index() as store:
        assert (3, 0) == (store.counts().sessions, store.counts().embedded)


def test_one_that_is_left_goes_on_in_a_process_of_its_own(world, command_model, left, started):
    (note,) = first_index(plan(Step("service", "service", "", "left")))

    assert "in the background" in note
    assert [["index", "run", "--if-idle"]] == [argv[-3:] for argv in started]


def test_one_that_is_left_is_done_by_the_service_where_there_is_one(world, command_model, left, started):
    (note,) = first_index(plan(Step("service", "service", "", "new")))

    assert "in the background" in note
    assert [] == started
