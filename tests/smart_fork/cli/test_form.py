"""The form "which of these?" reaches the person at an MCP client through `smart-fork mcp`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.smart_fork.mcp_client import Person, choices
from tests.smart_fork.world import World
from tests.support.mcp_process import McpProcess

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
RETRY, DONE = "Add retry with backoff to the uploader", "The uploader retries five times now."
MCP = [sys.executable, "-m", "smart_fork", "mcp"]


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def near(world: World, shop: Path) -> set[str]:
    return {world.claude(shop, RETRY, DONE) for _ in range(2)}


def talk(shop: Path, mode: str, *chooses: int | str) -> tuple[list[dict[str, Any]], Person]:
    """Return a client's messages: a search, then a fork of the best session for each choice of a person."""
    person = Person("none yet")

    async def calls() -> list[types.CallToolResult]:
        server = stdio_client(StdioServerParameters(command=MCP[0], args=MCP[1:], cwd=str(shop), env=dict(os.environ)))
        async with Client(server, mode=mode, elicitation_callback=person) as client:
            answers = [await client.call_tool("find_sessions", {"intent": RETRY})]
            arguments = {"intent": RETRY, "auto_fork": True, "prompt": "go", "run_in": "process"}
            for person.chooses in chooses:
                answers.append(await client.call_tool("smart_fork", arguments))
            return answers

    answers = anyio.run(calls)
    assert not any(one.is_error for one in answers), answers
    return [one.structured_content or {} for one in answers], person


@pytest.mark.parametrize("mode", ["legacy", pytest.param("auto", marks=pytest.mark.thorough)])
def test_where_the_form_is_left_nothing_is_forked_and_else_the_session_that_a_person_chooses(
    near, scripted, shop, mode
):
    (found, left, answer), person = talk(shop, mode, "cancel", 1)

    assert "the question has no answer" in left["error"]
    assert near == {hit["session_id"] for hit in left["results"]}
    assert 2 == len(person.forms), answer
    form = person.forms[1]
    chosen = list(choices(form))[1]
    assert near == {hit["session_id"] for hit in found["results"]} == set(choices(form)) - {"none"}
    assert chosen == answer["forked_session"]["resume_session_id"]
    program, words, cwd, _ = scripted.call(answer["forked_session"]["worker_id"])
    assert ("claude", str(shop)) == (program, cwd)
    assert chosen in words
    assert 1 == len(scripted.ran())


def test_a_form_of_a_call_that_is_taken_back_is_taken_from_the_screen_and_nothing_is_forked(near, scripted, shop):
    with McpProcess(MCP, cwd=shop, env=os.environ, greeted=False) as agent:
        agent._ask(
            "initialize", protocolVersion="2025-06-18", capabilities={"elicitation": {}},
            clientInfo={"name": "codex-mcp-client", "version": "1"},
        )  # fmt: skip
        agent._say({"method": "notifications/initialized", "params": {}})
        arguments = {"intent": RETRY, "auto_fork": True, "agent_type": "claude", "run_in": "process"}
        agent._say({"id": 7, "method": "tools/call", "params": {"name": "smart_fork", "arguments": arguments}})
        form = heard(agent, "elicitation/create")
        (field,) = form["params"]["requestedSchema"]["properties"].values()
        assert near | {"none"} == set(field["enum"])
        assert len(field["enum"]) == len(field["enumNames"])

        agent._say({"method": "notifications/cancelled", "params": {"requestId": 7}})

        assert form["id"] == heard(agent, "notifications/cancelled")["params"]["requestId"]
        late = {"action": "accept", "content": {"session": next(iter(near))}}
        agent._say({"id": form["id"], "result": late})
        assert {} == agent._ask("ping")
        assert 0 == agent.end()
    assert {} == scripted.ran()


def heard(agent: McpProcess, method: str) -> dict[str, Any]:
    """Return the next message with this method that the client receives."""
    assert agent.process.stdout is not None
    return next(message for message in map(json.loads, agent.process.stdout) if message.get("method") == method)
