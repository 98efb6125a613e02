"""Tests of the estimated tokens of a fork before it starts."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from indexer.transcripts.model import Cache, Session, Turn
from smart_fork.agents.log_readers import READERS
from smart_fork.cli.fork import price_in_words, ways_in_words
from smart_fork.finding.fork_suitability import age_of, cache_in_words, cached_until, is_cached
from smart_fork.forking.fork_points import ForkPoint
from smart_fork.forking.plan import fixed_tokens, loaded_within, price_of, ways
from smart_fork.forking.request import Budget
from smart_fork.forking.results import ForkPrice, Selection, Way
from tests.smart_fork.world import Did
from tests.support.cases import parametrize_subtests


def ago(seconds: float) -> str:
    return (datetime.now(UTC) - timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


def session(earlier: float, last: float, cached_for: int = 300) -> Session:
    turns = tuple(
        Turn(f"t{number}", None, "assistant", ago(age), loaded=loaded, cached_for=cached_for)
        for number, (age, loaded) in enumerate(((earlier, 4_000), (last, 90_000)))
    )
    return Session("claude", "s", Path("log"), turns, last_activity=ago(last))


@parametrize_subtests(
    ("seconds", "whole", "at"),
    [(300, True, False), (3_600, True, True), (5, False, False), (0, False, False)],
)
def test_a_fork_loads_what_it_knows_and_its_model_still_has_what_was_sent_within_the_lifetime(seconds, whole, at):
    one = session(1_200, 10, seconds)

    def until(turn: Turn) -> str:
        return cached_until(Cache(seconds, turn.timestamp)) if seconds else ""

    # The last request was sent when the first answer was there.
    first = replace(one, turns=(one.turns[0], replace(one.turns[0], id="t", timestamp=ago(10)), one.turns[1]))

    assert price_of(first, None) == ForkPrice(90_000, 90_000, whole, until(first.turns[1]))
    assert price_of(first, ForkPoint(0, "t0")) == ForkPrice(4_000, 90_000, at, until(one.turns[0]))
    assert price_of(first, ForkPoint(0, "t0"), 1_000) == ForkPrice(1_000, 90_000)


def test_what_is_kept_of_a_conversation_is_loaded_after_what_its_agent_says_itself():
    counted = session(9_000, 10)
    kept = Selection(session_id="s", budget="9", tokens=500, whole_tokens=70_000, kept=1, left_out=1, exchanges=())
    uncounted = replace(counted, turns=tuple(replace(turn, loaded=0) for turn in counted.turns))

    assert 500 + 20_000 == loaded_within(counted, kept, 1)
    assert 500 == loaded_within(uncounted, kept, 1)


def test_what_was_compacted_is_no_longer_loaded_and_the_first_count_says_what_instructions_take():
    counted = session(9_000, 10)
    compacted = replace(counted, turns=(counted.turns[0], replace(counted.turns[1], role="system")))

    assert 20_000 == fixed_tokens(counted, 70_000, 1)
    assert 4_000 == fixed_tokens(counted, 95_000, 1) == fixed_tokens(compacted, 70_000, 1)


def test_of_what_no_agent_has_counted_all_that_is_sent_is_counted(world, shop):
    looked = Did("Bash", {"command": "cat big.txt"}, "word " * 8_000)
    log = world.log_of(world.worked("claude", shop, "> Look at it", looked, "I have.", "> Thanks", "Welcome."))
    uncounted = READERS["claude"].read(log).session

    whole = price_of(uncounted, None)

    assert 9_000 < whole.tokens < 20_000
    assert whole.tokens == whole.whole_tokens > price_of(uncounted, ForkPoint(3, uncounted.turns[3].id)).tokens > 9_000
    assert " of " not in price_in_words(ForkPrice(whole.tokens + 1, whole.tokens))


def test_a_price_is_said_in_words():
    cached = ForkPrice(90_000, 90_000, cached=True, cached_until=ago(-23 * 60 - 5))

    assert "It loads about 90,000 tokens, still cached for about 23 minutes" == price_in_words(cached)
    assert "It loads about 9 tokens, no longer cached" == price_in_words(ForkPrice(9, 9, cached_until=ago(5)))
    assert "It loads about 4,000 of 90,000 tokens" == price_in_words(ForkPrice(4_000, 90_000))


def test_the_ways_that_need_no_search_are_compared_without_one():
    one = session(60, 10)
    assert [("", 90_000, True)] == [(way.option, way.tokens, way.cached) for way in ways(one, None, None, None)]
    assert ["", "--at 0"] == [way.option for way in ways(one, ForkPoint(0, "t0"), Budget("match"), None)]
    assert [90_000, 4_000] == [way.tokens for way in ways(one, ForkPoint(0, "t0"), None, None, matched=True)]
    assert ["", "--at match"] == [way.option for way in ways(one, None, None, None, matched=True)]
    assert [one.last_activity, one.turns[0].timestamp] == [
        way.used_at for way in ways(one, ForkPoint(0, "t0"), None, None)
    ]


def test_one_session_has_one_figure_with_its_parts(world, shop):
    log = world.log_of(world.worked("claude", shop, "> Look at it", "I have.", "> Thanks", "Welcome."))
    one = READERS["claude"].read(log).session
    counted = replace(one, turns=(*one.turns[:-1], replace(one.turns[-1], loaded=18_000)))

    (whole,) = ways(counted, None, None, None)

    said = f"Whole session: 18,000 tokens (conversation {whole.conversation}; instructions and tools"
    assert 0 < whole.conversation < 100
    assert f"{said} {18_000 - whole.conversation:,})" == next(ways_in_words([whole]))


def test_the_ways_stand_side_by_side_with_the_age_of_what_may_be_cached():
    compared = (
        Way("", 90_000, True, ago(130), cached_until=ago(-170)),
        Way("--at 4", 4_000, used_at=ago(7_300), cached_until=ago(3_700)),
        Way("--at match", 2_000, used_at=ago(200_000)), Way("--at 1", 900, used_at="?"), Way("--budget match", 900),
    )  # fmt: skip

    assert [
        "  whole session              90,000 tokens  used 2 minutes ago, still cached for about 3 minutes",
        "  --at 4                      4,000 tokens  used 2 hours ago, no longer cached",
        "  --at match                  2,000 tokens  used 2 days ago",
        "  --at 1                        900 tokens  last use unknown",
        "  --budget match                900 tokens  another form, not cached",
    ] == [*ways_in_words(compared)][1:]


@parametrize_subtests("moment", ["", "yesterday", "9999-99-99", ago(-9_000)])
def test_a_time_that_is_none_or_yet_to_come_says_nothing_of_a_cache(moment):
    assert "" == cached_until(Cache(300, moment))
    assert age_of(moment) is None


def test_a_cache_lives_as_long_as_the_log_says_and_of_other_logs_nothing_is_said():
    used = ago(600)

    assert [False, True] == [is_cached(cached_until(Cache(seconds, used))) for seconds in (300, 3600)]
    assert ["no longer cached", "still cached for about 50 minutes", ""] == [
        cache_in_words(cached_until(Cache(seconds, used))) for seconds in (300, 3600, 0)
    ]
    assert ["still cached for about 1 minute", "still cached for seconds"] == [
        cache_in_words(ago(-left)) for left in (62, 9)
    ]
    assert not is_cached("")
