from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.errors import TooLarge, Unshareable
from smart_fork.sharing import canonical
from smart_fork.sharing.canonical import decode, encode
from tests.support.cases import parametrize_subtests

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
INTEGERS = st.integers(-(2**63), 2**64 - 1)
VALUES = st.recursive(
    st.none() | st.booleans() | INTEGERS | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)
RECORDS = st.dictionaries(TEXT, VALUES, max_size=6)


@given(RECORDS)
def test_a_record_comes_back_as_it_was(record):
    data = encode(record)

    assert record == decode(data)
    assert data == encode(decode(data))


@given(RECORDS, st.randoms(use_true_random=False))
def test_the_order_of_names_does_not_matter(record, chance: random.Random):
    names = list(record)
    chance.shuffle(names)

    assert encode(record) == encode({name: record[name] for name in names})


@given(RECORDS, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_how_a_record_was_spelled_does_not_matter(record, indent, escaped):
    spelled = json.dumps(record, indent=indent, ensure_ascii=escaped)

    assert encode(record) == encode(json.loads(spelled))


@given(RECORDS)
def test_a_record_is_one_line(record):
    assert not set(b"\r\n") & set(encode(record))


@parametrize_subtests(
    "value",
    [
        float("nan"),
        float("inf"),
        -float("inf"),
        2**64,
        -(2**63) - 1,
        "\ud800",
        "a\udfffb",
        {"\ud800": 1},
        {1: 2},
        {"a": (1, 2)},
        b"bytes",
        1j,
        [float("nan")],
    ],
)
def test_what_json_cannot_say_is_refused(value):
    with pytest.raises(Unshareable):
        encode({"a": value})


@parametrize_subtests(
    "data",
    [
        b'{"b":1,"a":2}',
        b'{"a": 1}',
        b'{"a":1}\n',
        b' {"a":1}',
        b'\xef\xbb\xbf{"a":1}',
        b'{"a":1,"a":1}',
        b'{"a":"\\u00e9"}',
        b'{"a":"\\/"}',
        b'{"a":1.00}',
        b'{"a":1e2}',
        b'{"a":18446744073709551616}',
        b'{"a":"\\ud800"}',
        b'{"a":NaN}',
        b'{"a":"\xff"}',
        b'{"a":"\x00"}',
        b'{"a":1',
        b"",
        b"[]",
        b"1",
        b'{"a":' + b"[" * 2000 + b"]" * 2000 + b"}",
    ],
)
def test_bytes_that_are_not_canonical_are_refused(data):
    with pytest.raises(Unshareable):
        decode(data)


@pytest.mark.parametrize("way", ["encode", "decode"])
def test_a_record_as_deep_as_is_allowed_is_taken_and_none_deeper(way):
    def nested(depth):
        value = {}
        for level in range(2, depth + 1):
            value = [value] if level % 2 and level < depth else {"a": value}
        return value

    def take(record):
        return encode(record) if way == "encode" else decode(json.dumps(record, separators=(",", ":")).encode())

    assert take(nested(64))
    with pytest.raises(TooLarge):
        take(nested(65))


def test_brackets_in_a_text_are_no_depth():
    assert encode({"a": "[{" * 1000})


@pytest.mark.parametrize(
    "take",
    [encode, lambda record: decode(json.dumps(record, separators=(",", ":")).encode())],
    ids=["encode", "decode"],
)
def test_a_record_longer_than_the_limit_is_refused(take, monkeypatch):
    monkeypatch.setattr(canonical, "LIMITS", canonical.Limits(record_bytes=100))
    assert take({"a": "x" * 92})
    with pytest.raises(TooLarge):
        take({"a": "x" * 93})
