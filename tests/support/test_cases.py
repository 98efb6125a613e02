"""One test of many cases."""

import pytest

from tests.support.cases import each, thorough_except, thorough_except_first


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


def always(cases):
    """Those that are not thorough."""
    return [case for case in cases if not hasattr(case, "marks")]


def test_all_cases_are_there_and_those_that_are_not_named_are_thorough():
    assert ["a", "b"] == always(thorough_except_first("abc", 2))
    assert [(1, "b")] == always(rows := thorough_except([(0, "a"), (1, "b"), (2, "c")], (1, "b")))
    assert [(0, "a"), (2, "c")] == [case.values for case in rows if hasattr(case, "marks")]


def test_a_case_that_is_named_and_not_there_is_an_error():
    with pytest.raises(ValueError, match=r"no cases: \['d'\]"):
        thorough_except("abc", "a", "d")
