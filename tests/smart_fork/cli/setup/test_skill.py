"""The skill: the text that teaches an agent when to use smart-fork."""

from __future__ import annotations

import re
from importlib.resources import files

from smart_fork.cli.command_table import COMMANDS
from smart_fork.server import Server

SKILL = files("smart_fork.cli.setup").joinpath("skill/SKILL.md").read_text(encoding="utf-8")


def test_it_is_a_skill_that_both_agents_read():
    """Its name is its folder's name. Its description is short: each first request to a model lists it."""
    front = SKILL.split("---\n")[1]
    fields = dict(line.split(": ", 1) for line in front.splitlines())

    assert {"name", "description"} == set(fields)
    assert "past-sessions" == fields["name"]
    assert len(fields["description"]) <= 500


def test_it_names_only_tools_and_commands_that_there_are():
    tools = set(Server()._tool_manager._tools)

    assert set(re.findall(r"`(\w+_\w+)`", SKILL)) - {"auto_fork", "session_id"} <= tools
    assert set(re.findall(r"^    smart-fork (\w+)", SKILL, re.MULTILINE)) <= set(COMMANDS)


def test_it_names_only_parameters_that_there_are():
    tools = Server()._tool_manager._tools
    taken = set(tools["find_sessions"].parameters["properties"]) | set(tools["smart_fork"].parameters["properties"])
    taken |= set(tools["read_session"].parameters["properties"])

    assert {"intent", "also", "at", "session_id", "auto_fork", "prompt"} <= taken
    assert {"`intent`", "`also`", "`at`", "`session_id`", "`prompt`"} <= set(re.findall(r"`\w+`", SKILL))
