"""Tests of records that are changed in a few places, and keep their spelling elsewhere."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from indexer.transcripts.lines import decode_line
from smart_fork.json_edit import respelled
from tests.support.cases import parametrize_subtests

#: What is spelled otherwise by who decodes and encodes it: numbers, half surrogates, escapes, floats, white space.
ODD = (
    '{ "n": 9007199254740993, "big": 123456789012345678901234567890, "half": "\\ud83d", "e": 1.0E+2, "z": -0,'
    ' "esc": "\\u0041\\/", "in": {"cwd" : "/a", "n": 18446744073709551617 }, "sessionId": "x" , "l": [1, 2.50, "\\udc00"] }'
)
#: JSON texts of values, which need not be spelled as a library would.
NUMBERS = st.integers(-(10**40), 10**40).map(str) | st.sampled_from(["1.0", "1e5", "-0", "0.10", "123456.7890E-3"])
STRINGS = st.text(st.characters(codec=None, exclude_categories=()), max_size=6).map(json.dumps)
SCALARS = NUMBERS | STRINGS | st.sampled_from(["true", "null", '"\\/"', '"\\ud83d"'])
NAMES = st.sampled_from(["a", "b", "é", "sessionId", "cwd", "payload"])


def objects(values):
    return st.dictionaries(NAMES, values, max_size=4).map(
        lambda some: "{ " + " ,".join(f"{json.dumps(name)}: {text}" for name, text in some.items()) + "}"
    )


VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=3).map(" , ".join).map("[{} ]".format) | objects(inner)
)


def decoded(raw: bytes) -> dict:
    ((_, record),) = decode_line(raw)[0]
    return record


def test_all_but_what_changes_stays_byte_for_byte():
    record = decoded(ODD.encode())
    record["sessionId"] = "y"
    record["in"]["cwd"] = "/b"
    record["new"] = 1
    del record["z"]

    expected = (
        ODD.replace('"x" ', '"y" ').replace('"/a"', '"/b"').replace(' "z": -0,', "").replace("] }", '] ,"new":1}')
    )
    assert expected == respelled(ODD.encode(), record).decode()


def test_a_record_that_is_not_changed_is_the_line_itself():
    assert ODD.encode() == respelled(ODD.encode() + b"\n", decoded(ODD.encode()))
    assert b'{"ours":1}' == respelled(b"", {"ours": 1})


@parametrize_subtests("left", [[0, 2], [1], [], [0, 1, 2]])
def test_of_a_list_what_is_left_stays_as_it_is(left):
    raw = b'{"l":[{"n":9007199254740993},  {"h":"\\ud83d"}, 1.50]}'
    record = decoded(raw)
    record["l"] = [record["l"][i] for i in left]

    texts = ['{"n":9007199254740993}', '{"h":"\\ud83d"}', "1.50"]
    assert [texts[i] for i in left] == [one for one in texts if one in respelled(raw, record).decode()]


def test_of_members_of_one_name_the_last_one_counts():
    assert b'{"b":2,"a":9}' == respelled(b'{"a":1,"b":2,"a":3}', {"a": 9, "b": 2})


def test_what_no_agent_could_read_does_not_stay():
    raw = b'{"t":"\xff\x01","big":9007199254740993123,"sessionId":"x"}'
    done = respelled(raw, decoded(raw) | {"sessionId": "y"})
    assert b'{"t":"?\\u0001","big":9007199254740993123,"sessionId":"y"}' == done


@given(st.dictionaries(NAMES, VALUES, max_size=5), st.sampled_from(["y", 7, None]))
def test_whatever_a_record_says_only_its_fields_change(members, new):
    raw = ("{" + ", ".join(f"{json.dumps(name)} : {text}" for name, text in members.items()) + " }").encode()
    record = decoded(raw)
    record["sessionId"] = new
    if isinstance(record.get("payload"), dict):
        record["payload"]["cwd"] = new
    record.pop("a", None)

    done = respelled(raw, record).decode()

    exact = json.loads(raw, parse_int=lambda text: f"int {text}", parse_float=lambda text: f"float {text}")
    exact["sessionId"] = new
    if isinstance(exact.get("payload"), dict):
        exact["payload"]["cwd"] = new
    exact.pop("a", None)
    said = json.loads(done, parse_int=lambda text: f"int {text}", parse_float=lambda text: f"float {text}")
    changed = {"sessionId", "payload", "a"}
    assert all(text in done for name, text in members.items() if name not in changed)
    known = json.loads(json.dumps(exact), parse_int=lambda text: f"int {text}")
    assert known == said
