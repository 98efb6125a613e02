from __future__ import annotations

from hashlib import sha256
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.errors import Unshareable
from smart_fork.sharing.canonical import NOTHING, START, chain_states, digest_of, digest_of_state, state_after, state_of

RECORDS = st.lists(st.binary(max_size=20), max_size=10)


def test_the_digest_of_nothing_is_that_of_the_name_of_the_scheme():
    assert f"sf1:{sha256(b'smart-fork/records/1').hexdigest()}" == digest_of([]) == NOTHING


def test_the_digest_of_two_records_is_as_it_is_written_down():
    """C-033."""
    one = sha256(START + sha256(b'{"a":1}').digest()).digest()
    two = sha256(one + sha256(b"{}").digest()).digest()

    assert f"sf1:{two.hex()}" == digest_of([b'{"a":1}', b"{}"])
    assert "sf1:c3d6ff1ee60ecf23" == digest_of([b'{"a":1}', b"{}"])[:20]


@given(RECORDS, st.integers(0, 10))
def test_a_digest_is_gone_on_with_from_any_record(records, cut):
    half = state_after(records[:cut])

    assert digest_of(records) == digest_of_state(state_after(records[cut:], half))


@given(RECORDS)
def test_each_state_is_the_one_after_so_many_records(records):
    assert [state_after(records[: end + 1]) for end in range(len(records))] == list(chain_states(records))


@given(RECORDS)
def test_no_two_beginnings_have_the_same_digest(records):
    digests = [digest_of(records[:end]) for end in range(len(records) + 1)]

    assert len(set(digests)) == len(digests)


@given(st.lists(st.binary(max_size=5), min_size=2, unique=True))
def test_the_order_of_records_matters(records):
    assert digest_of(records) != digest_of(reversed(records))


def test_bytes_do_not_move_from_one_record_to_the_next():
    spellings = [[b"ab", b"c"], [b"a", b"bc"], [b"abc"], [b"abc", b""], [b"", b"abc"]]

    assert all(digest_of(one) != digest_of(other) for one, other in pairwise(spellings))


@given(RECORDS)
def test_a_written_digest_is_read_again(records):
    assert state_after(records) == state_of(digest_of(records))


@pytest.mark.parametrize(
    "digest", ["", "sf1:", "sf2:" + "0" * 64, "sf1:" + "A" * 64, "sf1:" + "0" * 64 + "\n", "0" * 64]
)
def test_what_is_no_digest_is_refused(digest):
    with pytest.raises(Unshareable):
        state_of(digest)
