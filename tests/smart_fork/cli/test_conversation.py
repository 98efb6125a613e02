"""`smart-fork mcp` as an agent runs it: the beginning comes from a file, everything else from the whole server."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anyio
import mcp_types as types
import psutil
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.smart_fork.cli.mcp_messages import INITIALIZE, call, request, told
from tests.support.cases import thorough_except_first
from tests.support.mcp_process import McpProcess

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
RETRY, DONE = "Add retry with backoff to the uploader", "The uploader retries five times now."
MCP = [sys.executable, "-m", "smart_fork", "mcp"]
SECONDS = 120  # a machine may be busy; where all is well it costs nothing


@pytest.fixture(autouse=True)
def _here(monkeypatch, programs):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


def agent_in(cwd: Path, *, greeted: bool = True, new: bool = False, **env: str) -> McpProcess:
    return McpProcess(MCP, cwd=cwd, env=os.environ | env, greeted=greeted, new=new)


def say(agent: McpProcess, *messages: dict[str, Any] | bytes) -> None:
    """Write all messages in one piece."""
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
    agent.process.stdin.write(b"".join(line + b"\n" for line in lines))
    agent.process.stdin.flush()


def hear(agent: McpProcess, count: int) -> list[dict[str, Any]]:
    """Return the next messages of the server."""
    return [json.loads(line) for _, line in zip(range(count), agent.process.stdout, strict=False)]


def ids(answer: dict) -> list[str]:
    return [hit["session_id"] for hit in answer["results"]]


def test_a_question_is_answered_in_the_directory_and_for_the_session_of_the_agent(world, shop):
    """F-003: the calling session is no result. All projects may be searched: F-210 limits only clients over HTTP."""
    other = world.repository("other")
    own, knows, theirs = (world.claude(cwd, RETRY, DONE) for cwd in (shop, shop, other))
    with agent_in(shop, CLAUDE_CODE_SESSION_ID=own) as agent:
        assert [knows] == ids(agent.call("smart_fork", intent=RETRY))
        assert [theirs] == ids(agent.call("smart_fork", intent=RETRY, project_path="../other"))
        assert theirs == agent.call("read_session", session_id=theirs)["session_id"]
    with agent_in(Path("/"), CLAUDE_PROJECT_DIR=str(other)) as agent:
        assert [theirs] == ids(agent.call("smart_fork", intent=RETRY))


def test_the_arguments_of_a_tool_say_nothing_of_who_asks(world, shop):
    """The model's words do not replace the agent's environment."""
    own = world.claude(shop, RETRY, DONE)
    with agent_in(shop, CLAUDE_CODE_SESSION_ID=own) as agent:
        meta = {"smart_fork.around": {"environment": {}, "directory": "/"}}
        answer = agent._ask("tools/call", name="smart_fork", arguments={"intent": RETRY}, _meta=meta)

        assert [] == ids(answer["structuredContent"])


def test_a_worker_is_started_in_the_agents_environment_and_goes_on_without_it(world, shop, scripted):
    with agent_in(shop, MARK="the agent's") as agent:
        (one,) = agent.call(
            "spawn_workers", workers=[{"project_path": ".", "prompt": "go", "run_in": "process", "worktree": False}]
        )["workers"]
        _, _, cwd, pid = scripted.call(one["worker_id"])

        assert str(shop) == cwd
        assert "the agent's" == psutil.Process(pid).environ()["MARK"]
        assert [one["worker_id"]] == [worker["worker_id"] for worker in agent.call("list_workers")["workers"]]
        assert 0 == agent.end()
        assert psutil.pid_exists(pid)


@pytest.mark.thorough
def test_what_is_written_with_the_first_question_is_read_by_the_whole_server(world, shop):
    """Even a part of a line counts: input that was read ahead is handed over."""
    with agent_in(shop, greeted=False) as agent:
        last = json.dumps(call(3, "list_sessions")).encode()
        begin = [INITIALIZE, told("notifications/initialized"), call(1, "list_sessions"), call(2, "list_sessions")]
        agent.process.stdin.write(b"".join(json.dumps(one).encode() + b"\n" for one in begin) + last[:20])
        agent.process.stdin.flush()
        assert {0, 1, 2} == {message["id"] for message in hear(agent, 3)}
        say(agent, last[20:])

        assert [3] == [message["id"] for message in hear(agent, 1)]


@pytest.mark.thorough
def test_the_handshake_is_answered_once_and_its_id_may_be_used_again(world, shop):
    with agent_in(shop, greeted=False) as agent:
        say(agent, INITIALIZE, call(0, "list_sessions"))
        welcome, listed = hear(agent, 2)

        assert "smart-fork" == welcome["result"]["serverInfo"]["name"]
        assert [] == listed["result"]["structuredContent"]["sessions"]


@pytest.mark.thorough
def test_many_questions_at_once_are_each_answered(world, shop):
    world.claude(shop, RETRY, DONE)
    asked = set(range(100, 160))
    with agent_in(shop) as agent:
        say(agent, *(call(number, "list_sessions") for number in asked))
        heard = hear(agent, len(asked))

        assert asked == {message["id"] for message in heard}
        assert not [message for message in heard if message.get("error") or message["result"].get("isError")]


def test_a_second_request_with_the_id_of_one_that_waits_is_refused_and_the_first_is_answered(world, shop):
    with agent_in(shop) as agent:
        waits = call(7, "wait_workers", workers=["x"], timeout=60)
        say(agent, call(6, "list_workers"), waits, request(7, "ping"), told("notifications/cancelled", requestId=7))
        answers = hear(agent, 2)
        while 6 not in {message["id"] for message in answers}:  # the wait may have ended before it was cancelled
            answers += hear(agent, 1)

        assert ["already in use" in one["error"]["message"] for one in answers if "error" in one] == [True]
        assert {} == agent._ask("ping")


@pytest.mark.parametrize("first", thorough_except_first([request("d", "server/discover"), request("p", "ping")]))
def test_who_asks_something_and_then_begins_with_the_handshake_is_served_from_there(world, shop, first):
    """The MCP library refuses a handshake that is not the first request."""
    with agent_in(shop, greeted=False) as agent:
        say(agent, first)
        hear(agent, 1)
        say(agent, INITIALIZE, told("notifications/initialized"), call(1, "list_sessions"))
        welcome, listed = hear(agent, 2)

        assert "smart-fork" == welcome["result"]["serverInfo"]["name"]
        assert [] == listed["result"]["structuredContent"]["sessions"]


def test_hostile_lines_change_nothing(world, shop):
    lines = (
        b"$(touch evil)", b"\x00\xff", b"[" * 5000, b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":{"a":1},"method":"tools/call"}', b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":"\\u0000","error":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/\\r\\nX: y","params":{}}',
    )  # fmt: skip
    for begin in ((), (call(99, "list_sessions"),)):  # to the beginning, and to the whole server
        with agent_in(shop) as agent:
            say(agent, *begin, *lines)
            assert {} == agent._ask("ping")
            if not begin:
                long = agent._ask("tools/call", name="read_session", arguments={"session_id": "x" * 3_000_000})
                assert long["isError"]
                assert {} == agent._ask("ping")
    assert not (shop / "evil").exists()


@pytest.mark.parametrize("busy", thorough_except_first([False, True]))
def test_it_ends_when_its_input_does(world, shop, busy):
    with agent_in(shop) as agent:
        if busy:
            say(agent, call(9, "smart_fork", intent="x"))

        assert 0 == agent.end()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", thorough_except_first([signal.SIGINT, signal.SIGTERM]))
def test_a_signal_ends_it(world, shop, number):
    with agent_in(shop) as agent:
        agent.call("list_workers")
        agent.process.send_signal(number)

        assert -number == agent.process.wait(SECONDS)


def test_what_is_written_at_once_is_answered_before_it_ends(world, shop):
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in (INITIALIZE, request(1, "ping")))
    done = subprocess.run(MCP, input=lines, cwd=shop, capture_output=True, check=True, timeout=SECONDS)

    assert 2 == done.stdout.count(b'"result"')


def test_an_agent_that_asks_for_nothing_starts_nothing(shop):
    with agent_in(shop, new=True) as agent:
        assert {} == agent._ask("ping")
        assert 7 == len(agent._ask("tools/list")["tools"])

        assert not any("orjson" in one.path for one in psutil.Process(agent.process.pid).memory_maps())
        assert 0 == agent.end()


def test_a_client_is_asked_for_its_roots_and_told_how_far_a_question_is(world, shop):
    root = world.repository("root")
    knows = world.claude(root, RETRY, DONE)
    progress = []

    async def talk() -> types.CallToolResult:
        async def list_roots(_: object) -> types.ListRootsResult:
            return types.ListRootsResult(roots=[types.Root(uri=root.as_uri())])

        async def heard(done: float, of: float | None, words: str | None) -> None:
            progress.append(words)

        server = stdio_client(StdioServerParameters(command=MCP[0], args=MCP[1:], cwd=str(shop), env=dict(os.environ)))
        info = types.Implementation(name="claude-code", version="1")
        async with Client(server, client_info=info, mode="legacy", list_roots_callback=list_roots) as session:
            return await session.call_tool("smart_fork", {"intent": RETRY}, progress_callback=heard)

    found = anyio.run(talk)

    assert [knows] == [hit["session_id"] for hit in found.structured_content["results"]]
    assert progress
