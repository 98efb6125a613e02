"""A made-up agent that nothing else knows is set up, tried, listed and undone like any other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.cli.setup import agent_hooks, installed_parts
from smart_fork.cli.setup.ledger import Ledger
from smart_fork.doctor import Check
from smart_fork.hooks import hint_switch
from tests.smart_fork.cli.setup.invented_agents import NEWCOMERS, OneFile, Plugged
from tests.smart_fork.cli.setup.settings_homes import everything
from tests.smart_fork.world import add_program
from tests.support.cases import thorough_except_first

SETTINGS = {
    "plain": '{\n  "theme": "dark"\n}\n',
    "with servers": '{"%s": {"other": {"command": ["x"]}}, "hooks": {}, "permissions": {"allow": ["x"]}}',
    "none": None,
}


@pytest.fixture(params=NEWCOMERS, ids=lambda agent: agent.name)
def newcomer(request, world, monkeypatch):
    """Return a made-up agent that is installed beside the real ones."""
    agent = request.param
    monkeypatch.setitem(AGENTS._by_name, agent.name, agent)
    add_program(world.home / "bin", agent.command.name, "")
    return agent


@pytest.fixture(params=thorough_except_first(SETTINGS))
def settled(request, newcomer, world):
    """Return the made-up agent with its own settings, of each kind of home."""
    way, text = newcomer.registration, SETTINGS[request.param]
    if text is not None:
        way.path().parent.mkdir(parents=True)
        way.path().write_text(text.replace("%s", way.servers))
    return world.home


def test_it_is_set_up_and_undone_to_the_byte(setup, newcomer, settled):
    before = everything(settled)

    done = setup("--yes", "--recall", "--allow-reading")

    assert 0 == done.code, done.err
    way = newcomer.registration
    argv = way.argv(way.value(way.path().read_text()))
    assert (True, ("-I", "-m", "smart_fork", "mcp")) == (Path(argv[0]).is_absolute(), argv[1:])
    assert agent_hooks.is_installed(newcomer.name)
    assert newcomer.hooks.recalls == hint_switch.is_on(newcomer.name)
    assert newcomer.title in done.out
    again = everything(settled)
    assert "Everything is set up already" in setup("--recall", "--allow-reading").out
    assert again == everything(settled)
    assert setup("--remove").code == 0
    assert before == everything(settled)
    assert not Ledger().path.exists()


def test_alone_it_leaves_the_others_as_they_are(setup, newcomer, world):
    others = {
        way.path(): way.path().exists() for way in (AGENTS.registration_of("claude"), AGENTS.registration_of("codex"))
    }

    assert setup("--yes", "--agent", newcomer.name).code == 0

    assert newcomer.registration.path().exists()
    assert others == {path: path.exists() for path in others}
    assert setup("--remove", "--agent", newcomer.name).code == 0
    assert not newcomer.registration.path().exists()


def test_a_skill_that_several_agents_read_stays_as_long_as_one_of_them_is_set_up(setup, world, monkeypatch):
    agent = OneFile()
    monkeypatch.setitem(AGENTS._by_name, agent.name, agent)
    add_program(world.home / "bin", agent.command.name, "")
    before = everything(world.home)
    setup("--yes")
    skill = agent.registration.skills() / "past-sessions" / "SKILL.md"
    assert skill == AGENTS.registration_of("codex").skills() / "past-sessions" / "SKILL.md"

    removed = setup("--remove", "--agent", "codex")

    assert (0, True) == (removed.code, skill.exists())
    assert "One File reads it" in " ".join(removed.err.split())  # wherever it is wrapped
    setup("--yes")
    everywhere = setup("--remove")
    assert (0, False) == (everywhere.code, "reads it" in everywhere.err)
    assert before == everything(world.home)


def test_both_is_not_it(setup, newcomer):
    assert setup("--yes", "--agent", "both").code == 0
    assert not newcomer.registration.home().exists()


def test_where_it_is_not_it_is_named_and_not_written_to(setup, newcomer, world):
    (world.home / "bin" / newcomer.command.name).unlink()

    done = setup("--yes")
    hooks = setup("hooks")

    assert f" or {newcomer.title}." in " ".join(done.err.split()).partition("Run this again if you install")[2]
    assert f"{newcomer.name} has never run here" in hooks.out
    assert not newcomer.registration.home().exists()


def test_where_its_program_has_moved_it_is_registered_again_and_undone_to_the_byte(
    setup, newcomer, settled, monkeypatch, tmp_path
):
    before = everything(settled)
    setup("--yes")
    moved = tmp_path / "new" / "smart-fork"
    moved.parent.mkdir()
    moved.write_text("")
    monkeypatch.setattr("smart_fork.cli.setup.plan.lasting_program", lambda _: str(moved))

    assert setup("--yes").code == 0

    way = newcomer.registration
    assert str(moved) == way.argv(way.value(way.path().read_text()))[0]
    assert setup("--remove").code == 0
    assert before == everything(settled)


def test_the_doctor_says_what_is_gone(setup, newcomer, monkeypatch, tmp_path):
    monkeypatch.setattr("smart_fork.cli.setup.plan.lasting_program", lambda _: str(tmp_path / "gone"))
    setup("--yes", "--agent", newcomer.name)
    (check,) = Check.run("set-up", installed_parts.checks)
    assert (False, True) == (check.ok, "which no longer exists" in check.detail)

    (tmp_path / "gone").write_text("")
    newcomer.hooks.path().unlink()
    newcomer.registration.path().parent.mkdir(parents=True, exist_ok=True)
    newcomer.registration.path().write_text("{}")
    (check,) = Check.run("set-up", installed_parts.checks)
    assert "entry of the MCP server is gone" in check.detail


def test_a_plugin_of_somebody_else_stays_and_costs_the_hooks_alone(setup, world, monkeypatch):
    agent = Plugged()
    monkeypatch.setitem(AGENTS._by_name, agent.name, agent)
    path = agent.hooks.path()
    path.parent.mkdir(parents=True)
    path.write_text("// mine\n")
    before = everything(world.home)

    refused = setup("--yes", "--agent", agent.name)

    assert (1, b"// mine\n") == (refused.code, path.read_bytes())
    assert "is not smart-fork's" in refused.err
    assert setup("--remove").code == 0
    assert before == everything(world.home)


def test_the_hooks_are_printed_as_they_would_be(setup, world, monkeypatch):
    for agent in (OneFile(), Plugged()):
        monkeypatch.setitem(AGENTS._by_name, agent.name, agent)

    printed = json.loads(setup("hooks", "--print").out)

    assert {"SessionStart", "Stop"} == set(printed["onefile"]["hooks"])
    assert printed["plugged"]["content"].startswith("// smart-fork\n")
