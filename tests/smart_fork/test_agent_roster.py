"""The agents at a glance: what is installed, in which version, and what each can do."""

from __future__ import annotations

import json

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.agent import Agent
from smart_fork.cli.agents import all_agents
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures

HELP = "--fork-session --resume exec fork"


@pytest.fixture
def installed(programs, monkeypatch):
    """Puts an agent's program there that says this of itself."""
    monkeypatch.setenv("PATH", str(programs))
    for file in programs.iterdir():
        file.unlink()

    def install(name: str, version: str, listed: str = "  --fork-session\n") -> None:
        (programs / name).write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo "{version}" && exit\necho "{listed}"\n')
        (programs / name).chmod(0o755)

    return install


def by_name(env=None):
    return {one.name: one for one in all_agents(env=env).agents}


@pytest.mark.parametrize(
    ("said", "version", "stands"),
    [
        ("2.1.197 (Claude Code)", "2.1.197", ""), ("2.1.999", "2.1.999", ""), ("2.1.3", "2.1.3", ""), ("claude-cli 3.0.0-beta.1", "3.0.0-beta.1", "newer"),
        ("1.0.9", "1.0.9", "older"), ("no number", "", ""), ("", "", ""),
    ],
)  # fmt: skip
def test_a_version_is_held_against_the_one_that_was_seen(installed, said, version, stands):
    installed("claude", said)

    found = by_name()["claude"]

    assert (True, version, stands) == (found.installed, found.version, found.against_seen)


def test_what_is_not_there_or_too_old_is_said_with_what_to_do(installed, world, shop):
    world.claude(shop, "add retry", "done")
    installed("claude", "1.0.0", listed="nothing")

    found = by_name()

    assert (1, "This version of claude cannot fork") == (found["claude"].sessions, found["claude"].problem[:34])
    assert found["claude"].hint
    assert (False, "", "") == (found["qwen"].installed, found["qwen"].path, found["qwen"].version)
    assert found["qwen"].problem


def test_unknown_records_are_counted_once_they_are_indexed(run, world, shop):  # noqa: F811
    log = world.log_of(world.claude(shop, "add retry", "done"))
    log.write_text(log.read_text() + '{"type": "hologram"}\n' * 2)
    assert 0 == by_name()["claude"].unknown_records
    world.find("retry", shop)

    (told,) = [one for one in json.loads(run("agents", "--json").out)["agents"] if one["name"] == "claude"]

    assert 2 == told["unknown_records"] < told["records"]
    assert f"2 of {told['records']} records in its logs" in " ".join(run("agents").out.split())


def test_what_can_be_done_with_each_is_what_there_is_of_it():
    for agent in AGENTS:
        able = agent.abilities()
        assert Agent.ABILITIES.keys() == able.keys()
        assert able["told"] == (agent.converter is not None)
        assert able["shared"] == (agent.converter is not None)
        assert able["cut"] == (agent.cutter is not None)
    assert AGENTS["claude"].abilities()["budgeted"]
    assert not AGENTS["cursor"].abilities()["budgeted"]


def test_the_command_says_it_in_words_and_as_json(installed, run):  # noqa: F811
    installed("claude", "3.0.0")
    installed("opencode", AGENTS["opencode"].seen)

    said, told = run("agents").out, json.loads(run("agents", "--json").out)

    assert f"3.0.0, newer than {AGENTS['claude'].seen}, which was tried" in said
    assert "not installed" in said
    assert all(f": {why}" in " ".join(said.split()) for why in AGENTS["opencode"].lacks.values())
    assert [agent.name for agent in AGENTS] == [one["name"] for one in told["agents"]]
