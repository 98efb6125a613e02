"""The state between two readings, and times and numbers of any form."""

from __future__ import annotations

import gzip
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.masking import Masked
from indexer.transcripts import reader_state
from indexer.transcripts.model import ToolCall, ToolResult, Turn
from indexer.transcripts.reader_state import Warm, count, is_path, pack, unpack, utc
from tests.support.cases import parametrize_subtests

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
TURNS = st.builds(
    Turn,
    id=TEXT,
    parent_id=TEXT | st.none(),
    role=st.sampled_from(["user", "assistant", "tool", "system"]),
    timestamp=TEXT,
    text=TEXT,
    token_est=st.integers(0, 1 << 40),
    tool_calls=st.lists(st.builds(ToolCall, TEXT, TEXT, TEXT), max_size=2).map(tuple),
    tool_results=st.lists(st.builds(ToolResult, TEXT, st.booleans(), TEXT), max_size=2).map(tuple),
    prompt=st.booleans(),
    group=TEXT,
)


@pytest.fixture(autouse=True)
def _cold(monkeypatch):
    """Packed turns are not cached, so that the bytes themselves are unpacked."""
    monkeypatch.setattr(reader_state, "_warm", Warm(0))


@given(facts=st.dictionaries(TEXT, TEXT | st.integers(0, 9) | st.booleans()), turns=st.lists(TURNS, max_size=5))
def test_what_was_kept_comes_back(facts, turns):
    assert (facts, turns) == unpack(pack(facts, {}, turns))


def test_more_turns_than_are_encoded_together_come_back():
    turns = [Turn(str(number), None, "user", "") for number in range(2 * reader_state._BATCH + 1)]

    assert ({}, turns) == unpack(pack({}, {}, turns))


def test_a_state_of_another_version_is_not_used(monkeypatch):
    kept = pack({"a": 1}, {}, [])
    monkeypatch.setattr(reader_state, "READER_VERSION", reader_state.READER_VERSION + 1)

    assert unpack(kept) is None


@parametrize_subtests("cut", [0, 1, 9, 15, -9, -1])
def test_a_damaged_state_is_not_used(cut):
    kept = pack({"a": "text"}, {}, [Turn("1", None, "user", "")])

    assert unpack(kept[:cut]) is None


@parametrize_subtests("content", [b"", b"null", b"[1]", b"[2, {}]\n[[1]]", b"[2, {}]\n7", b"x"])
def test_a_state_of_another_shape_is_not_used(content):

    assert unpack(gzip.compress(content)) is None


@parametrize_subtests(
    ("given", "expected"),
    [
        ("2026-07-01T10:00:00.123Z", "2026-07-01T10:00:00.123Z"),
        ("2026-07-01T10:00:00Z", "2026-07-01T10:00:00.000Z"),
        ("2026-07-01T12:00:00.123456+02:00", "2026-07-01T10:00:00.123Z"),
        ("2026-07-01T10:00:00", "2026-07-01T10:00:00.000Z"),
        ("2026-07-01 10:00:00", "2026-07-01T10:00:00.000Z"),
        (1782900000, "2026-07-01T10:00:00.000Z"),
        (1782900000123, "2026-07-01T10:00:00.123Z"),
        (1782900000.5, "2026-07-01T10:00:00.500Z"),
        (1782900000123456, "2026-07-01T10:00:00.123Z"),
        (1782900000123456789, "2026-07-01T10:00:00.123Z"),
        ("1782900000.0", "2026-07-01T10:00:00.000Z"),
        ("1782900000124", "2026-07-01T10:00:00.124Z"),
    ],
)
def test_times_of_all_forms_are_compared_as_one(given, expected):
    """F-146: with and without a zone, and numbers."""
    assert utc(given) == expected


@parametrize_subtests(
    "given",
    [
        "",
        "yesterday",
        "2026-99-99T99:99:99.999Z",
        "abcd-ef-ghTij:kl:mn.opqZ",
        "[REDACTED_PHONE]",
        None,
        True,
        [],
        {},
        float("nan"),
        float("inf"),
        10**400,
        0,
        12345,
        -1,
        99_999_999_999_999_999_999,
        "123456789",
        -(10**20),
        "0001-01-01T00:00:00+23:59",
    ],
)
def test_what_is_no_time_is_no_time(given):
    assert utc(given) == ""


@given(st.text(max_size=30) | st.integers() | st.floats() | st.datetimes().map(str) | st.none())
def test_any_value_is_a_time_in_utc_or_none(value):
    found = utc(value)

    assert found == "" or (found.endswith("Z") and len(found) == 24 and datetime.fromisoformat(found))
    assert found == utc(found)


@parametrize_subtests("value", [None, True, -1, 0, 1.5, "7", 2**63, 2**64 - 1, [], {}])
def test_what_is_no_number_of_things_counts_nothing(value):
    assert count(value) == 0


def test_numbers_of_things_count():
    assert count(200_000) == 200_000


def test_a_path_is_a_text_that_the_system_accepts():
    assert is_path("/srv/a b/ä")
    assert not any(map(is_path, ["", "/srv\0", None, 1, []]))


SECRET = "ghp_" + "a1B2c3D4e5" * 4


def test_what_is_kept_has_no_secret_of_a_turn():
    call = ToolCall("c1", "Edit", Masked("edit"), edits=(f"config/{SECRET}.py", "a.py"), reads=(SECRET,))
    facts, (turn,) = unpack(
        pack({"cwd": "/srv"}, {}, [Turn("1", None, "user", "", f"use {SECRET}", tool_calls=(call,))])
    )

    assert ({"cwd": "/srv"}, "use [REDACTED:github-token]") == (facts, turn.text)
    assert (("\n", "a.py"), ("\n",)) == (turn.tool_calls[0].edits, turn.tool_calls[0].reads)


@parametrize_subtests(
    "facts", [{"cwd": f"/srv/{SECRET}"}, {"cwds": ["/srv", f"/srv/{SECRET}"]}, {"ran_in": {f"/srv/{SECRET}": 1}}]
)
def test_of_a_log_whose_facts_hold_a_secret_nothing_is_kept(facts):
    assert b"" == pack(facts, {}, [])
