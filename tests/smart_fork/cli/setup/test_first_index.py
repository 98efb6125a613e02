"""The first index may be left: the rest is done in the background."""

from __future__ import annotations

import pytest

from indexer import freshness
from smart_fork.cli.setup import first_index
from smart_fork.cli.setup.ledger import Step
from smart_fork.cli.setup.plan import SetupPlan
from smart_fork.system.processes import Processes


@pytest.fixture
def started(monkeypatch):
    """What was started in the background, instead of starting it."""
    commands: list[list[str]] = []
    monkeypatch.setattr(Processes, "start", lambda self, argv, **_: commands.append(list(argv)))
    return commands


def plan(*steps):
    return SetupPlan("/opt/smart-fork", (), (), steps)


@pytest.fixture
def left(monkeypatch):
    """Somebody presses Ctrl-C."""

    def leave(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr(freshness, "complete", leave)


def test_it_is_whole_when_nobody_leaves_it(world, shop, command_model, started):
    world.claude(shop, "add retry", "done")

    verb, (note,) = first_index(plan())

    assert verb == "added"
    assert note.startswith("1 sessions")
    assert [] == started


def test_it_ends_when_the_first_passages_are_searchable(world, shop, command_model, started, monkeypatch):
    """Whoever waits for the last passage of a thousand sessions has not yet asked a question."""
    monkeypatch.setattr("smart_fork.cli.setup._FIRST_SECONDS", 0)
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 1)
    for number in range(3):
        world.claude(shop, f"add retry number {number}", "done")

    verb, (note, rest) = first_index(plan())

    assert ("begun", 3) == (verb, int(note.split()[0]))
    assert 0 < int(note.split()[2]) < int(note.split()[4])
    assert "continues in the background" in rest
    assert [["index", "run", "--if-idle"]] == [argv[-3:] for argv in started]


def test_one_that_is_left_goes_on_in_a_process_of_its_own(world, command_model, left, started):
    verb, (note,) = first_index(plan(Step("service", "service", "", "left")))

    assert verb == "later"
    assert "in the background" in note
    assert [["index", "run", "--if-idle"]] == [argv[-3:] for argv in started]


def test_one_that_is_left_is_done_by_the_service_where_there_is_one(world, command_model, left, started):
    verb, (note,) = first_index(plan(Step("service", "service", "", "new")))

    assert verb == "later"
    assert "The service does the rest" in note
    assert [] == started
