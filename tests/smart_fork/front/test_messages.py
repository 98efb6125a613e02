"""Lines of a client, which may hold anything."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.front.messages import made, read

SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANY = st.recursive(SIMPLE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
NAMES = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])
MESSAGES = st.dictionaries(NAMES, st.just("2.0") | ANY).map(json.dumps).map(str.encode)


@given(st.binary() | MESSAGES)
def test_whatever_is_in_a_line_it_is_one_message_on_one_line_or_none(line):
    message = read(line)

    if message is not None:
        assert b"\n" not in message.line
        assert message.content == json.loads(message.line)
        assert message.kind in {"request", "notification", "answer"}
        assert isinstance(message.params, dict)
        assert isinstance(message.method, str)
        assert message.kind == "notification" or isinstance(message.id, str | int)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"no json",
        b"null",
        b"[]",
        b'{"id": 1, "method": "ping"}',
        b'{"jsonrpc": "1.0", "id": 1, "method": "ping"}',
        b'{"jsonrpc": "2.0"}',
        b'{"jsonrpc": "2.0", "result": {}}',
        b'{"jsonrpc": "2.0", "id": null, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": true, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}',
        b'{"jsonrpc": "2.0", "id": [1], "result": {}}',
        b'{"jsonrpc": "2.0", "id": 1, "method": 5}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": [1]}',
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping", "params": {"a": "\\ud800"}}',
    ],
)
def test_these_are_no_messages(line):
    assert read(line) is None


def test_what_stands_on_several_lines_is_written_on_one():
    """As a stream of events may have it."""
    message = read(b'{"jsonrpc": "2.0",\r\n "method": "x"}\n')

    assert message is not None
    assert len(message.line.splitlines()) == 1


def test_an_answer_has_an_id_and_no_method():
    assert "answer" == made({"jsonrpc": "2.0", "id": "a", "result": {}}).kind
    assert "request" == made({"jsonrpc": "2.0", "id": 1, "method": "ping"}).kind
    assert "notification" == made({"jsonrpc": "2.0", "method": "x"}).kind
