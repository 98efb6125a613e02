"""What is said of an index that is not complete while somebody completes it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from indexer.changes import Report
from indexer.paths import index_db
from indexer.runs import Run, record
from indexer.store.sqlite import SqliteStore
from smart_fork.retrieval.behind import background_notice
from smart_fork.retrieval.finder import find
from smart_fork.retrieval.request import FindRequest
from smart_fork.retrieval.upkeep import Engine
from tests.smart_fork.world import World

RETRY = "add retry with backoff to the uploader"


class Counted:
    """An index of so many passages."""

    def __init__(self, store: SqliteStore, chunks: int, embedded: int, last: str = "") -> None:
        self._counts, self._last = replace(store.counts(), chunks=chunks, embedded=embedded), last

    def counts(self):
        return self._counts

    def meta(self, _key: str) -> str:
        return self._last


@pytest.fixture
def store():
    store = SqliteStore(index_db())
    yield store
    store.close()


@pytest.mark.parametrize(
    ("counts", "left", "rate", "last", "said"),
    [
        ((100, 100), 0, 0.0, "", ""),
        ((1000, 404), 0, 5.0, "", "The index is 40 % embedded; the rest is being done in the background, about 1 min 59 s."),
        ((1000, 400), None, 0.0, "", "The index is 40 % embedded; the rest is being done in the background."),
        ((1000, 400), 0, 0.0, '{"seconds": 10.0, "embedded": 100}',
         "The index is 40 % embedded; the rest is being done in the background, about 1 min 0 s."),
        ((1000, 400), 0, 0.0, '{"seconds": {}, "embedded": null}',
         "The index is 40 % embedded; the rest is being done in the background."),
        ((0, 0), 3, 0.0, "", "3 logs are still to be read; the rest is being done in the background."),
        ((10, 9), 3, 1.0, "",
         "3 logs are still to be read and the index is 90 % embedded; the rest is being done in the background, about 1 s."),
    ],
)  # fmt: skip
def test_one_line_says_how_far_it_is_who_does_the_rest_and_how_long_that_takes(
    store, *, counts, left, rate, last, said
):
    assert said == background_notice(Counted(store, *counts, last), left, rate)


def test_it_is_in_the_answer_only_where_somebody_goes_on(world: World, shop):
    for number in range(3):
        world.claude(shop, f"{RETRY} {number}", "done")
    request = FindRequest(RETRY, project_path=str(shop))

    without = find(request, Engine(world.model, embed_seconds=0.0)).as_json()
    begun = find(request, Engine(world.model, embed_seconds=0.0, unfinished=lambda _: None)).as_json()
    complete = find(request, Engine(world.model, unfinished=lambda _: None)).as_json()

    assert "background_notice" not in without
    assert "The index is 0 % embedded; the rest is being done in the background." == begun["background_notice"]
    assert "background_notice" not in complete


def test_how_long_it_takes_is_known_from_a_run_as_it_is_recorded(store):
    record(store, Run("2026-01-01T00:00:00Z", 10.0, "completed", Report(embedded=100)))

    told = background_notice(Counted(store, 1000, 400, store.meta("last_run")), 0, 0.0)

    assert "about 1 min 0 s" in told
