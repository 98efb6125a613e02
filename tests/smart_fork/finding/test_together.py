"""Tests of many simultaneous questions: they share one look at the logs, and leave the indexer's work to
the indexer.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

import pytest

from indexer import shared_embedder
from indexer.locks import IndexBusyError
from indexer.shared_embedder import LOOK_SECONDS, SharedEmbedder
from indexer.transcripts.base import LogFile
from smart_fork.finding import index_refresh
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.searches import find
from tests.smart_fork.world import WordsModel

LEFT = LogFile("claude", "/home/logs/one.jsonl", 1, 1, 1)


class Indexer:
    """A replacement for the indexer of a process."""

    def __init__(self, doing: str = "") -> None:
        self.doing = doing
        self.went_on: list[str] = []
        self.put: list[tuple[object, set[int]]] = []

    def run_soon(self, project: object = None) -> None:
        self.went_on.append(self.doing)

    def put_first(self, project: object, wanted: Collection[int]) -> None:
        self.put.append((project, set(wanted)))


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_look_that_leaves_nothing_holds_for_a_moment():
    clock, looks = Clock(), []
    shared = SharedEmbedder(WordsModel(), 60, clock=clock)
    for clock.now in (0.0, LOOK_SECONDS / 2, LOOK_SECONDS, LOOK_SECONDS * 1.5):
        assert [] == shared.left(lambda: looks.append(clock.now) or [])

    assert [0.0, LOOK_SECONDS] == looks


def test_a_look_that_leaves_something_or_fails_holds_for_nobody():
    shared, looks = SharedEmbedder(WordsModel(), 60, clock=Clock()), []

    def fail() -> int:
        looks.append("failed")
        raise OSError

    assert [LEFT] == shared.left(lambda: looks.append("left 1") or [LEFT])
    with pytest.raises(OSError):
        shared.left(fail)
    assert [] == shared.left(lambda: looks.append("all") or [])
    assert ["left 1", "failed", "all"] == looks


def test_a_question_does_not_wait_long_for_the_look_of_another(monkeypatch):
    monkeypatch.setattr(shared_embedder, "LOCK_SECONDS", 0.01)
    shared, looking, done = SharedEmbedder(WordsModel(), 60), threading.Event(), threading.Event()
    other = threading.Thread(target=shared.left, args=(lambda: looking.set() or (done.wait() and []),))
    other.start()
    looking.wait()
    with pytest.raises(IndexBusyError):
        shared.left(lambda: 0)
    done.set()
    other.join()


def test_a_question_does_nothing_that_the_indexer_is_doing(world, shop):
    """F-180: while logs are read, a question is answered from the present index. It never makes embeddings."""
    clock, indexer = Clock(), Indexer("reading 3/7")
    engine = Engine(SharedEmbedder(world.model, 60, indexer, clock))
    request = FindRequest("add retry to the uploader", agent_type="both")
    world.claude(shop, "add retry to the uploader", "done")
    assert 1 == find(request, engine).as_json()["index"]["sessions"], "where there is nothing at all, a question reads"

    world.claude(shop, "the downloader", "done as well")
    clock.now += 2 * LOOK_SECONDS
    answer = find(request, engine).as_json()
    assert (1, None) == (answer["index"]["sessions"], answer["index"]["unread_logs"])
    assert answer["results"]

    indexer.doing = ""
    state = find(request, engine).as_json()["index"]
    assert (2, 0, 0) == (state["sessions"], state["unread_logs"], state["embedded"])
    assert ["reading 3/7", ""] == indexer.went_on, "the indexer is to make the vectors"


@pytest.mark.parametrize("doing", ["", "reading 3/7", "embedding 3/7"])
def test_the_indexer_of_the_process_is_told_what_the_words_of_a_question_find(world, shop, doing):
    world.claude(shop, "add retry to the uploader", "done")
    world.claude(shop, "the colour of the header", "blue")
    find(FindRequest("anything"), Engine(world.model, embed_seconds=0.0), shop)
    indexer = Indexer(doing)

    find(FindRequest("retry the uploader"), Engine(SharedEmbedder(world.model, 60, indexer)), shop)

    ((project, wanted),) = indexer.put
    with opened() as store:
        texts = store.texts(wanted)
    assert str(shop) == project.root
    assert any("uploader" in text for text in texts.values())
    assert not any("header" in text for text in texts.values())


def test_a_question_reads_no_longer_than_a_moment_where_an_indexer_does_the_rest(world, shop, monkeypatch):
    monkeypatch.setattr(index_refresh, "SOON_SECONDS", 0.0)
    indexer = Indexer()
    for number in range(3):
        world.claude(shop, f"uploader {number}", "done")
    request = FindRequest("the uploader", agent_type="both")
    beside = Engine(SharedEmbedder(world.model, 60, indexer))

    assert 2 == find(request, beside).as_json()["index"]["unread_logs"]
    assert [""] == indexer.went_on
    alone = Engine(SharedEmbedder(world.model, 60))
    assert find(request, alone).as_json()["index"]["complete"], "where there is none, it does all that time allows"


def test_the_indexer_of_the_process_goes_on_and_without_one_whoever_asks_sees_to_it(world, shop):
    indexer, told = Indexer(), []
    shared = SharedEmbedder(world.model, 60, indexer)
    engine = Engine(shared, embed_seconds=0, unfinished=lambda _: told.append("itself"))
    request = FindRequest("the uploader", agent_type="both")
    world.claude(shop, "the uploader", "done")

    find(request, engine)
    shared.indexer = None
    find(request, engine)

    assert [""] == indexer.went_on
    assert ["itself"] == told
