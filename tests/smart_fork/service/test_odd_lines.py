"""Input that is no JSON-RPC message, on every way to the server: it is answered, and so is the next message."""

from __future__ import annotations

import itertools
import json
import os
import sys
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.smart_fork.invalid_messages import ODD, UNANSWERED, call, requests
from tests.support.cases import thorough_except_first
from tests.support.exhaustive import full_or_sample
from tests.support.mcp_process import McpProcess

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
INFO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
HELLO = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": INFO}).encode()
BOTH = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


@pytest.fixture
def environment(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
def announced(served, programs):
    served.announce()


class Talk:
    """A conversation in bytes with a server that runs as a process."""

    def __init__(self, server: McpProcess) -> None:
        self.server = server
        self.heard: Counter[object] = Counter()

    def say(self, line: bytes) -> None:
        self.server.process.stdin.write(line + b"\n")
        self.server.process.stdin.flush()

    def hear(self, number: object) -> dict:
        """Return the answer to the last message. All answers are counted."""
        for line in self.server.process.stdout:
            said = json.loads(line)
            if said.keys() & {"result", "error"}:
                self.heard[said["id"]] += 1
                if said["id"] == number:
                    return said
        raise AssertionError("it has ended")


COMMANDS = {"the front": ("-m", "smart_fork", "mcp"), "the server itself": ("-m", "smart_fork.cli", "mcp")}


@pytest.fixture(params=thorough_except_first(["the front beside the service", "the front", "the server itself"]))
def talk(request, environment, shop):
    name = request.param.removesuffix(" beside the service")
    if name != request.param:
        request.getfixturevalue("announced")
    with McpProcess([sys.executable, *COMMANDS[name]], cwd=shop, env=os.environ) as server:
        yield Talk(server)


def test_each_odd_line_is_refused_under_its_id_and_the_next_is_answered(talk):
    for line, number in ODD.values():
        talk.say(line)
        assert "Not a JSON-RPC message" in talk.hear(number)["error"]["message"]
        talk.say(call("1", '"next"'))
        assert "result" in talk.hear("next")
    for line in UNANSWERED:
        talk.say(line)
    talk.say(call("1", '"last"'))
    talk.hear("last")

    expected = Counter(["last", *(number for _, number in ODD.values()), *["next"] * len(ODD)])
    assert expected == talk.heard


def test_every_request_has_exactly_one_answer_whatever_else_is_in_its_line(talk):
    numbers = itertools.count(1000)
    expected = Counter(["last"])

    @settings(max_examples=full_or_sample(150, 25))
    @given(st.data())
    def ask(data):
        number = next(numbers)
        expected[number] += 1
        talk.say(data.draw(requests(number)))
        talk.hear(number)

    ask()
    talk.say(call("1", '"last"'))
    talk.hear("last")
    assert expected == talk.heard


def test_over_http_each_is_refused_under_its_id(served):
    begun = served.answer("POST", "/mcp", HELLO, **BOTH)
    session = {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"], "Mcp-Protocol-Version": "2025-06-18", **BOTH}
    for line, number in ODD.values():
        answer = served.answer("POST", "/mcp", line, **session)
        said = json.loads(answer.read())
        assert (400, number) == (answer.status, said["id"])
        assert "Not a JSON-RPC message" in said["error"]["message"]
    assert 200 == served.answer("POST", "/mcp", call("1"), **session).status


def test_over_http_every_request_has_an_answer_with_its_id(served):
    begun = served.answer("POST", "/mcp", HELLO, **BOTH)
    session = {"Mcp-Session-Id": begun.headers["Mcp-Session-Id"], "Mcp-Protocol-Version": "2025-06-18", **BOTH}
    numbers = itertools.count(1000)

    @given(st.data())
    def ask(data):
        number = next(numbers)
        answer = served.answer("POST", "/mcp", data.draw(requests(number)), **session).read()
        lines = [line.removeprefix(b"data:") for line in answer.splitlines() if line[:1] == b"{" or b"data: {" in line]
        assert [number] == [said["id"] for said in map(json.loads, lines) if said.keys() & {"result", "error"}]

    ask()
