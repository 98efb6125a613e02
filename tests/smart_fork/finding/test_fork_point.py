"""Tests of the exchange of a session after which a fork knows all that is asked."""

from __future__ import annotations

import pytest

from indexer.store.base import Placement
from smart_fork.finding import ranking
from smart_fork.finding.evidence import edited
from smart_fork.finding.ranking import exchange_parts


def places(*exchanges: int) -> list[Placement]:
    return [
        Placement(1, position, 100 + position, position, f"m{position}", "user", exchange, None, 0)
        for position, exchange in enumerate(exchanges)
    ]


def fork_point(places, words, similar, changing):
    return ranking.fork_point(
        places, words, similar, exchange_parts(places, words, similar, changing) if places else {}
    )


def test_a_session_without_passages_has_no_fork_point():
    assert fork_point([], [{}], [{}], ()) is None


def test_the_exchange_that_alone_speaks_of_it_is_chosen_wherever_it_stands():
    for exchange in range(5):
        found = fork_point(places(0, 1, 2, 3, 4), [{100 + exchange: 3.0}], [{exchange: 0.8}], ())
        assert (found.exchange, found.position) == (exchange, exchange)


def test_of_two_that_speak_of_it_alike_the_later_is_chosen():
    found = fork_point(places(0, 1, 2, 3), [{101: 3.0, 102: 3.0}], [{1: 0.6, 2: 0.6}], ())

    assert found.exchange == 2


def test_the_passage_is_the_strongest_of_its_exchange():
    found = fork_point(places(0, 0, 0), [{}], [{0: 0.2, 1: 0.9, 2: 0.3}], ())

    assert found.position == 1


@pytest.mark.parametrize("nothing", [{}, {0: -0.5, 1: -0.9}])
def test_where_nothing_speaks_for_any_exchange_the_last_is_chosen(nothing):
    assert fork_point(places(0, 1), [{}], [nothing], ()).exchange == 1


def test_all_phrasings_count_alike_and_exchanges_without_passages_do_not():
    one = {100: 2.0}

    found = exchange_parts(places(0, 3), [one, {}], [{}, {}], ())

    assert found.keys() == {0, 3}
    assert found[0].words == 0.5
    assert exchange_parts(places(0, 3), [{**one, 103: 2.0}, {}], [{}, {}], ())[3].late == 1.0


def test_what_is_planned_in_one_exchange_and_done_in_the_next_is_known_only_there():
    planned, done = {101: 3.0, 102: 1.5}, {1: 0.6, 2: 0.4}

    assert 1 == fork_point(places(0, 1, 2, 3), [planned], [done], ()).exchange
    assert 2 == fork_point(places(0, 1, 2, 3), [planned], [done], {2}).exchange


def test_an_exchange_changes_files_where_one_of_its_lines_is_an_edit():
    texts = {100: "User: edit it", 101: "edit src/a.py", 102: "run make\nedit src/b.py", 103: "I edit src/c.py"}

    assert {1, 2} == edited(places(0, 1, 2, 3, 4), texts)
