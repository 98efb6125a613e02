"""Lines of a client that are no message of JSON-RPC, and a way to make more of them."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

#: A call that every server can answer, with room for an argument and an id.
CALL = '{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"list_sessions","arguments":{{"limit":{arg}}}}}}}'


def call(argument: str, number: str = "7") -> bytes:
    return CALL.format(id=number, arg=argument).encode()


#: Each with the id that its error has.
ODD: dict[str, tuple[bytes, Any]] = {
    "half a character": (call('"\\ud83d"'), 7),
    "half a character in bytes": (call('"\0"').replace(b"\0", b"\xed\xa0\xbd"), 7),
    "a number beyond all": (call("1e400"), 7),
    "a number of 5,000 digits": (call("1" * 5000), 7),
    "no number": (call("NaN"), 7),
    "nested 150 deep": (call("[" * 150 + "]" * 150), 7),
    "nested 250 deep": (call("[" * 250 + "]" * 250), 7),
    "nested 100,000 deep": (call("[" * 100_000 + "]" * 100_000), 7),
    "nested, and the id last": (
        b'{"a":%s,"id":"x","method":"ping","jsonrpc":"2.0"}' % (b"[" * 5000 + b"]" * 5000),
        "x",
    ),
    "a list of parameters": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":[]}', 7),
    "a text for parameters": (b'{"jsonrpc":"2.0","id":7,"method":"ping","params":"x"}', 7),
    "no version": (b'{"id":7,"method":"ping"}', 7),
    "another version": (b'{"jsonrpc":"1.0","id":"x","method":"ping"}', "x"),
    "no method": (b'{"jsonrpc":"2.0","id":7}', 7),
    "a number for a method": (b'{"jsonrpc":"2.0","id":7,"method":5}', 7),
    "a fraction for an id": (call("1", "1.5"), 1.5),
    "a float for an id": (call("1", "7.0"), 7),
    "an id of 30 digits": (call("1", "1" * 30), int("1" * 30)),
    "an id with half a character": (call('"\\ud83d"', '"\\ud83d"'), "\ud83d"),
    "no UTF-8": (call('"\0"').replace(b"\0", b"\xff"), 7),
    "no end": (call("1")[:-1], 7),
    "a byte-order mark": (b"\xef\xbb\xbf" + call("1"), 7),
    "a control character": (call('"\x01"'), 7),
    "true for an id": (call("1", "true"), None),
    "null for an id": (call("1", "null"), None),
    "a list for an id": (call("1", "[1]"), None),
    "an endless id": (call("1", "1e400"), None),
    "no JSON": (b"hello", None),
    "no object": (b"[1,2]", None),
    "a text": (b'"ping"', None),
    "an empty object": (b"{}", None),
    "bytes": (b"\x00\xff\xfe", None),
}
#: Lines to which nobody waits for an answer.
UNANSWERED = (
    b"", b"  ", b'{"jsonrpc":"2.0","method":"notifications/x","params":[]}', b'{"method":"notifications/x"}',
    b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":NaN}}', b'{"jsonrpc":"2.0","id":[1],"result":{}}',
    b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":"\\ud83d"}}', b'{"id":3,"error":{"code":1}}',
    b'{"jsonrpc":"2.0","method":"notifications/x","params":{"a":%s}}' % (b"[" * 5000 + b"]" * 5000),
)  # fmt: skip

_SCALARS = st.sampled_from(
    ["null", "true", "1e400", "-1e999", "NaN", "Infinity", '"\\ud800"', '"\\udfff x"', "9" * 400, "1.5", '""', "[]", "{}",
     "[" * 120 + "]" * 120, "[" * 3000 + "]" * 3000, '{"a":' * 210 + "1" + "}" * 210, '"x"', "-0", '"\\u0000"']
)  # fmt: skip
_METHODS = st.sampled_from(
    ["ping", "tools/call", "tools/list", "prompts/get", "resources/read", "initialize", "notifications/initialized",
     "notifications/cancelled", "completion/complete", "logging/setLevel", "", "x" * 300, "server/discover", "\u2028"]
)  # fmt: skip


def _written(number: int, parts: dict[str, str], order: list[str]) -> bytes:
    members = {"id": str(number), **parts}
    return ("{" + ",".join(f"{json.dumps(name)}:{members[name]}" for name in order if name in members) + "}").encode()


@st.composite
def requests(draw: st.DrawFn, number: int) -> bytes:
    """A line that has the id `number`, and else anything."""
    parts = {"jsonrpc": draw(st.just('"2.0"') | _SCALARS), "method": draw(_METHODS.map(json.dumps) | _SCALARS)}
    name = draw(st.sampled_from(['"list_sessions"', '"no_such_tool"']) | _SCALARS)
    parts["params"] = draw(st.just(f'{{"name":{name},"arguments":{{"limit":{draw(_SCALARS)}}}}}') | _SCALARS)
    for left_out in draw(st.lists(st.sampled_from([*parts]), max_size=1)):
        del parts[left_out]
    if draw(st.booleans()):
        parts["x"] = draw(_SCALARS)
    line = _written(number, parts, draw(st.permutations(["jsonrpc", "id", "method", "params", "x"])))
    return line.replace(b"x", draw(st.sampled_from([b"x", b"\xff", b"\xc3\xa4", b"\xed\xa0\x80"])))
