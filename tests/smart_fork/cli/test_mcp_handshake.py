"""The beginning of an MCP conversation, which is answered before the server is imported."""

from __future__ import annotations

import importlib.util
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import anyio
import pytest
from mcp import Client
from mcp_types import Tool

from smart_fork.cli.mcp_handshake import ALL, CATALOGUE, FEW, greet, listed, wanted
from smart_fork.server import FEW as NAMES
from smart_fork.server import Server
from smart_fork.system.json_rpc import RpcMessage
from tests.smart_fork.cli.mcp_messages import INITIALIZE, call, request, told
from tests.smart_fork.invalid_messages import ODD, UNANSWERED
from tests.support.cases import thorough_except_first
from tests.support.mcp_process import McpProcess

ROOT = Path(__file__).resolve().parents[3]
WRITTEN = json.loads(Path(CATALOGUE).read_bytes())
#: What clients ask once they are welcome: Qwen Code also for resources, of which there are none.
ASKED = ("tools/list", "prompts/list", "resources/list", "resources/templates/list", "ping")
#: What Python itself has imported by then, and what may be added to it: a dozen small modules.
THIN = {
    "__future__", "_collections", "_functools", "_json", "_operator", "_sre", "atexit", "collections", "copyreg", "enum",
    "functools", "gc", "itertools", "json", "json.decoder", "json.encoder", "json.scanner", "keyword", "operator", "re", "re._casefix",
    "re._compiler", "re._constants", "re._parser", "reprlib", "types",
    "smart_fork", "smart_fork.__main__", "smart_fork.cli", "smart_fork.cli.launcher",
    "smart_fork.cli.mcp_handshake",
}  # fmt: skip


def said(*messages: dict | bytes, tools: str = FEW) -> tuple[list[dict], bytes | None, bytes | None]:
    """Return the answers, the client's introduction, and the line that is left for the whole server."""
    lines = [one if isinstance(one, bytes) else json.dumps(one).encode() for one in messages]
    out = io.BytesIO()
    hello, rest = greet(lines, out, WRITTEN, tools)
    return [json.loads(line) for line in out.getvalue().splitlines()], hello, rest


