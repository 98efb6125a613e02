"""Tests of wrong and missing arguments: the error names the parameter, its value and the allowed values."""

from __future__ import annotations

import errno
import os
from typing import Any

import anyio
import pytest
from mcp import Client

from smart_fork.agents import AGENTS
from smart_fork.display_text import one_of
from smart_fork.finding.request import collections
from smart_fork.server.calls import in_thread
from smart_fork.server.tool_construction import strict
from tests.smart_fork.mcp_client import answer, refusal
from tests.smart_fork.tool_server import create_server
from tests.support.cases import thorough_except

TOOLS = {tool.name: tool for tool in create_server()._tool_manager.list_tools()}
#: One value of each kind that JSON has, and the words of libraries that must not be heard.
VALUES: list[Any] = [None, True, 7, -1, 2.5, "x", "\x1b[31m", ["x"], [1], {"x": 1}, [[]], "9" * 5000]
FOREIGN = (
    "pydantic",
    "http://",
    "https://",
    "validation error",
    "Input should",
    "Error executing",
    "Traceback",
    "type=",
)
SENTENCE = 700


@pytest.fixture(autouse=True)
def _in_the_project(shop, monkeypatch):
    monkeypatch.chdir(shop)


@pytest.mark.parametrize(
    ("tool", "arguments", "said"),
    [
        ("list_sessions", {"limit": 0}, "limit must be at least 1, not 0"),
        ("list_sessions", {"limit": 101}, "limit must be at most 100, not 101"),
        ("read_session", {"session_id": "deadbeef", "context": -1}, "context must be at least 0, not -1"),
        (
            "list_workers",
            {"project_path": "/x", "all_projects": True},
            "project_path and all_projects are mutually excl",
        ),
        ("branch_session", {"session_id": "deadbeef", "prompt": "go on"}, "prompt and run_in are only for start: true"),
        (
            "branch_session",
            {"session_id": "deadbeef", "run_in": "process"},
            "prompt and run_in are only for start: true",
        ),
        ("wait_workers", {"workers": ["claude-1"], "timeout": 3601}, "timeout must be at most 3600 seconds, not 3601"),
    ],
)
def test_what_is_out_of_range_is_refused(world, tool, arguments, said):
    async def talk() -> Any:
        async with Client(create_server(world.model, everything=True)) as client:
            return await client.call_tool(tool, arguments)

    refused = anyio.run(talk)

    assert refused.is_error
    assert said in refused.content[0].text


#: The one with the most parameters, one that starts, one that cuts: all are made in one way.
ALWAYS = ("smart_fork", "spawn_workers", "excise_session")


@pytest.mark.parametrize("tool", thorough_except(TOOLS, *ALWAYS))
@pytest.mark.slow
def test_whatever_is_given_a_refusal_is_ours(world, tool):
    required = dict.fromkeys(TOOLS[tool].parameters.get("required", ()), "deadbeef")

    async def talk() -> list[str]:
        async with Client(create_server(world.model, everything=True)) as client:
            given = [
                await client.call_tool(tool, {**required, parameter: value})
                for parameter in TOOLS[tool].parameters["properties"]
                for value in VALUES
            ]
        return [one.content[0].text for one in given if one.is_error]

    for said in anyio.run(talk):
        assert not [word for word in FOREIGN if word in said]
        assert len(said) < SENTENCE
        assert said.isprintable()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"limit": "many"}, 'limit must be a whole number, not "many"'),
        ({"limit": True}, "limit must be a whole number, not true"),
        ({"limit": 2.5}, "limit must be a whole number, not 2.5"),
        ({"limit": 0}, "limit must be at least 1, not 0."),
        ({"limit": 51}, "limit must be at most 50, not 51."),
        ({"project_path": ""}, "project_path is empty: give text, or drop it"),
        ({"fork_session_id": ""}, "fork_session_id is empty: give text, or drop it"),
        ({"fork_session_id": "60309e1e", "fork_index": 0}, "fork_session_id and fork_index are mutually exclusive"),
        ({"worktree": "", "auto_fork": True}, "worktree is empty: give text or true or false, or drop it"),
        ({"intent": "\u200b\n"}, "intent is required. Write what you want to do next"),
        ({"worktree": False, "with_changes": True}, "with_changes needs a worktree"),
        ({"project_path": " "}, "project_path is empty: give text, or drop it"),
        ({"min_score": "0.5"}, 'min_score must be a finite number, not "0.5"'),
        ({"min_score": True}, "min_score must be a finite number, not true"),
        ({"run_in": "screen"}, "run_in must be 'tmux' or 'process' or 'iterm2' or 'claude', not \"screen\""),
        ({"at": "end"}, "at must be a whole number or 'match', not \"end\""),
        ({"worktree": 5}, "worktree must be text or true or false, not 5"),
        ({"auto_fork": "perhaps"}, 'auto_fork must be true or false, not "perhaps"'),
        ({"agent_type": "gpt"}, f'agent_type must be {one_of(AGENTS.choices())}, not "gpt"'),
        ({"collection": "notes"}, f"unknown collection: notes. Known: {', '.join(collections().values())}."),
        ({"also": "in other words"}, 'also must be a list of texts, not "in other words"'),
        ({"also": ["fine", 5]}, 'also must be a list of texts, not ["fine", 5]'),
        ({"also": ["fine", None]}, 'also must be a list of texts, not ["fine", null]'),
        ({"also": {"a": "b"}}, 'also must be a list of texts, not {"a": "b"}'),
        ({"also": True}, "also must be a list of texts, not true"),
        ({"also": ["x"] * 1000}, "also takes at most 8 texts, not 1000."),
        ({"also": ["x" * 301]}, "also takes texts of at most 300 characters; number 1 has 301."),
        ({"intent": 5}, "intent must be text, not 5"),
        ({"limits": 5}, "unknown parameter: limits. Known: intent, agent_type,"),
    ],
)
def test_the_parameter_what_was_given_and_what_is_allowed(world, arguments, said):
    assert refusal(world, **({"intent": "retry"} | arguments)).startswith(said)


