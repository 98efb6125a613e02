"""One score a session, from words and meaning."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from smart_fork.ranking import Evidence, scores

shares = st.floats(0, 1)
evidence = st.builds(
    Evidence, words=st.floats(0, 50), chunk_words=st.lists(shares, max_size=4),
    similar=st.dictionaries(st.integers(0, 5), st.floats(-1, 1), max_size=4), chunks=st.integers(1, 9), coverage=shares,
)  # fmt: skip


@given(st.dictionaries(st.integers(0, 9), evidence))
def test_every_session_gets_a_score_between_0_and_1(found):
    assert set(scores(found)) == set(found)
    assert all(0 <= score <= 1 for score in scores(found).values())


def test_a_session_with_the_words_and_the_meaning_wins():
    found = {
        1: Evidence(words=9, chunk_words=[1.0], similar={0: 0.8}, chunks=1, coverage=1),
        2: Evidence(words=9, chunk_words=[1.0], coverage=1),
        3: Evidence(similar={0: 0.8}, chunks=1),
    }

    assert max(scores(found), key=scores(found).__getitem__) == 1


def test_many_far_chunks_count_less_than_one_near_beginning():
    near, far = Evidence(similar={0: 0.9}, chunks=1), Evidence(similar={7: 0.9, 8: 0.1}, chunks=40)

    found = scores({1: near, 2: far})

    assert found[1] > found[2]


def test_where_only_words_were_searched_they_can_earn_the_whole_score():
    assert scores({1: Evidence(words=5, chunk_words=[1.0, 1.0, 1.0], coverage=1)}) == {1: 1.0}


def test_words_that_say_little_about_the_question_count_little():
    assert scores({1: Evidence(words=5, chunk_words=[1.0], coverage=0.1)})[1] < 0.2


def test_nothing_found_is_no_score():
    assert scores({}) == {}
