"""Tests of reading arbitrary lines of a client."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st
from mcp_types import JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter

from smart_fork.system.json_rpc import MAX_DEPTH, RpcMessage
from tests.smart_fork.invalid_messages import ODD, UNANSWERED, requests
from tests.support.cases import parametrize_subtests

SIMPLE = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANY = st.recursive(SIMPLE, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=10)
NAMES = st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error"])
MESSAGES = st.dictionaries(NAMES, st.just("2.0") | ANY).map(json.dumps).map(str.encode)


@given(st.binary() | MESSAGES)
def test_whatever_is_in_a_line_it_is_one_message_on_one_line_or_none(line):
    message = RpcMessage.read(line)

    if message is not None:
        assert b"\n" not in message.line
        assert message.content == json.loads(message.line)
        assert message.kind in {"request", "notification", "answer"}
        assert isinstance(message.params, dict)
        assert isinstance(message.method, str)
        assert message.kind == "notification" or isinstance(message.id, str | int)


@given(st.binary() | MESSAGES | requests(5))
def test_what_is_no_message_is_refused_on_one_line_or_nobody_waits_for_it(line):
    answer = RpcMessage.refusal(line)

    if answer is not None:
        assert b"\n" not in answer.line
        said = json.loads(answer.line)
        assert {"jsonrpc", "id", "error"} == said.keys()
        assert said["error"]["code"] in {-32700, -32600, -32602}


@given(MESSAGES | requests(5))
def test_a_message_is_read_as_the_same_by_the_protocols_library(line):
    message = RpcMessage.read(line)

    if message is not None and message.kind != "answer":
        theirs = jsonrpc_message_adapter.validate_json(line, by_name=False)
        assert isinstance(theirs, JSONRPCRequest if message.kind == "request" else JSONRPCNotification)


@given(requests(5))
def test_a_line_with_an_id_and_without_a_result_is_a_request_or_refused_with_that_id(line):
    message = RpcMessage.read(line)
    answer = RpcMessage.refusal(line) if message is None else None

    assert (message.kind, message.id) == ("request", 5) if message else answer.content["id"] == 5


@parametrize_subtests(("line", "number"), ODD.values())
def test_these_are_no_messages_and_their_error_has_their_id(line, number):
    assert RpcMessage.read(line) is None
    answer = RpcMessage.refusal(line)
    assert number == json.loads(answer.line)["id"]
    assert answer.content["error"]["message"].startswith("Not a JSON-RPC message: ")


def test_each_request_of_a_batch_has_an_error_with_its_id():
    batch = b'[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","method":"x"},{"jsonrpc":"2.0","id":"b","method":"\\ud83d"}]'
    errors = json.loads(RpcMessage.refusal(batch).line)

    assert [1, "b"] == [one["id"] for one in errors]
    assert {-32700} == {one["error"]["code"] for one in errors}


@parametrize_subtests("end", ["", "}", " x", '{"jsonrpc":"2.0","method":"x"}', '{"id":9,"result":{}}', '[{"id":9}'])
def test_each_request_of_several_on_one_line_has_an_error_with_its_id(end):
    line = '{"jsonrpc":"2.0","id":1,"method":"x","params":{"id":8}} {"id":"b","method":"\\ud83d"}' + end
    errors = json.loads(RpcMessage.refusal(line.encode()).line)

    assert [1, "b"] == [one["id"] for one in errors]
    assert all("on a line of its own" in one["error"]["message"] for one in errors)


@parametrize_subtests("line", UNANSWERED)
def test_nobody_waits_for_an_answer_to_these(line):
    assert (None, None) == (RpcMessage.read(line), RpcMessage.refusal(line))


@parametrize_subtests(
    ("name", "code", "why"),
    [
        ("half a character", -32700, "a lone surrogate"),
        ("half a character in bytes", -32700, "a lone surrogate"),
        ("no UTF-8", -32700, "it is not UTF-8"),
        ("no JSON", -32700, "it is not JSON"),
        ("no number", -32700, "an invalid number"),
        ("a number of 5,000 digits", -32700, "an invalid number"),
        ("nested 100,000 deep", -32700, f"it is nested more than {MAX_DEPTH} deep"),
        ("a list of parameters", -32602, "params must be an object"),
        ("no version", -32600, 'jsonrpc must be "2.0"'),
        ("a fraction for an id", -32600, "id must be text or a whole number"),
        ("no method", -32600, "it has no method"),
        ("a number for a method", -32600, "method must be text"),
        ("no object", -32600, "it is a batch"),
        ("a text", -32600, "it is not an object"),
        ("a byte-order mark", -32700, "it begins with a byte-order mark"),
        ("nested 150 deep", -32600, f"it is nested more than {MAX_DEPTH} deep"),
    ],
)
def test_the_error_says_what_is_wrong(name, code, why):
    error = RpcMessage.refusal(ODD[name][0]).content["error"]

    assert code == error["code"]
    assert why in error["message"]


def test_brackets_in_a_text_are_no_depth():
    line = json.dumps({"jsonrpc": "2.0", "method": "x", "params": {"a": '[{\\"' * 500, "b": [[]]}}).encode()

    assert RpcMessage.read(line) is not None


def test_what_stands_on_several_lines_is_written_on_one():
    """A stream of events may spread a message over several lines."""
    message = RpcMessage.read(b'{"jsonrpc": "2.0",\r\n "method": "x"}\n')

    assert message is not None
    assert len(message.line.splitlines()) == 1


def test_an_answer_has_an_id_and_no_method():
    assert "answer" == RpcMessage.of({"jsonrpc": "2.0", "id": "a", "result": {}}).kind
    assert "request" == RpcMessage.of({"jsonrpc": "2.0", "id": 1, "method": "ping"}).kind
    assert "notification" == RpcMessage.of({"jsonrpc": "2.0", "method": "x"}).kind
