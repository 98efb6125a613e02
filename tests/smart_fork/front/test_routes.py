"""Which calls act."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.front.first_answers import CATALOGUE
from smart_fork.front.routes import FINDING, FINDS, FORKING, acts, reading_tools
from smart_fork.rpc import made
from tests.smart_fork.front.conversation import READING, call, request

#: What each tool does is decided by its own annotations; here, which of them are believed to change nothing.
ONLY_READ = {
    "compare_workers", "find_sessions", "index_status", "list_sessions", "list_workers", "read_session", "read_worker",
    "session_lineage", "wait_workers",
}  # fmt: skip


@pytest.fixture(scope="module")
def tools() -> list[dict]:
    return json.loads(Path(CATALOGUE).read_bytes())["tools"]


def test_the_tools_that_only_read_say_so(tools):
    assert ONLY_READ == reading_tools(tools)


def test_each_parameter_of_the_search_is_one_that_finds_or_one_that_forks(tools):
    """A new one acts until somebody has said here what it does."""
    tool = next(one for one in tools if one["name"] == FINDS)

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


@pytest.mark.parametrize("hints", [{}, {"readOnlyHint": False}, {"readOnlyHint": "true"}, {"readOnlyHint": 1}])
def test_tools_that_do_not_say_it_are_not_believed_to_read(hints):
    assert frozenset() == reading_tools([{"name": "a", "annotations": hints}, {"name": "b"}])
