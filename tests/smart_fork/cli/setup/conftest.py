"""A machine with all agents. Their servers are not really started."""

from __future__ import annotations

import pytest

from smart_fork.agents import AGENTS
from smart_fork.cli import setup as setup_command
from smart_fork.cli.setup import service
from smart_fork.cli.setup.setup_output import Trial
from smart_fork.cli.setup.step import Step
from tests.smart_fork.cli.setup.settings_homes import HOMES, full
from tests.smart_fork.commands import command_model, run
from tests.smart_fork.world import add_program
from tests.support.cases import thorough_except_first

__all__ = ["command_model", "run"]  # fixtures, defined beside what they are made of


@pytest.fixture
def setup(run, world, monkeypatch):
    """Return a function that runs `smart-fork setup` with some words. The trial of a server is faked, and no program
    starts.
    """
    monkeypatch.setattr(
        setup_command, "try_server", lambda way, *, ask: Trial(way.agent, ok=True, tools=7, tools_seconds=0.1)
    )
    monkeypatch.setattr(
        service,
        "planned",
        lambda *_: Step("service", "service", "systemd", "left", why="systemd does not answer"),
    )
    monkeypatch.setattr(setup_command, "_PACKAGES", ())  # to look through all our modules takes longer than the rest
    monkeypatch.setenv("COLUMNS", "80")

    def command(*words: str):
        return run("setup", *words)

    return command


@pytest.fixture(
    params=thorough_except_first(sorted(HOMES, key=lambda one: one is not full)), ids=lambda one: one.__name__
)
def settled(request, world):
    """Return the name of a kind of home, filled with settings and with the programs of all agents."""
    for agent in AGENTS:
        if agent.registration:
            add_program(world.home / "bin", agent.command.name, "")
    request.param(world.home)
    return world.home
