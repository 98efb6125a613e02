"""The service is killed, and starts again, under a front that stays."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from smart_fork.registry import Registry
from tests.mcp_process import McpProcess
from tests.smart_fork.forks import eventually

ROOT = Path(__file__).resolve().parents[3]
RETRY, DONE = "Add retry with backoff to the uploader", "The uploader retries five times now."
PROGRAM = [sys.executable, "-m", "smart_fork"]


class Daemon:
    """`smart-fork serve`, at a port of its own."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = str(free.getsockname()[1])
        self.start()

    def start(self) -> None:
        env = os.environ | {"SMART_FORK_PORT": self._port}
        self._process = subprocess.Popen([*PROGRAM, "serve"], env=env, cwd="/", stderr=subprocess.DEVNULL)
        eventually(self._answers)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/hello", timeout=120):
                return True
        except OSError:
            return False


@pytest.fixture
def daemon(monkeypatch, programs) -> Iterator[Daemon]:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    service = Daemon()
    yield service
    service.kill()


def front(cwd: Path) -> McpProcess:
    return McpProcess([*PROGRAM, "mcp"], cwd=cwd, env=os.environ)


def servers(agent: McpProcess) -> list[psutil.Process]:
    return psutil.Process(agent.process.pid).children(recursive=True)


def ids(answer: dict) -> list[str]:
    return [hit["session_id"] for hit in answer["results"]]


def test_where_the_service_is_killed_the_next_question_is_answered_all_the_same(daemon, world, shop):
    knows = world.claude(shop, RETRY, DONE)
    with front(shop) as agent:
        assert [knows] == ids(agent.call("smart_fork", intent=RETRY))
        assert [] == servers(agent)
        daemon.kill()

        assert [knows] == ids(agent.call("smart_fork", intent=RETRY))
        assert [knows] == ids(agent.call("smart_fork", intent=RETRY))
        assert 1 == len(servers(agent))


def test_where_it_has_started_again_meanwhile_it_is_asked_as_before(daemon, world, shop):
    """It knows nothing of the conversation any more, which is begun anew."""
    knows = world.claude(shop, RETRY, DONE)
    with front(shop) as agent:
        agent.call("list_sessions")
        daemon.kill()
        daemon.start()

        assert [knows] == ids(agent.call("smart_fork", intent=RETRY))
        assert [] == servers(agent)


def test_where_it_is_killed_in_the_middle_of_an_answer_that_comes_from_elsewhere(daemon, world, shop, marked):
    session = world.claude(shop, RETRY, DONE)
    with Registry() as registry:
        worker = registry.add(
            "claude", source_session_id=session, session_id=session, place="process", cwd=shop, prompt="x"
        )
        registry.set_started(worker.id, command=["claude"], pid=marked(worker.id))
    with front(shop) as agent:
        params = {"name": "wait_workers", "arguments": {"workers": [worker.id], "timeout": 3}}
        agent._say({"id": 50, "method": "tools/call", "params": params | {"_meta": {"progressToken": "t"}}})
        for line in agent.process.stdout:
            message = json.loads(line)
            if message.get("method") == "notifications/progress":
                daemon.kill()
            if message.get("id") == 50:
                break

        assert [worker.id] == [one["worker_id"] for one in message["result"]["structuredContent"]["workers"]]
        assert 1 == len(servers(agent))
