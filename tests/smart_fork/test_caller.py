"""Tests of identifying the caller by the data that real clients send."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS, AllAgents
from smart_fork.agents.agent import Agent, ClientCall
from smart_fork.server.calls import ToolCaller, agent_of, identify
from tests.support.cases import parametrize_subtests

CALL = "toolu_01ABCDEFGHIJ"


def test_claude_code_by_its_environment(shop):
    env = {"CLAUDE_CODE_SESSION_ID": "s1", "CLAUDE_PROJECT_DIR": str(shop)}

    assert identify("claude-code", {}, (), env, Path("/")) == ToolCaller("claude", "s1", str(shop))


def test_after_clear_the_call_itself_says_in_which_session_it_stands(world, shop):
    old, new = world.claude(shop, "one", "1"), world.claude(shop, "two", CALL)
    env = {"CLAUDE_CODE_SESSION_ID": old}

    caller = identify("claude-code", {"claudecode/toolUseId": CALL}, (shop.as_uri(),), env, Path("/"))

    assert caller == ToolCaller("claude", new, str(shop))


def test_a_call_that_claude_writes_a_moment_later_is_found_where_no_environment_names_the_session(
    world, shop, monkeypatch
):
    """Over HTTP only the log tells the session. Without it a search would find the caller's own session."""
    old, pauses = world.claude(shop, "one", "1"), []
    monkeypatch.setattr(
        "smart_fork.agents.claude.settings.time.sleep", lambda _: pauses.append(world.claude(shop, "two", CALL))
    )

    def ask(env):
        return identify("claude-code", {"claudecode/toolUseId": CALL}, (shop.as_uri(),), env, Path("/")).session_id

    assert ask({"CLAUDE_CODE_SESSION_ID": old}) == old
    assert not pauses
    assert [ask({})] == pauses


@pytest.mark.parametrize("call", ["", "t", "toolu_unknown_anywhere", 7, None])
def test_a_call_that_is_nowhere_leaves_the_environment(world, shop, call):
    world.claude(shop, "one t", "1")
    env = {"CLAUDE_CODE_SESSION_ID": "s1"}

    assert identify("claude-code", {"claudecode/toolUseId": call}, (), env, shop).session_id == "s1"


def test_a_fifo_among_the_logs_is_not_waited_for(world, shop):
    session_id = world.claude(shop, "one", CALL)
    os.mkfifo(world.log_of(session_id).with_name("newest.jsonl"))

    assert identify("claude-code", {"claudecode/toolUseId": CALL}, (), {}, shop).session_id == session_id


def test_codex_by_what_each_call_carries(shop):
    """Under Codex's daemon neither the environment nor the working directory tells the session."""
    meta = {"threadId": "t1", "sessionId": "s1", "x-codex-turn-metadata": {"workspaces": {"/gone": {}, str(shop): {}}}}

    assert identify("codex-mcp-client", meta, (), {}, Path("/")) == ToolCaller("codex", "t1", str(shop))
    assert identify("codex-mcp-client", {"sessionId": "s1"}, (), {}, shop) == ToolCaller("codex", "s1", str(shop))


@pytest.mark.parametrize(
    "meta", [{"threadId": 7}, {"x-codex-turn-metadata": "text"}, {"x-codex-turn-metadata": {"workspaces": ["a"]}}]
)
def test_odd_data_is_no_caller(shop, meta):
    assert identify("codex-mcp-client", meta, (), {}, shop) == ToolCaller("codex", None, str(shop))


@pytest.mark.parametrize(
    "root", ["https://example.com/x", "file:///no/such", "file://[", "file:///nul%00byte", "relative"]
)
def test_a_root_that_is_no_folder_is_passed_over(shop, root):
    assert identify("claude-code", {}, (root,), {}, shop).project == str(shop)


def test_a_root_may_have_blanks(world):
    folder = world.repository("my shop ü")

    assert identify("x", {}, (folder.as_uri(),), {}, Path("/")).project == str(folder)


def test_the_root_of_the_disk_is_no_project():
    assert identify(None, {}, (), {}, Path("/")) == ToolCaller(None, None, None)


class Plugged:
    """The calls of an agent with a plugin of smart-fork, which names the session in each call."""

    argument = "whose"

    def session_id(self, call: ClientCall) -> str | None:
        named = call.arguments.get(self.argument)
        return named if isinstance(named, str) else None

    def workspaces(self, meta):
        return []


class Newcomer(Agent):
    """An agent that smart-fork does not know."""

    name, title = "newcomer", "Newcomer"
    clients = ("newcomer-mcp",)
    session_variables, project_variables = ("NEWCOMER_SESSION",), ("NEWCOMER_PROJECT",)


@pytest.fixture
def newcomer(monkeypatch):
    agent = Newcomer()
    monkeypatch.setattr("smart_fork.server.calls.AGENTS", AllAgents(*AGENTS, agent))
    return agent


@pytest.mark.parametrize(
    ("client", "name"),
    [
        ("claude-code", "claude"),
        ("Claude Code", "claude"),
        ("codex-mcp-client", "codex"),
        ("newcomer-mcp-claude", "newcomer"),
        ("", None),
        (None, None),
        ("an editor", None),
    ],
)
def test_an_agent_is_known_by_what_its_clients_names_begin_with(newcomer, client, name):
    """Some clients add the server's name behind their own, which a person chooses."""
    found = agent_of(client)

    assert name == (found.name if found else None)


def test_another_agent_is_known_by_its_own_variables_and_not_by_those_that_it_has_inherited(newcomer, shop, world):
    inherited = {"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "outer", "CLAUDE_PROJECT_DIR": str(world.repository("x"))}
    own = {"NEWCOMER_SESSION": "inner", "NEWCOMER_PROJECT": str(shop)}

    assert ToolCaller("newcomer", None, str(shop)) == identify("newcomer-mcp", {}, (), inherited, shop)
    assert ToolCaller("newcomer", "inner", str(shop)) == identify("newcomer-mcp", {}, (), inherited | own, Path("/"))


def test_an_argument_that_something_inside_the_agent_adds_names_the_session(newcomer, shop):
    newcomer.caller = Plugged()

    def ask(arguments):
        return identify("newcomer-mcp", {}, (), {"NEWCOMER_SESSION": "old"}, shop, arguments=arguments).session_id

    assert ["new", "old", "old"] == [ask({"whose": "new"}), ask({"whose": 7}), ask({})]


@parametrize_subtests(
    ("environment", "session"),
    [
        ({}, None),
        ({"CLAUDE_CODE_SESSION_ID": "s"}, "s"),
        ({"CODEX_THREAD_ID": "t"}, "t"),
        ({"CLAUDECODE": "1", "CLAUDE_CODE_SESSION_ID": "s", "CODEX_THREAD_ID": ""}, "s"),
        ({"CLAUDE_PROJECT_DIR": "/p"}, None),
    ],
)
def test_the_session_that_has_started_a_command_is_in_its_environment(environment, session):
    assert session == AGENTS.caller_session(environment)
