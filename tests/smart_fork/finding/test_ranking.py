"""Tests of the chance that a session is the one meant, from words and meaning."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.finding.ranking import (
    FAR,
    KNOWN,
    MAX_ASKED_CHANCE,
    RIVALS,
    Coverage,
    Evidence,
    Phrased,
    parts,
    rivals,
    scores,
    share,
    strongest,
    weigh,
)

shares = st.floats(0, 1)
evidence = st.builds(
    Evidence, words=st.floats(0, 50), passages=st.lists(st.floats(0, 50), max_size=4), title=shares,
    similar=st.dictionaries(st.integers(0, 5), st.floats(-1, 1), max_size=4), chunks=st.integers(1, 9),
)  # fmt: skip
coverage = st.builds(Coverage, shares, shares, shares)
STRONG = Evidence(words=9, passages=[5.0], title=1.0, similar={0: 0.9}, chunks=1)
WEAK = Evidence(words=1, similar={0: 0.2}, chunks=1)
ALL = Coverage(1.0, 1.0, 1.0)


def chance_of(found, cover=ALL, families=None, **how):
    rated = scores([Phrased(found, cover)], families or {session: str(session) for session in found}, **how)
    return {session: score.chance for session, score in rated.items()}


@given(st.dictionaries(st.integers(0, 9), evidence), coverage, st.booleans())
def test_every_session_gets_a_chance_and_together_they_are_at_most_one(found, cover, words):
    chances = chance_of(found, cover, words=words)

    assert set(chances) == set(found)
    assert all(0 <= chance <= 1 for chance in chances.values())
    assert sum(chances.values()) <= 1 + 1e-9


@given(st.dictionaries(st.integers(0, 9), evidence, min_size=1), coverage)
def test_a_score_is_explained_by_its_points(found, cover):
    for score in scores([Phrased(found, cover)], dict.fromkeys(found, "one family")).values():
        assert score.chance == pytest.approx(1 / (1 + math.exp(score.against - sum(score.points))))


def test_sessions_that_were_only_asked_are_equally_likely_to_the_last_bit():
    values = itertools.product((5.0, 23.4, 38.4, 24.18), (8.24, 4.07, 5.97), (0.14, 0.1, 0.8), (0.59, 0.6, 0.75))
    found = {
        number: Evidence(words, [passage], title, {0: similar}, only_asked=True)
        for number, (words, passage, title, similar) in enumerate(values)
    }

    chances = chance_of(found, families=dict.fromkeys(found, "one family")).values()

    assert [MAX_ASKED_CHANCE] == sorted({chance for chance in chances if chance > MAX_ASKED_CHANCE - 1e-9})


def test_a_session_with_the_words_and_the_meaning_wins():
    chances = chance_of(
        {1: STRONG, 2: Evidence(words=9, passages=[5.0]), 3: Evidence(similar={0: 0.9}, chunks=1)},
    )

    assert max(chances, key=chances.__getitem__) == 1
    assert chances[1] > 0.5


def test_where_nothing_fits_all_chances_are_low():
    assert max(chance_of(dict.fromkeys(range(20), WEAK), Coverage(0.1, 0.1)).values()) < 0.05


def test_two_that_fit_equally_share_the_chance():
    chances = chance_of({1: STRONG, 2: STRONG})

    assert chances[1] == chances[2] == pytest.approx(0.5, abs=0.02)


def test_members_of_one_family_are_no_rivals():
    alone = chance_of({1: STRONG})

    assert chance_of({1: STRONG, 2: STRONG}, families={1: "a", 2: "a"}) == {1: alone[1], 2: alone[1]}


@pytest.mark.slow
def test_a_great_number_of_unlikely_sessions_does_not_outweigh_a_likely_one():
    likely = Evidence(words=9, title=0.3, similar={0: 0.4}, chunks=1)
    crowd = dict.fromkeys(range(2, 20_000), WEAK)

    chances = chance_of({1: likely} | crowd)

    assert chances[1] == pytest.approx(chance_of({1: likely} | dict(list(crowd.items())[: RIVALS - 1]))[1])
    assert chances[1] > 0.9


def test_many_far_chunks_count_less_than_one_near_beginning():
    chances = chance_of({1: Evidence(similar={0: 0.9}, chunks=1), 2: Evidence(similar={7: 0.9, 8: 0.1}, chunks=40)})

    assert chances[1] > chances[2]


def test_how_far_a_far_chunk_is_makes_no_difference():
    near = {0: 0.9, 1: 0.1}, {0: 0.9, 1: -1.0}

    assert len({parts({1: Evidence(similar=similar, chunks=2)}, ALL)[1].whole for similar in near}) == 1


def test_a_session_of_which_only_the_words_are_known_is_judged_by_them_alone():
    words = Evidence(words=5, passages=[5.0] * 3, title=1.0, work=1.0, files=1.0, commits=5)

    assert chance_of({1: words})[1] > 0.95
    assert sum(scores([Phrased({1: words}, ALL)], {1: "a"})[1].points) == pytest.approx(sum(KNOWN["words"].worth))


def test_words_that_say_little_about_the_question_count_little():
    assert chance_of({1: Evidence(words=5, passages=[1.0])}, Coverage(0.1, 0.1))[1] < 0.1


def test_nothing_found_is_no_score():
    assert chance_of({}) == {}


def test_a_strong_rival_from_elsewhere_takes_its_share_and_its_own_family_does_not():
    weighed = weigh([Phrased({1: STRONG, 2: WEAK}, ALL)])
    families = {1: "a", 2: "b"}
    here = rivals(weighed, families)

    alone = share(weighed, families, here)
    beside = share(weighed, families, strongest({**here, "elsewhere": here["a"]}))
    with_kin = share(weighed, families, strongest({**here, "a": here["a"] + 3}))

    assert alone == scores([Phrased({1: STRONG, 2: WEAK}, ALL)], families)
    assert beside[1].chance == pytest.approx(0.5, abs=0.03)
    assert alone[1].chance > 0.9
    assert with_kin[1].chance == pytest.approx(alone[1].chance)


def test_a_session_is_judged_by_all_its_passages_also_by_those_that_nobody_compared():
    (one, of_ten) = (parts({1: Evidence(similar={0: 0.9}, chunks=many)}, ALL)[1].whole for many in (1, 10))

    assert (one, of_ten) == (pytest.approx(0.9), pytest.approx((0.9 + 9 * FAR) / 10))