def test_what_is_missing_is_named_with_what_it_is_for(world):
    assert refusal(world) == "intent is required. Write what you want to do next, in a sentence."
    assert refusal(world, "read_session") == "session_id is required (text): Its id, or 8 characters."


def test_the_elements_of_a_list_are_looked_at(world):
    assert refusal(world, "wait_workers", workers=[1]) == "workers must be a list of texts, not [1]"


def test_a_secret_that_was_given_is_not_repeated(world):
    token = "ghp_" + "a1B2c3D4e5" * 4

    assert token[:12] not in refusal(world, intent="x", limit=token)
    assert token[:12] not in refusal(world, **{"intent": "x", token: 1})


@pytest.mark.parametrize("value", ["3", 3.0])
def test_a_whole_number_may_be_written_as_some_clients_do(world, shop, value):
    for number in range(4):
        world.claude(shop, f"add retry {number}", "done")

    assert answer(world, "list_sessions", limit=value)["count"] == 3


def test_a_text_that_happens_to_be_json_stays_a_text(world, shop):
    world.claude(shop, 'what does {"a": 1} mean', "an object")

    assert answer(world, intent="null")["query"] == "null"
    assert refusal(world, intent="x", project_path='["x"]').startswith("project_path does not exist: ")


def test_a_tool_that_there_is_not_is_refused_with_those_that_there_are(world):
    said = refusal(world, "find_everything\x1b[31m" * 40)

    assert said.startswith('There is no tool "find_everything')
    assert said.endswith("excise_session.")
    assert "\x1b" not in said


def test_what_goes_wrong_in_us_is_told_without_its_inside(world):
    async def broken() -> dict[str, Any]:
        """Fail."""
        raise RuntimeError("the key is in /home/ann/secret")

    async def talk() -> Any:
        server = create_server(everything=True)
        server._tool_manager._tools["broken"] = strict(broken, "Broken")
        async with Client(server) as client:
            return await client.call_tool("broken", {})

    told = anyio.run(talk)

    assert told.is_error
    assert told.content[0].text == (
        "broken failed unexpectedly. Ask once more; if it fails again, smart-fork's doctor says why."
    )


@pytest.mark.parametrize("limited", [False, True])
def test_a_file_that_cannot_be_read_is_named_with_the_next_step_to_who_may_know_it(
    world, tmp_path, limited, monkeypatch
):
    monkeypatch.setattr("smart_fork.system.call_context.limited", lambda: limited)

    def unreadable() -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(tmp_path / "x"))

    async def broken() -> None:
        """Fail."""
        await in_thread(unreadable)

    async def talk() -> Any:
        server = create_server(everything=True)
        server._tool_manager._tools["broken"] = strict(broken, "Broken")
        async with Client(server) as client:
            return await client.call_tool("broken", {})

    told = anyio.run(talk)

    named = f"{tmp_path / 'x'}: Permission denied. Make {tmp_path} readable and writable for you"
    assert told.is_error
    assert limited is not told.content[0].text.startswith(named)
    assert limited is not (str(tmp_path) in told.content[0].text)