def test_the_catalogue_is_what_the_server_answers():
    """`make catalogue` rewrites the file."""
    spec = importlib.util.spec_from_file_location("catalogue", ROOT / "scripts/catalogue.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)

    assert script.catalogue() == WRITTEN


@pytest.mark.parametrize("version", thorough_except_first(sorted(WRITTEN["versions"], reverse=True)))
def test_what_the_front_says_first_is_what_the_whole_server_says(shop, monkeypatch, version):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    program = [sys.executable, "-m", "smart_fork"]
    hello = {"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    answers = []
    for command in ([*program, "mcp"], [*program, "-v", "mcp"]):
        with McpProcess(command, cwd=shop, env=os.environ, greeted=False) as server:
            welcome = server._ask("initialize", **hello)
            answers.append([welcome, *map(server._ask, ASKED)])

    thin, whole = answers
    assert whole == thin


def asked(number: int, method: str, **meta: object) -> dict:
    """Return a request of a client that uses no handshake."""
    of_the_client = {
        "protocolVersion": "2026-07-28",
        "clientInfo": {"name": "x", "version": "1"},
        "clientCapabilities": {},
    }
    meta = {f"io.modelcontextprotocol/{name}": value for name, value in (of_the_client | meta).items()}
    return request(number, method, _meta=meta)


def discover(number: int, **meta: object) -> dict:
    """Return the first request of a client that uses no handshake."""
    return asked(number, "server/discover", **meta)


#: What clients ask that do without a handshake.
MODERN = ("server/discover", "tools/list", "prompts/list")


def test_who_needs_no_handshake_is_told_what_the_whole_server_says(shop, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    answers = []
    for options in ((), ("-v",)):
        program = [sys.executable, "-m", "smart_fork", *options, "mcp"]
        with McpProcess(program, cwd=shop, env=os.environ, greeted=False) as server:
            answers.append([server._ask(method, **asked(1, method)["params"]) for method in MODERN])

    thin, whole = answers
    assert whole == thin
    assert [3_600_000] * 3 == [one["ttlMs"] for one in thin]


def test_a_client_that_keeps_answers_asks_once():
    """The client is the installed MCP library's own."""
    lists = 0

    async def ask() -> None:
        nonlocal lists
        server = Server()
        made = server.list_tools

        async def counted() -> list[Tool]:
            nonlocal lists
            lists += 1
            return await made()

        server.list_tools = counted  # type: ignore[method-assign]
        async with Client(server, mode="auto") as client:
            for _ in range(3):
                assert (await client.list_tools()).tools

    anyio.run(ask)
    assert 1 == lists


def test_the_whole_server_is_not_started_before_a_call():
    call_it = asked(5, "tools/call") | {"params": {"name": "list_sessions", **asked(5, "")["params"]}}
    first = [asked(number, method) for number, method in enumerate(MODERN)]
    answers, hello, rest = said(*first, call_it)

    assert [0, 1, 2] == [one["id"] for one in answers]
    assert (None, call_it) == (hello, json.loads(rest))
    assert not answers[0]["result"]["capabilities"]["tools"]["listChanged"], "who may subscribe does so at once"


def test_who_discovers_the_server_may_begin_with_the_handshake_all_the_same():
    (found, welcome, tools), hello, rest = said(discover(1), INITIALIZE, request(2, "tools/list"))

    assert ["2026-07-28"] == found["result"]["supportedVersions"]
    assert "smart-fork" == welcome["result"]["serverInfo"]["name"]
    assert tools["result"]["tools"]
    assert (INITIALIZE, None) == (json.loads(hello), rest)


@pytest.mark.parametrize("meta", [{"protocolVersion": "2099-01-01"}, {"clientInfo": {}}, {"clientCapabilities": None}])
def test_who_discovers_the_server_in_another_way_is_left_to_it(meta):
    answers, hello, rest = said(discover(1, **meta))

    assert ([], None, discover(1, **meta)) == (answers, hello, json.loads(rest))


def test_who_begins_as_all_do_is_answered_at_once():
    begins = (INITIALIZE, told("notifications/initialized"), request("p", "ping"), request(7, "tools/list"))
    (welcome, ping, tools, *none), *_ = said(
        *begins, request(8, "resources/list"), request(9, "resources/templates/list")
    )

    assert "2025-06-18" == welcome["result"]["protocolVersion"]
    assert "smart-fork" == welcome["result"]["serverInfo"]["name"]
    assert {"jsonrpc": "2.0", "id": "p", "result": {}} == ping
    assert sorted(NAMES) == sorted(tool["name"] for tool in tools["result"]["tools"])
    assert [{"resources": []}, {"resourceTemplates": []}] == [one["result"] for one in none]


def test_all_tools_are_listed_to_who_wants_them():
    (_, tools), *_ = said(INITIALIZE, request(7, "tools/list"), tools=ALL)

    assert WRITTEN["tools"] == tools["result"]["tools"]
    assert listed(WRITTEN, FEW) == [tool for tool in WRITTEN["tools"] if tool["name"] in NAMES]


def test_a_version_that_is_not_known_is_answered_with_the_newest_that_is():
    (welcome,), *_ = said(INITIALIZE | {"params": INITIALIZE["params"] | {"protocolVersion": "1999"}})

    assert WRITTEN["versions"][-1] == welcome["result"]["protocolVersion"]


@pytest.mark.parametrize(
    "asked",
    [
        call(1, "smart_fork", intent="x"),
        request(1, "tools/list", cursor="2"),
        request(1, "resources/read", uri="file:///x"),
        request(1, "prompts/get", name="fork"),
        request(1, "server/discover"),
        INITIALIZE,
    ],
)
def test_what_takes_more_is_left_to_a_server_with_how_the_client_has_introduced_itself(asked):
    answers, hello, rest = said(INITIALIZE, asked, request(2, "ping"))

    assert 1 == len(answers)
    assert (INITIALIZE, asked) == (json.loads(hello), json.loads(rest))


@pytest.mark.parametrize(
    "first",
    [
        request(1, "ping"),
        request(1, "tools/list"),
        request(1, "initialize"),
        request(1, "initialize", protocolVersion=5, capabilities={}, clientInfo={"name": "x", "version": "1"}),
        request(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo={"name": "x"}),
    ],
)
def test_who_begins_in_another_way_is_left_to_the_server(first):
    answers, hello, rest = said(first)

    assert ([], None, first) == (answers, hello, json.loads(rest))


def test_what_nobody_waits_for_is_passed_over():
    lines = (*UNANSWERED, b'{"jsonrpc":"2.0","id":3,"result":{}}')
    answers, _, rest = said(INITIALIZE, *lines, told("notifications/cancelled", requestId=9), request("\ud800", "ping"))

    assert [0, "\ud800"] == [answer["id"] for answer in answers]
    assert rest is None


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("begin", [(), pytest.param((INITIALIZE,), marks=pytest.mark.thorough)])
def test_what_is_no_message_is_refused_or_left_to_a_server_and_all_else_answered(begin, name):
    line, number = ODD[name]
    answers, _, rest = said(*begin, line)

    assert [number] == [answer["id"] for answer in answers[len(begin) :]] if rest is None else rest == line


@pytest.mark.parametrize("name", ['"\\ud83d"', "NaN", "1e400", "[" * 150 + "]" * 150])
def test_an_introduction_that_no_server_reads_is_none(name):
    line = json.dumps(INITIALIZE | {"params": INITIALIZE["params"] | {"x": "?"}}).replace('"?"', name).encode()
    answers, hello, rest = said(line)

    assert ([], None, line) == (answers, hello, rest)
    assert RpcMessage.refusal(line).content["id"] == 0


@pytest.mark.parametrize(
    ("options", "variable", "tools"),
    [
        ([], "", FEW),
        ([], "ALL", ALL),
        ([], "some", FEW),
        (["--tools", "all"], "", ALL),
        (["--tools=few"], "all", FEW),
        (["--tools"], "", None),
        (["--tools", "some"], "", None),
        (["--help"], "", None),
        (["--tools", "all", "more"], "", None),
    ],
)
def test_how_many_tools_are_listed_is_said_by_an_option_or_a_variable(options, variable, tools, monkeypatch):
    monkeypatch.setenv("SMART_FORK_TOOLS", variable)

    assert tools == wanted(options)


@pytest.mark.parametrize("command", [["-m", "smart_fork"], [str(Path(sys.executable).with_name("smart-fork"))]])
def test_tools_are_listed_with_next_to_nothing_imported(home, command, monkeypatch):
    """The test measures no time: imports take nearly all of the time, so it lists all imported modules."""
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in (INITIALIZE, request(1, "tools/list")))

    def imported(*argv: str) -> set[str]:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", *argv], input=lines, capture_output=True, cwd=ROOT, check=True
        )
        assert argv[0] == "-c" or 2 == done.stdout.count(b'"result"')
        return {line.rpartition(b"|")[2].strip().decode() for line in done.stderr.splitlines()}

    assert set() == imported(*command, "mcp") - imported("-c", "import runpy, importlib.metadata") - THIN
    assert not imported(*command, "mcp") & {"logging", "subprocess", "threading", "typing", "pathlib", "indexer"}


def test_a_line_that_is_no_message_is_refused_without_the_server(home):
    line = json.dumps({"id": 1, "method": "ping"}).encode() + b"\n"

    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "smart_fork", "mcp"],
        input=line, capture_output=True, cwd=ROOT, check=True,
    )  # fmt: skip

    assert b'"error"' in done.stdout
    imported = {said.rpartition(b"|")[2].strip().decode() for said in done.stderr.splitlines()}
    assert not imported & {"mcp", "pydantic", "smart_fork.server"}
