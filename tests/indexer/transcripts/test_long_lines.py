"""An abridged long line is JSON, has its short members, and does not depend on the division into pieces."""

from __future__ import annotations

import json
import string

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from indexer.transcripts import long_lines
from indexer.transcripts.long_lines import abridged, instead
from tests.support.exhaustive import full_or_sample

TEXTS = st.text(
    alphabet=st.one_of(st.sampled_from('\\"{}[],:\n'), st.characters(exclude_categories=["Cs"])), max_size=80
)
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), TEXTS),
    lambda inner: st.one_of(st.lists(inner, max_size=5), st.dictionaries(TEXTS, inner, max_size=5)),
    max_leaves=25,
)
RECORDS = st.dictionaries(st.text(string.ascii_letters, min_size=1, max_size=8), VALUES, max_size=6)


def pieces(line: bytes, size: int) -> list[bytes]:
    return [line[at : at + size] for at in range(0, len(line), size)]


def expected(value: object) -> object:
    if isinstance(value, str):
        size = len(json.dumps(value)) - 2
        return value if size <= long_lines.LONG_TEXT else instead(size)
    if isinstance(value, list):
        return [expected(one) for one in value]
    if isinstance(value, dict):
        return {expected(name): expected(one) for name, one in value.items()}
    return value


@pytest.fixture
def short(monkeypatch):
    monkeypatch.setattr(long_lines, "LONG_TEXT", 40)


@pytest.mark.thorough
@settings(max_examples=full_or_sample(300, 50), suppress_health_check=[])
@given(RECORDS, st.integers(1, 40))
def test_short_members_stay_and_long_texts_say_how_long_they_are(record, size):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_lines, "LONG_TEXT", 40)
        made = abridged(pieces(json.dumps(record).encode(), size))

        assert expected(record) == json.loads(made)


@settings(max_examples=full_or_sample(200, 40))
@given(RECORDS, st.integers(1, 40), st.integers(0, 200))
@pytest.mark.slow
def test_a_list_or_object_that_is_too_much_ends_and_the_record_goes_on(record, size, most):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(long_lines, "MAX_BYTES", most)
        patch.setattr(long_lines, "MANY_BYTES", most)
        made = abridged(pieces(json.dumps({"first": 1, **record, "uuid": "u1"}).encode(), size))

    found = json.loads(made) if made else {}
    assert made is None or {"first", "uuid", *record} == found.keys()
