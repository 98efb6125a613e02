"""A search for many literals finds all of them."""

import re

from hypothesis import given
from hypothesis import strategies as st

from indexer.masking.secrets import _LITERALS, _SIGNS, Literals

pieces = st.lists(st.sampled_from(sorted(_SIGNS)) | st.binary(max_size=3), max_size=12).map(b"".join)


def places(literals, text):
    found = {one: [at.start() for at in re.finditer(b"(?=" + re.escape(one) + b")", text)] for one in literals}
    return {one: at for one, at in found.items() if at}


@given(pieces)
def test_every_literal_is_found_wherever_it_is_and_nowhere_else(text):
    found = _LITERALS.places_in(text)

    assert places(_SIGNS, text) == {sign: found[sign] for sign in _SIGNS.intersection(found)}


@given(st.binary(max_size=200))
def test_a_literal_is_found_in_bytes_of_any_kind(text):
    literals = (b"pass", b"pw", b"://", b"a+b", b"\0")

    assert places(literals, text) == Literals(literals).places_in(text)


def test_two_of_which_one_begins_in_the_other_are_both_found():
    assert {b":5432:", b"://"} <= _LITERALS.places_in(b":5432://").keys()
