"""Words are looked for all at once, and all of them are found."""

from hypothesis import given
from hypothesis import strategies as st

from indexer.masking.assignments import STEMS
from indexer.masking.phrases import PHRASE_SIGNS
from indexer.masking.secrets import _SIGNS, _TELLING
from indexer.masking.signs import Signs

ALL = sorted({*STEMS, *PHRASE_SIGNS, *_TELLING})
pieces = st.lists(st.sampled_from(ALL) | st.binary(max_size=3), max_size=12).map(b"".join)


@given(pieces)
def test_every_word_is_found_where_it_is_and_nowhere_else(text):
    assert {word for word in ALL if word in text} == _SIGNS.found_in(text).intersection(ALL)


@given(st.binary(max_size=200))
def test_a_word_is_found_in_bytes_of_any_kind(text):
    signs = Signs((b"pass", b"pw", b"://", b"a+b"))
    assert {word for word in (b"pass", b"pw", b"://", b"a+b") if word in text} == signs.found_in(text)


def test_two_words_of_which_one_begins_in_the_other_are_both_found():
    assert {b":5432:", b"://"} == _SIGNS.found_in(b":5432://").intersection(ALL)
