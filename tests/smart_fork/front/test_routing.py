"""Which calls act."""

from __future__ import annotations

import anyio
import pytest
from mcp import Client

from smart_fork.front.messages import Message, made
from smart_fork.front.routing import FINDING, FINDS, FORKING, acts, reading_tools
from smart_fork.server import create_server
from tests.smart_fork.front.conversation import READING, call, request

#: What each tool does is decided by its own annotations; here, which of them are believed to change nothing.
ONLY_READ = {
    "compare_workers", "find_sessions", "index_status", "list_sessions", "list_workers", "read_session", "read_worker",
    "session_lineage", "wait_workers",
}  # fmt: skip


@pytest.fixture(scope="module")
def listed() -> Message:
    async def talk() -> dict:
        async with Client(create_server()) as session:
            return (await session.list_tools()).model_dump(by_alias=True, exclude_none=True, mode="json")

    return made({"jsonrpc": "2.0", "id": 1, "result": anyio.run(talk)})


def test_the_tools_that_only_read_say_so(listed):
    assert ONLY_READ == reading_tools(listed)


def test_each_parameter_of_the_search_is_one_that_finds_or_one_that_forks(listed):
    """A new one acts until somebody has said here what it does."""
    tool = next(one for one in listed.content["result"]["tools"] if one["name"] == FINDS)

    assert FINDING | FORKING == set(tool["inputSchema"]["properties"])
    assert not FINDING & FORKING


@pytest.mark.parametrize(
    "arguments",
    [
        {"intent": "x"},
        {"intent": "x", "auto_fork": False, "fork_index": None, "fork_session_id": None, "prompt": "y", "at": "match"},
    ],
)
def test_a_search_without_a_fork_only_reads(arguments):
    assert not acts(made(call(1, FINDS, **arguments)), READING)


@pytest.mark.parametrize(
    "arguments",
    [
        {"auto_fork": True},
        {"auto_fork": "false"},
        {"auto_fork": 0},
        {"fork_index": 0},
        {"fork_index": False},
        {"fork_session_id": "x"},
        {"fork_session_id": ""},
        {"made_up": None},
    ],
)
def test_a_search_that_may_fork_acts(arguments):
    assert acts(made(call(1, FINDS, intent="x", **arguments)), READING)


@pytest.mark.parametrize(
    "params",
    [{}, {"name": 5}, {"name": ["list_sessions"]}, {"name": "list_sessions", "arguments": [1]}, {"name": "new"}],
)
def test_a_call_that_is_not_understood_acts(params):
    assert acts(made(request(1, "tools/call", **params)), READING)


def test_nothing_but_a_call_acts():
    assert not acts(made(request(1, "tools/list")), READING)


@pytest.mark.parametrize(
    "result",
    [
        None,
        [],
        {},
        {"tools": None},
        {"tools": [None, {}, {"name": 5}, {"name": "a"}, {"name": "b", "annotations": []}]},
    ],
)
def test_tools_that_do_not_say_it_are_not_believed_to_read(result):
    hints = [{"readOnlyHint": False}, {"readOnlyHint": "true"}, {"readOnlyHint": 1}]
    more = [{"name": "c", "annotations": hint} for hint in hints]

    assert frozenset() == reading_tools(made({"jsonrpc": "2.0", "id": 1, "result": result}))
    assert frozenset() == reading_tools(made({"jsonrpc": "2.0", "id": 1, "result": {"tools": more}}))
