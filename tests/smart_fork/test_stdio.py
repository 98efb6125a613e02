"""Tests of the MCP server as a process on stdin and stdout."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.smart_fork.invalid_messages import ODD, UNANSWERED
from tests.support import forkserver

RETRY = "add retry with backoff to the uploader"
DONE = "The uploader in upload.py retries five times with exponential backoff"
HEAVY = {"apscheduler", "filelock", "numpy", "sentence_transformers", "torch", "transformers"}


@pytest.fixture(autouse=True)
def _in_the_project(shop: Path, monkeypatch):
    monkeypatch.chdir(shop)


def start(*code: str, **env: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "\n".join(code)]
    return forkserver.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=os.environ | env
    )


def say(server: subprocess.Popen[str], method: str, number: int | None = None, **params: object) -> None:
    message = {"jsonrpc": "2.0", "method": method, "params": params} | ({} if number is None else {"id": number})
    server.stdin.write(json.dumps(message) + "\n")
    server.stdin.flush()


def hear(server: subprocess.Popen[str], number: int) -> dict:
    while line := server.stdout.readline():
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        if message.get("id") == number:
            return message
    raise AssertionError(server.stderr.read())


def greet(server: subprocess.Popen[str]) -> None:
    info = {"name": "claude-code", "version": "1"}
    say(server, "initialize", 1, protocolVersion="2025-06-18", capabilities={}, clientInfo=info)
    hear(server, 1)
    say(server, "notifications/initialized")


SERVE = "from smart_fork.server import Server; Server.run_stdio()"
#: An embedder in place of the real one, before it is imported by anybody.
REPLACE = "import indexer.default_embedder as e; from tests.smart_fork.world import WordsModel"


@pytest.fixture
def environment(monkeypatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).resolve().parents[2]))


@pytest.mark.slow
def test_tools_are_listed_before_anything_heavy_is_imported(environment):
    """D13."""
    code = (
        "import anyio, sys; from mcp import Client; from smart_fork.server import Server\n"
        "async def talk():\n"
        "    async with Client(Server()) as session: print(len((await session.list_tools()).tools), *sys.modules)\n"
        "anyio.run(talk)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    number, *modules = done.stdout.split()

    assert number == "7"
    assert set() == HEAVY & set(modules)


def test_only_the_protocol_is_on_stdout_whatever_a_library_prints(world, shop, environment):
    """X-005."""
    world.claude(shop, RETRY, DONE)
    server = start(
        REPLACE,
        "import os, subprocess",
        "class Loud(WordsModel):",
        "    def embed(self, texts):",
        "        print('Loading weights…', flush=True)",
        "        os.write(1, b'Batches: 100%\\n')",
        "        subprocess.run(['echo', 'from a child'])",
        "        return super().embed(texts)",
        "e.configured_embedder = lambda **_: Loud()",
        SERVE,
    )
    greet(server)
    say(server, "tools/call", 2, name="smart_fork", arguments={"intent": RETRY})

    assert hear(server, 2)["result"]["structuredContent"]["search_mode"] == "hybrid"
    out, err = server.communicate(timeout=60)
    assert out == ""
    assert err.count("Batches") == err.count("from a child") > 0
    assert server.returncode == 0


def test_a_request_that_is_not_of_the_protocols_form_is_refused_in_our_words(environment):
    server = start(SERVE)
    greet(server)
    wrong = [{"name": "smart_fork", "arguments": [1]}, {"name": 5}, {}]
    said = []
    for number, params in enumerate(wrong, 2):
        say(server, "tools/call", number, **params)
        said.append(hear(server, number)["error"])
    server.communicate(timeout=60)

    assert [one["message"] for one in said] == [
        "tools/call: arguments must be an object, not [1]",
        "tools/call: name must be text, not 5",
        "tools/call: name is required",
    ]
    assert {one["code"] for one in said} == {-32602}


def test_who_asks_before_the_beginning_is_told_to_begin(environment):
    server = start(SERVE)
    say(server, "tools/list", 1)
    error = hear(server, 1)["error"]
    server.communicate(timeout=60)

    assert (-32602, "tools/list: send initialize first") == (error["code"], error["message"])


def test_a_prompt_that_cannot_be_made_is_refused_as_wrong_parameters(environment):
    server = start(SERVE)
    greet(server)
    said = []
    for number, name in enumerate(("nope", "fork"), 2):
        say(server, "prompts/get", number, name=name)
        said.append(hear(server, number)["error"])
    server.communicate(timeout=60)

    assert {-32602} == {one["code"] for one in said}
    assert "Unknown prompt: nope" in said[0]["message"]
    assert "task" in said[1]["message"]


@pytest.fixture(scope="module")
def talking():
    """Start a server that several tests share, after the handshake. It is sent bytes."""
    info = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    hello = {"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": info}
    env = os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    server = forkserver.Popen(
        [sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env
    )
    for line in (json.dumps(hello).encode(), b'{"jsonrpc":"2.0","method":"notifications/initialized"}'):
        server.stdin.write(line + b"\n")
    assert answers_until(server, "hello")
    yield server
    server.communicate()


_PINGS = itertools.count(1)


def answers_until(server, number) -> list[dict]:
    """Return the answers up to the answer with the id `number`."""
    server.stdin.flush()
    heard = []
    while not heard or heard[-1]["id"] != number:
        if (said := json.loads(server.stdout.readline())).keys() & {"result", "error"}:
            heard.append(said)
    return heard


def answered(server, line: bytes) -> list[dict]:
    """Return all answers to a line. The server answers requests in their order."""
    ping = f"ping {next(_PINGS)}"
    server.stdin.write(line + b"\n")
    server.stdin.write(json.dumps({"jsonrpc": "2.0", "id": ping, "method": "ping"}).encode() + b"\n")
    return answers_until(server, ping)[:-1]


@pytest.mark.parametrize("name", ODD)
def test_a_line_that_is_no_message_is_refused_under_its_id_and_the_next_is_answered(talking, name):
    line, number = ODD[name]
    [refused] = answered(talking, line)

    assert number == refused["id"]
    assert "Not a JSON-RPC message" in refused["error"]["message"]


@pytest.mark.parametrize("line", UNANSWERED)
def test_a_line_that_nobody_waits_for_has_no_answer(talking, line):
    assert [] == answered(talking, line)


def test_what_a_program_of_ours_reads_is_not_what_the_client_says(environment):
    server = start(
        "import subprocess, sys",
        "from smart_fork.server import Server",
        "Server.list_tools = lambda self: child()",
        "async def child():",
        "    print(subprocess.run(['cat'], stdout=subprocess.PIPE, check=True).stdout, file=sys.stderr); return []",
        SERVE,
    )
    greet(server)
    say(server, "tools/list", 2)
    assert [] == hear(server, 2)["result"]["tools"]
    _, err = server.communicate(timeout=60)
    assert "b''\n" == err


@pytest.mark.parametrize("busy", [False, True])
def test_it_ends_when_stdin_closes_even_while_the_model_is_loading(world, shop, environment, busy):
    world.claude(shop, RETRY, DONE)
    server = start(
        REPLACE,
        "import sys, threading",
        "class Stuck(WordsModel):",
        "    def embed(self, texts):",
        "        print('stuck', file=sys.stderr, flush=True)",
        "        threading.Event().wait()",
        "e.configured_embedder = lambda **_: Stuck()",
        SERVE,
    )
    greet(server)
    if busy:
        say(server, "tools/call", 2, name="smart_fork", arguments={"intent": RETRY})
        assert "stuck" in server.stderr.readline()
    server.stdin.close()

    assert server.wait(timeout=60) == 0
    server.stdout.close()
    server.stderr.close()


@pytest.mark.slow
def test_an_answer_to_a_request_that_was_cancelled_is_not_sent(environment):
    server = start(
        "import anyio",
        "from mcp.shared.message import SessionMessage",
        "from mcp_types import JSONRPCResponse",
        "from smart_fork.server.stdio import Begun, Stdio",
        "async def run(heard, said):",
        "    numbers = []",
        "    async with said:",
        "        async for one in heard:",
        "            if hasattr(one.message, 'id'):",
        "                numbers.append(one.message.id)",
        "                continue",
        "            for number in numbers:",
        "                await said.send(SessionMessage(JSONRPCResponse(jsonrpc='2.0', id=number, result={})))",
        "anyio.run(Stdio(Begun()).serve, run)",
    )
    for number in (2, 3, 4):
        say(server, "ping", number)
    say(server, "notifications/cancelled", requestId=3)

    out, _ = server.communicate(timeout=60)

    assert [2, 4] == [json.loads(line)["id"] for line in out.splitlines()]
