"""What a fork loads, as it is said before it starts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from indexer.transcripts.model import Session, Turn
from smart_fork.agents import READERS
from smart_fork.budget.selection import Selection
from smart_fork.budget.wanted import Wanted
from smart_fork.cli.forked import price_in_words, ways_in_words
from smart_fork.copies.session_copy import Point
from smart_fork.forking.price import beside, loaded_within, price_of
from smart_fork.forking.spending import Spending
from smart_fork.forking.started import ForkPrice, Way
from smart_fork.forking.ways import ways
from smart_fork.retrieval.cache import KEPT_SECONDS, may_be_cached
from tests.smart_fork.world import Did


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat()


def session(earlier: float, last: float) -> Session:
    turns = tuple(
        Turn(f"t{number}", None, "assistant", ago(age), loaded=loaded)
        for number, (age, loaded) in enumerate(((earlier, 4_000), (last, 90_000)))
    )
    return Session("claude", "s", Path("log"), turns, last_activity=ago(last))


@pytest.mark.parametrize(
    ("earlier", "last", "whole", "at", "within"),
    [(9_000, 10, True, False, False), (60, 10, True, True, False), (9_000, 8_000, False, False, False)],
)
def test_a_fork_loads_what_it_knows_and_its_model_may_still_have_what_was_just_sent(earlier, last, whole, at, within):
    one = session(earlier, last)

    assert price_of(one, None) == ForkPrice(90_000, 90_000, cached=whole)
    assert price_of(one, Point(0, "t0")) == ForkPrice(4_000, 90_000, cached=at)
    assert price_of(one, Point(0, "t0"), 1_000) == ForkPrice(1_000, 90_000, cached=within)


def test_what_is_kept_of_a_conversation_is_loaded_after_what_its_agent_says_itself():
    counted = session(9_000, 10)
    kept = Selection(session_id="s", budget="9", tokens=500, whole_tokens=70_000, kept=1, left_out=1, exchanges=())
    uncounted = replace(counted, turns=tuple(replace(turn, loaded=0) for turn in counted.turns))

    assert 500 + 20_000 == loaded_within(counted, kept, 1)
    assert 500 == loaded_within(uncounted, kept, 1)


def test_what_was_compacted_is_no_longer_loaded_and_the_first_count_says_what_instructions_take():
    counted = session(9_000, 10)
    compacted = replace(counted, turns=(counted.turns[0], replace(counted.turns[1], role="system")))

    assert 20_000 == beside(counted, 70_000, 1)
    assert 4_000 == beside(counted, 95_000, 1) == beside(compacted, 70_000, 1)


def test_of_what_no_agent_has_counted_all_that_is_sent_is_counted(world, shop):
    looked = Did("Bash", {"command": "cat big.txt"}, "word " * 8_000)
    log = world.log_of(world.worked("claude", shop, "> Look at it", looked, "I have.", "> Thanks", "Welcome."))
    uncounted = READERS["claude"].read(log).session

    whole = price_of(uncounted, None)

    assert 9_000 < whole.tokens < 20_000
    assert whole.tokens == whole.whole_tokens > price_of(uncounted, Point(3, uncounted.turns[3].id)).tokens > 9_000
    assert " of " not in price_in_words(ForkPrice(whole.tokens + 1, whole.tokens))


def test_a_price_is_said_in_words():
    assert price_in_words(ForkPrice(90_000, 90_000, cached=True)) == (
        "It loads about 90,000 tokens, which may still be cached"
    )
    assert (
        price_in_words(ForkPrice(4_000, 90_000)) == "It loads about 4,000 of 90,000 tokens, probably no longer cached"
    )


def test_the_ways_that_need_no_search_are_compared_without_one():
    one = session(9_000, 10)
    nothing = Spending(Wanted("match"))

    assert [("", 90_000, True)] == [(way.option, way.tokens, way.cached) for way in ways(one, None, None)]
    assert ["", "--at 0"] == [way.option for way in ways(one, Point(0, "t0"), nothing)]
    assert [90_000, 4_000] == [way.tokens for way in ways(one, Point(0, "t0"), nothing, matched=True)]
    assert ["", "--at match"] == [way.option for way in ways(one, None, nothing, matched=True)]
    assert [one.last_activity, one.turns[0].timestamp] == [way.used_at for way in ways(one, Point(0, "t0"), None)]


def test_one_session_has_one_figure_with_its_parts(world, shop):
    log = world.log_of(world.worked("claude", shop, "> Look at it", "I have.", "> Thanks", "Welcome."))
    one = READERS["claude"].read(log).session
    counted = replace(one, turns=(*one.turns[:-1], replace(one.turns[-1], loaded=18_000)))

    (whole,) = ways(counted, None, None)

    said = f"Whole session: 18,000 tokens (conversation {whole.conversation}; instructions and tools"
    assert 0 < whole.conversation < 100
    assert f"{said} {18_000 - whole.conversation:,})" == next(ways_in_words([whole]))


def test_the_ways_stand_side_by_side_with_the_age_of_what_may_be_cached():
    compared = (
        Way("", 90_000, cached=True, used_at=ago(130)), Way("--at 4", 4_000, used_at=ago(7_300)),
        Way("--at match", 2_000, used_at=ago(200_000)), Way("--at 1", 900, used_at="?"), Way("--budget match", 900),
    )  # fmt: skip

    assert [
        "  whole session              90,000 tokens  used 2 min ago, may still be in its model's cache",
        "  --at 4                      4,000 tokens  used 2 h ago, probably no longer cached",
        "  --at match                  2,000 tokens  used 2 d ago, probably no longer cached",
        "  --at 1                        900 tokens  last use unknown",
        "  --budget match                900 tokens  another form, not cached",
    ] == [*ways_in_words(compared)][1:]


@pytest.mark.parametrize("moment", ["", "yesterday", "9999-99-99", "0001-01-01T00:00:00Z"])
def test_a_time_that_is_none_says_nothing_of_a_cache(moment):
    assert not may_be_cached(moment)


def test_a_cache_keeps_for_a_while_and_nothing_that_is_yet_to_come():
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def cached(seconds: float) -> bool:
        return may_be_cached((now - timedelta(seconds=seconds)).isoformat(), now.timestamp())

    assert [cached(one) for one in (-1, 0, KEPT_SECONDS - 1, KEPT_SECONDS)] == [False, True, True, False]
