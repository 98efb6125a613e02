"""Tests of the plugin for OpenCode, and of the session that its calls name."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.agent import ClientCall
from smart_fork.cli.setup import agent_hooks
from smart_fork.server.calls import identify
from tests.smart_fork.mcp_client import answer, refusal

SESSION = "ses_dfa250832ffeWnZ96aG4Zc4UiC"
RETRY = "add retry with backoff to the uploader"


@pytest.mark.parametrize("path", ["/usr/bin/python", '/odd "path"\\n\n$x`y`${z}/python', "/ä/@TOOLS@"])
def test_the_plugin_is_told_what_to_run_as_data(path):
    text = AGENTS["opencode"].hooks.content([path, "-I", "-m", "smart_fork.hooks", "opencode"])

    (line,) = [line for line in text.splitlines() if line.startswith("const COMMAND = ")]
    assert [path, "-I", "-m", "smart_fork.hooks", "opencode"] == json.loads(line.removeprefix("const COMMAND = "))
    assert 'const TOOLS = "smart-fork_"' in text
    assert 'const ARGUMENT = "calling_session"' in text


def test_it_lies_where_opencode_loads_plugins(home, monkeypatch):
    assert home / ".config/opencode/plugins/smart-fork.js" == agent_hooks.settings_file("opencode")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / "config"))
    assert home / "config/opencode/plugins/smart-fork.js" == agent_hooks.settings_file("opencode")
    monkeypatch.setenv("XDG_CONFIG_HOME", "config")
    assert home / ".config/opencode/plugins/smart-fork.js" == agent_hooks.settings_file("opencode")


def test_its_entry_is_one_list_and_keeps_what_a_person_has_chosen():
    way = AGENTS["opencode"].registration

    entry = way.wanted(
        ["/bin/smart-fork", "mcp"], {}, {"type": "local", "command": ["old"], "enabled": False, "timeout": 9}
    )

    assert {"type": "local", "command": ["/bin/smart-fork", "mcp"], "enabled": False, "timeout": 9} == entry
    assert ("/bin/smart-fork", "mcp") == way.argv(entry)
    assert () == way.argv({"type": "remote", "url": "http://localhost"})
    assert {"A": "b", "OPENCODE": "1"} == way.environment({"OPENCODE_PID": "7"}, {"environment": {"A": "b"}})


@pytest.mark.parametrize(
    ("given", "session"), [({"calling_session": SESSION}, SESSION), ({}, None), ({"calling_session": [7]}, None)]
)
def test_a_call_names_its_session(given, session):
    assert session == AGENTS["opencode"].caller.session_id(ClientCall({}, given, {}, None))
    assert ("opencode", session) == (
        (found := identify("opencode", {}, (), {}, Path("/"), arguments=given)).agent,
        found.session_id,
    )


def test_a_tool_takes_the_call_as_if_nobody_had_added_anything(world, shop, monkeypatch):
    monkeypatch.chdir(shop)
    world.claude(shop, RETRY, "done")

    assert 1 == answer(world, client="opencode", intent=RETRY, calling_session=SESSION)["count"]
    assert "calling_session" in refusal(world, intent=RETRY, calling_session=SESSION)
