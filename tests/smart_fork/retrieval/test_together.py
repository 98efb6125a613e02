"""Many questions at once: one look at the logs, and nobody does what the indexer is doing."""

from __future__ import annotations

import threading

import pytest

from indexer.freshness import IndexBusyError
from smart_fork.retrieval import together
from smart_fork.retrieval.finding import Engine, Request, find
from smart_fork.retrieval.together import HOLDS_SECONDS, Together


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_look_that_leaves_nothing_holds_for_a_moment():
    clock, looks = Clock(), []
    shared = Together(lambda: "", clock)
    for clock.now in (0.0, HOLDS_SECONDS / 2, HOLDS_SECONDS, HOLDS_SECONDS * 1.5):
        assert 0 == shared.left(lambda: looks.append(clock.now) or 0)

    assert [0.0, HOLDS_SECONDS] == looks


def test_a_look_that_leaves_something_or_fails_holds_for_nobody():
    shared, looks = Together(lambda: "", Clock()), []

    def fail() -> int:
        looks.append("failed")
        raise OSError

    assert 3 == shared.left(lambda: looks.append("left 3") or 3)
    with pytest.raises(OSError):
        shared.left(fail)
    assert 0 == shared.left(lambda: looks.append("all") or 0)
    assert ["left 3", "failed", "all"] == looks


def test_a_question_does_not_wait_long_for_the_look_of_another(monkeypatch):
    monkeypatch.setattr(together, "LOCK_SECONDS", 0.01)
    shared, looking, done = Together(lambda: ""), threading.Event(), threading.Event()
    other = threading.Thread(target=shared.left, args=(lambda: looking.set() or (done.wait() and 0),))
    other.start()
    looking.wait()
    with pytest.raises(IndexBusyError):
        shared.left(lambda: 0)
    done.set()
    other.join()


def test_a_question_does_nothing_that_the_indexer_is_doing(world, shop):
    """F-180: while logs are read it is answered with what there is, while vectors are made with the newest words."""
    clock, stage = Clock(), ["reading 3/7"]
    engine = Engine(world.model, together=Together(lambda: stage[0], clock))
    request = Request("add retry to the uploader", agent_type="both", all_projects=True)
    world.claude(shop, "add retry to the uploader", "done")
    assert find(request, engine)["index"]["complete"], "where there is nothing at all, a question reads"

    world.claude(shop, "the downloader", "done as well")
    clock.now += 2 * HOLDS_SECONDS
    answer = find(request, engine)
    assert (1, None) == (answer["index"]["sessions"], answer["index"]["unread_logs"])
    assert answer["results"]

    stage[0] = "embedding 1/9"
    state = find(request, engine)["index"]
    assert (2, 0) == (state["sessions"], state["unread_logs"])
    assert state["embedded"] < state["chunks"]

    stage[0], clock.now = "", clock.now + 2 * HOLDS_SECONDS
    assert find(request, engine)["index"]["complete"]
