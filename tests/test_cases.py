"""One test of many cases."""

import pytest

from tests.cases import each


def test_every_case_that_fails_is_named_and_the_others_are_tried():
    tried = []

    @each("number, word", [(1, "a"), (2, "b"), (3, "c")])
    def test_of_them(number, word):
        tried.append(word)
        assert number == 2

    with pytest.raises(ExceptionGroup, match="2 of 3 cases") as failed:
        test_of_them()

    assert ["a", "b", "c"] == tried
    assert [["number = 1, word = 'a'"], ["number = 3, word = 'c'"]] == [
        one.__notes__ for one in failed.value.exceptions
    ]


@each("number", [1, 2])
def test_the_cases_share_the_fixtures(home, number):
    assert home.is_dir()
    assert number in (1, 2)
