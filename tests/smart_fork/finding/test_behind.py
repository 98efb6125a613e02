"""Tests of the notices about an incomplete index while another process completes it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from indexer.log_changes import Report
from indexer.runs import ended_run, keep_run
from indexer.safe_files import index_db
from indexer.shared_embedder import SharedEmbedder
from indexer.store.sqlite import Store
from smart_fork.finding.answer import EmbeddedShares
from smart_fork.finding.index_refresh import (
    Engine,
    Refreshed,
    background_notice,
    doubt,
    early_notice,
    makes_vectors,
    seconds_left,
)
from smart_fork.finding.request import FindRequest
from tests.smart_fork.searches import find
from tests.smart_fork.world import WordsModel, World

RETRY = "add retry with backoff to the uploader"


class Counted:
    """An index with this many passages."""

    def __init__(self, store: Store, chunks: int, embedded: int, last: str = "") -> None:
        self._counts, self._last = replace(store.counts(), chunks=chunks, embedded=embedded), last

    def counts(self):
        return self._counts

    def meta(self, _key: str) -> str:
        return self._last

    def notice(self, left: int, rate: float) -> str:
        return background_notice(self._counts, left, seconds_left(self, self._counts, rate))


@pytest.fixture
def store():
    store = Store(index_db())
    yield store
    store.close()


@pytest.mark.parametrize(
    ("counts", "left", "rate", "last", "said"),
    [
        ((100, 100), 0, 0.0, "", ""),
        ((1000, 404), 0, 5.0, "", "The index is 40 % embedded; the rest continues in the background, about 1 min 59 s."),
        ((1000, 400), 0, 0.0, "", "The index is 40 % embedded; the rest continues in the background."),
        ((1000, 400), 0, 0.0, '{"seconds": 10.0, "embedded": 100}',
         "The index is 40 % embedded; the rest continues in the background, about 1 min 0 s."),
        ((1000, 400), 0, 0.0, '{"seconds": {}, "embedded": null}',
         "The index is 40 % embedded; the rest continues in the background."),
        ((0, 0), 3, 0.0, "", "3 logs are not read yet; the rest continues in the background."),
        ((10, 9), 3, 1.0, "",
         "3 logs are not read yet and the index is 90 % embedded; the rest continues in the background, about 1 s."),
    ],
)  # fmt: skip
def test_one_line_says_how_far_it_is_who_does_the_rest_and_how_long_that_takes(
    store, *, counts, left, rate, last, said
):
    assert said == Counted(store, *counts, last).notice(left, rate)


def test_it_is_in_the_answer_only_where_somebody_goes_on(world: World, shop):
    for number in range(3):
        world.claude(shop, f"{RETRY} {number}", "done")
    request = FindRequest(RETRY)

    without = find(request, Engine(world.model, embed_seconds=0.0), shop).as_json()
    begun = find(request, Engine(world.model, embed_seconds=0.0, unfinished=lambda _: None), shop).as_json()
    complete = find(request, Engine(world.model, unfinished=lambda _: None), shop).as_json()

    assert "background_notice" not in without
    assert "The index is 0 % embedded; the rest continues in the background." == begun["background_notice"]
    assert "background_notice" not in complete


def test_an_early_answer_says_so_and_its_scores_are_lower_until_all_is_embedded(world: World, shop):
    for number in range(3):
        world.claude(shop, f"{RETRY} {number}", "done")
    world.claude(shop, "paint the header blue", "done")
    request = FindRequest("paint the header", explain=True)
    indexer = SimpleNamespace(doing="embedding 1/9", run_soon=lambda *_: None, put_first=lambda *_: None)
    waits = Engine(SharedEmbedder(world.model, 60, indexer))  # its indexer makes the vectors
    find(request, Engine(world.model, embed_seconds=0.0), shop)  # reads

    early = find(request, waits, shop).as_json()
    alone = find(request, Engine(world.model, embed_seconds=0.0), shop).as_json()
    whole = find(request, Engine(world.model), shop).as_json()
    later = find(request, waits, shop).as_json()

    assert "This answer is early: 0 % of the passages here" in early["early_notice"]
    assert "early_notice" not in alone, "nobody is to make vectors: no score waits for one"
    assert "early_notice" not in whole
    assert later == whole
    against = [one["results"][0]["explain"]["against"] for one in (early, alone)]
    assert pytest.approx(1.5, abs=0.02) == against[0] - against[1]
    assert [hit["session_id"] for hit in early["results"]] == [hit["session_id"] for hit in alone["results"]]


@pytest.mark.parametrize(("first", "every"), [(1.0, 1.0), (0.5, 0.3), (0.0, 0.0)])
def test_doubt_goes_as_vectors_come_and_is_none_at_the_end(first, every):
    assert pytest.approx(1.5 * (1 - (first + every) / 2)) == doubt(EmbeddedShares(first, every))
    assert (first < 0.9) == bool(early_notice(EmbeddedShares(first, every)))


def test_how_long_it_takes_is_known_from_a_run_as_it_is_recorded(store):
    keep_run(store, ended_run("2026-01-01T00:00:00Z", 10.0, "completed", Report(embedded=100)))

    told = Counted(store, 1000, 400, store.meta("last_run")).notice(0, 0.0)

    assert "about 1 min 0 s" in told


@pytest.mark.parametrize(
    ("able", "comes"),
    [
        ({"embed_seconds": 1.0}, True),
        ({"embed_seconds": 0.0, "unfinished": Mock()}, True),
        ({"embed_seconds": 0.0}, False),
    ],
)
def test_vectors_that_are_missing_come_where_anybody_makes_them(able, comes):
    assert comes == makes_vectors(Engine(WordsModel(), **able), Refreshed(None))
