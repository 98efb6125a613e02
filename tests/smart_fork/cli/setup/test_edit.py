"""An edit of a text in the ledger: it is kept small, and undone to the byte."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smart_fork.cli.setup.foreign_file import Edit

texts = st.text(alphabet="ab\n{}é", max_size=30)


@given(before=st.none() | texts, after=texts)
def test_what_was_there_before_comes_back(before, after):
    edit = Edit.of(before, after)

    assert edit.is_in(after)
    assert edit.never_came(before)
    assert before == edit.undone(after)


@given(before=texts, middle=texts)
def test_only_what_has_changed_is_kept(before, middle):
    """Settings hold secrets, and the ledger must hold none of them."""
    edit = Edit.of(before + "|" + before, before + "|" + middle + before)

    assert ("", len(middle)) == (edit.was, len(edit.now))
