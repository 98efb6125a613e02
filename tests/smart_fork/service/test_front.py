"""`smart-fork mcp` beside the service, as an agent runs it."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import anyio
import mcp_types as types
import psutil
import pytest
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from smart_fork.release import own_version
from smart_fork.service import token
from smart_fork.service.address import Address, publish
from tests.living import arguments
from tests.mcp_process import McpProcess

ROOT = Path(__file__).resolve().parents[3]
RETRY, DONE = "Add retry with backoff to the uploader", "The uploader retries five times now."
MCP = [sys.executable, "-m", "smart_fork", "mcp"]
SECONDS = 120  # a machine may be busy; where all is well it costs nothing


@pytest.fixture(autouse=True)
def _here(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def announced(served, programs):
    """The service, where the programs of that home find it."""
    publish(Address("127.0.0.1", served.port, os.getpid(), own_version(), "2026-01-01T00:00:00+00:00"))
    return served


def front(cwd: Path, **env: str) -> McpProcess:
    return McpProcess(MCP, cwd=cwd, env=os.environ | env)


def servers(agent: McpProcess) -> list[psutil.Process]:
    """The servers of its own that a front has started."""
    return psutil.Process(agent.process.pid).children(recursive=True)


def is_thin(agent: McpProcess) -> bool:
    """Whether it has loaded nothing that a server needs."""
    return not any("pydantic_core" in one.path for one in psutil.Process(agent.process.pid).memory_maps())


def ids(answer: dict) -> list[str]:
    return [hit["session_id"] for hit in answer["results"]]


def test_a_question_is_answered_by_the_service_and_nothing_is_started(announced, world, shop):
    knows = world.claude(shop, RETRY, DONE)
    with front(shop) as agent:
        found = agent.call("smart_fork", intent=RETRY, auto_fork=False)

        assert [knows] == ids(found)
        assert "hybrid" == found["search_mode"]
        assert RETRY in world.model.asked, "it was the service's model"
        assert [knows] == [one["session_id"] for one in agent.call("list_sessions")["sessions"]]
        assert [] == servers(agent)
        assert is_thin(agent)


def test_it_asks_as_a_server_in_that_directory_would(announced, world, shop):
    """F-003: the session that asks is no result; and what it may ask about is not limited (F-210 is for clients over HTTP)."""
    other = world.repository("other")
    own, knows, theirs = (world.claude(cwd, RETRY, DONE) for cwd in (shop, shop, other))
    with front(shop, CLAUDE_CODE_SESSION_ID=own) as agent:
        assert [knows] == ids(agent.call("smart_fork", intent=RETRY))
        assert [theirs] == ids(agent.call("smart_fork", intent=RETRY, project_path="../other"))
        assert theirs == agent.call("read_session", session_id=theirs)["session_id"]
        assert [] == servers(agent)
    with front(Path("/"), CLAUDE_PROJECT_DIR=str(other)) as agent:
        assert [theirs] == ids(agent.call("smart_fork", intent=RETRY))
        assert [] == servers(agent)


def test_the_arguments_of_a_tool_say_nothing_of_who_asks(announced, world, shop):
    """What a model says is not what our program says."""
    own = world.claude(shop, RETRY, DONE)
    with front(shop, CLAUDE_CODE_SESSION_ID=own) as agent:
        told = {"smart_fork.around": {"environment": {}, "directory": "/"}, "Smart-Fork-Caller": "x"}
        answer = agent._ask("tools/call", name="smart_fork", arguments={"intent": RETRY}, _meta=told)

        assert [] == ids(answer["structuredContent"])


def test_what_acts_is_done_by_a_server_of_its_own_in_the_agents_environment(announced, world, shop, scripted):
    with front(shop, MARK="the agent's") as agent:
        agent.call("list_workers")
        told = agent.call(
            "spawn_workers", workers=[{"project_path": ".", "prompt": "go", "run_in": "process", "worktree": False}]
        )
        (one,) = told["workers"]
        _, _, cwd, pid = scripted.call(one["worker_id"])

        assert str(shop) == cwd
        assert "the agent's" == psutil.Process(pid).environ()["MARK"]
        assert [one["worker_id"]] == [worker["worker_id"] for worker in agent.call("list_workers")["workers"]]
        (own,) = [child for child in servers(agent) if "smart_fork.cli" in arguments(child)]
        assert 0 == agent.end()
        assert not own.is_running()
        assert psutil.pid_exists(pid), "a worker goes on"


def test_many_questions_at_once_are_each_answered(announced, world, shop):
    world.claude(shop, RETRY, DONE)
    asked = set(range(100, 160))
    with front(shop) as agent:
        for number in asked:
            agent._say({"id": number, "method": "tools/call", "params": {"name": "list_sessions", "arguments": {}}})
        heard = [json.loads(line) for _, line in zip(asked, agent.process.stdout, strict=False)]

        assert asked == {message["id"] for message in heard}
        assert not [message for message in heard if message.get("error") or message["result"].get("isError")]
        assert [] == servers(agent)


def test_hostile_lines_change_nothing(announced, world, shop):
    """And one that the service would not take is answered all the same."""
    lines = (
        b"$(touch evil)", b"\x00\xff", b"[" * 5000, b'{"jsonrpc":"2.0","id":1e400,"method":"ping"}',
        b'{"jsonrpc":"2.0","id":{"a":1},"method":"tools/call"}', b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
        b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":[1]}}',
        b'{"jsonrpc":"2.0","id":1,"result":{}}', b'{"jsonrpc":"2.0","id":"\\u0000","error":{}}',
        b'{"jsonrpc":"2.0","method":"notifications/\\r\\nX: y","params":{"_meta":{"Smart-Fork-Caller":"x"}}}',
    )  # fmt: skip
    with front(shop) as agent:
        for line in lines:
            agent.process.stdin.write(line + b"\n")
        assert {} == agent._ask("ping")
        assert [] == servers(agent)
        long = agent._ask("tools/call", name="read_session", arguments={"session_id": "x" * 3_000_000})
        assert long["isError"]
        assert {} == agent._ask("ping")


def test_nothing_is_left_of_a_front_that_is_killed(announced, world, shop):
    with front(shop) as agent:
        agent._ask("tools/call", name="close_workers", arguments={"workers": ["x"]})
        own = servers(agent)
        assert own
        agent.kill()

        assert [] == psutil.wait_procs(own, SECONDS)[1]


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_when_its_input_does(announced, world, shop, busy):
    with front(shop) as agent:
        if busy:
            agent._say(
                {"id": 9, "method": "tools/call", "params": {"name": "smart_fork", "arguments": {"intent": "x"}}}
            )

        assert 0 == agent.end()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_the_server_that_it_has_started(announced, world, shop, number):
    with front(shop) as agent:
        agent._ask("tools/call", name="close_workers", arguments={"workers": ["x"]})
        own = servers(agent)
        agent.process.send_signal(number)

        assert 128 + number == agent.process.wait(SECONDS)
        assert own
        assert [] == psutil.wait_procs(own, SECONDS)[1]


@pytest.mark.parametrize("how", ["its input is closed", "it is told to end", "it is killed"])
def test_the_service_does_not_go_on_for_a_front_that_is_gone(announced, world, shop, how, monkeypatch):
    begun, given_up = threading.Event(), threading.Event()

    def waits(_workers, _any_of, _seconds, over, told) -> dict:
        begun.set()
        passed = itertools.count()
        try:
            while not over.wait(0.01):
                told(0, 1, float(next(passed)))
        finally:  # to tell a conversation that has ended can fail as well
            given_up.set()
        return {"done": False, "workers": [], "notice": ""}

    monkeypatch.setattr("smart_fork.server.workers._wait", waits)
    with front(shop) as agent:
        agent._say(
            {"id": 9, "method": "tools/call", "params": {"name": "wait_workers", "arguments": {"workers": ["x"]}}}
        )
        assert begun.wait(SECONDS)
        assert not given_up.is_set()
        if how == "its input is closed":
            agent.end()
        elif how == "it is told to end":
            agent.process.terminate()
        else:
            agent.kill()

        assert given_up.wait(SECONDS)


def test_what_is_written_at_once_is_answered_before_it_ends(announced, world, shop):
    lines = (
        b'{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},'
        b'"clientInfo":{"name":"x","version":"1"}}}\n{"jsonrpc":"2.0","id":1,"method":"ping"}\n'
    )
    done = subprocess.run(MCP, input=lines, cwd=shop, capture_output=True, check=True, timeout=SECONDS)

    assert 2 == done.stdout.count(b'"result"')


def test_whoever_asks_beside_the_service_goes_on_when_the_token_is_changed(announced, world, shop):
    knows = world.claude(shop, RETRY, DONE)
    with front(shop) as agent:
        for _ in range(5):
            assert [knows] == [one["session_id"] for one in agent.call("list_sessions")["sessions"]]
            old = announced.secret
            assert old == token.change() != announced.secret
        assert [] == servers(agent)


@pytest.mark.parametrize("how", ["has another version", "has another token", "refuses", "has other settings"])
def test_a_service_that_is_not_the_same_any_more_is_asked_no_more(announced, world, shop, how, monkeypatch):
    knows = world.claude(shop, RETRY, DONE)
    with front(shop) as agent:
        agent.call("list_sessions")
        if how == "has another version":
            monkeypatch.setattr("smart_fork.service.app.own_version", lambda: "9.9")
        elif how == "has another token":
            monkeypatch.setattr("smart_fork.service.token.Token.__call__", lambda _: "0" * 64)
        elif how == "refuses":
            monkeypatch.setattr("smart_fork.service.guard.MAX_BODY", 10)
        else:
            monkeypatch.setenv("CODEX_HOME", "/elsewhere")  # of the service, which is this process

        assert [knows] == [one["session_id"] for one in agent.call("list_sessions")["sessions"]]
        assert 1 == len(servers(agent))


@pytest.mark.parametrize(
    "env", [{"SMART_FORK_SERVICE": "false"}, {"CODEX_HOME": "/elsewhere"}, {"SMART_FORK_MODEL": "another/model"}]
)
def test_with_other_settings_it_asks_a_server_of_its_own(announced, world, shop, env):
    world.claude(shop, RETRY, DONE)
    with front(shop, **env) as agent:
        agent.call("list_sessions")

        assert is_thin(agent)
        assert 1 == len(servers(agent))
        assert [] == world.model.asked


def test_an_agent_that_asks_for_nothing_starts_nothing(announced, shop):
    with front(shop) as agent:
        assert {} == agent._ask("ping")
        assert 7 == len(agent._ask("tools/list")["tools"])

        assert [] == servers(agent)
        assert not any("orjson" in one.path for one in psutil.Process(agent.process.pid).memory_maps())
        assert 0 == agent.end()


def test_a_server_of_its_own_that_is_killed_is_started_again_for_the_next_question(world, shop, programs):
    """And nothing is left of it when the front is killed in turn."""
    knows = world.claude(shop, RETRY, DONE)
    with front(shop) as agent:
        assert [knows] == [one["session_id"] for one in agent.call("list_sessions")["sessions"]]
        (first,) = servers(agent)
        agent._say({"id": 50, "method": "tools/call", "params": {"name": "wait_workers", "arguments": {"workers": []}}})
        first.kill()
        first.wait()
        assert [knows] == [one["session_id"] for one in agent.call("list_sessions")["sessions"]]
        second = servers(agent)
        agent.kill()

        assert second != [first]
        assert [] == psutil.wait_procs(second, SECONDS)[1]


def test_a_client_is_asked_for_its_roots_and_told_how_far_a_question_is(announced, world, shop):
    """The service's own requests and notifications pass."""
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


def test_a_front_imports_nothing_that_answers(home):
    heavy = {"anyio", "apsw", "mcp", "numpy", "psutil", "pydantic", "starlette", "torch", "typer"}
    script = "import sys, smart_fork.__main__, smart_fork.front.handover; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert set() == heavy & set(done.stdout.split())
