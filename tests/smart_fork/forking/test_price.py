"""What a fork loads, as it is said before it starts."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from indexer.transcripts.model import Session, Turn
from smart_fork.cli.forked import price_in_words
from smart_fork.copies.session_copy import Point
from smart_fork.forking.price import price_of
from smart_fork.forking.started import ForkPrice
from smart_fork.retrieval.cache import KEPT_SECONDS, may_be_cached


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


def test_a_price_is_said_in_words():
    assert price_in_words(ForkPrice(90_000, 90_000, cached=True)) == (
        "It loads about 90,000 tokens, which its model may still have in its cache"
    )
    assert (
        price_in_words(ForkPrice(4_000, 90_000))
        == "It loads about 4,000 of 90,000 tokens, most likely in no cache any more"
    )


@pytest.mark.parametrize("moment", ["", "yesterday", "9999-99-99", "0001-01-01T00:00:00Z"])
def test_a_time_that_is_none_says_nothing_of_a_cache(moment):
    assert not may_be_cached(moment)


def test_a_cache_keeps_for_a_while_and_nothing_that_is_yet_to_come():
    now = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def cached(seconds: float) -> bool:
        return may_be_cached((now - timedelta(seconds=seconds)).isoformat(), now.timestamp())

    assert [cached(one) for one in (-1, 0, KEPT_SECONDS - 1, KEPT_SECONDS)] == [False, True, True, False]
