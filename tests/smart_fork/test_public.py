"""What a script author uses."""

from __future__ import annotations

import pytest

import smart_fork
from smart_fork import public
from smart_fork.errors import SmartForkError
from tests.smart_fork.world import WordsModel

RETRY = "add retry with backoff to the uploader"


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setattr("indexer.models.configured_embedder", WordsModel)
    public._embedder.cache_clear()
    yield
    public._embedder.cache_clear()


def test_find_gives_the_sessions_best_first(world, shop, monkeypatch):
    world.claude(shop, "rename the logo", "done")
    knows = world.codex(shop, RETRY, "done")
    monkeypatch.chdir(shop)

    assert smart_fork.find(RETRY)[0]["session_id"] == knows
    assert len(smart_fork.find(RETRY, project=str(shop), limit=1, agent="claude")) == 1


def test_a_session_is_branched(world, shop):
    session_id = world.claude(shop, RETRY, "done")

    made = smart_fork.branch(session_id, at=1, title="mine")

    assert ("mine (Branch)", session_id) == (made["title"], made["parent"]["session_id"])
    assert world.log_of(made["session_id"]).is_file()


def test_the_model_is_loaded_once_for_all_questions(world, shop):
    assert public._embedder() is public._embedder()


def test_what_goes_wrong_is_an_error_of_ours(world, shop, monkeypatch):
    with pytest.raises(smart_fork.Usage, match="intent is required"):
        smart_fork.find(" ", project=str(shop))
    monkeypatch.setenv("SMART_FORK_INDEXING", "false")
    with pytest.raises(smart_fork.IndexUnavailable, match="switched off") as caught:
        smart_fork.find(RETRY, project=str(shop))
    assert caught.value.hint


def test_every_error_is_public_and_has_an_exit_code():
    errors = [error for error in SmartForkError.__subclasses__() if error.__module__ == "smart_fork.errors"]

    assert {error.__name__ for error in errors} <= set(smart_fork.__all__)
    assert {error.__name__: error.exit_code for error in errors if error.exit_code != 1} == {"Usage": 2, "NotFound": 3}
