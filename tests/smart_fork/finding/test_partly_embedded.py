"""Tests while embeddings are missing: sessions without them are not ranked lower, and a question's matches
come first.
"""

from __future__ import annotations

import pytest

from indexer.log_changes import Report
from indexer.pipeline import embed_waiting
from smart_fork.agents.log_readers import READERS
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.searches import find
from tests.smart_fork.world import WordsModel

ASKED = "Add retry with exponential backoff to the uploader"
DONE = "The uploader retries five times, each time a little later."


@pytest.fixture(autouse=True)
def small_batches(monkeypatch):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 2)


def ask(shop, model=None, **how):
    return find(FindRequest(ASKED), Engine(model or WordsModel(), **how), shop).as_json()


def embedded_batch(model) -> None:
    with opened() as store:
        embed_waiting(store, model, Report(), first=store.scope(None, READERS.names, automated=True), deadline=0.0)


def test_a_session_without_vectors_is_not_held_against_one_that_has_them(world, shop, monkeypatch):
    monkeypatch.setattr("indexer.pipeline.EMBED_ROWS", 1)
    knows = world.claude(
        shop, "Retry with exponential backoff in the uploader", DONE + " Nothing else of it changes." * 20
    )
    near = world.claude(shop, "To add the uploader", "to the uploader with exponential")
    ask(shop, embed_seconds=0)
    embedded_batch(WordsModel())

    answer = ask(shop, embed_seconds=0)

    assert answer["index"]["embedded"] < answer["index"]["chunks"]
    assert [knows, near] == [hit["session_id"] for hit in answer["results"]]


def test_what_the_words_find_gets_its_vectors_first(world, shop):
    knows = world.claude(shop, "Add retry to the uploader", DONE)
    for number in range(12):
        world.claude(shop, f"Draw logo {number} of the shop", "The logo is drawn, in blue and in green.")
    model = WordsModel()

    answer = ask(shop, model, embed_seconds=1e-9)

    assert 2 == answer["index"]["embedded"]
    assert any("Add retry" in text for text in model.asked[:3])
    assert (knows, True) == (answer["results"][0]["session_id"], answer["results"][0]["match"]["similarity"] > 0)


def test_what_the_words_find_comes_first_where_the_rest_goes_on_in_the_background(world, shop):
    knows = world.claude(shop, "Add retry to the uploader", DONE)
    for number in range(12):
        world.claude(shop, f"Draw logo {number} of the shop", "The logo is drawn, in blue and in green.")
    model, left = WordsModel(), []

    answer = ask(shop, model, embed_seconds=1e-9, unfinished=left.append)

    assert 1 == len(left)
    assert any("Add retry" in text for text in model.asked[:3])
    assert knows == answer["results"][0]["session_id"]


class _OtherModel(WordsModel):
    model = "other"


class _NewerModel(WordsModel):
    model = "words@2"


def test_a_question_leaves_the_vectors_of_another_model_as_they_are(world, shop):
    """D14."""
    knows = world.claude(shop, ASKED, DONE)
    ask(shop)
    world.claude(shop, "draw the logo", "It is drawn.")
    other = ask(shop, _OtherModel(), unfinished=lambda _: pytest.fail("nothing is to be done in the background"))

    assert ("lexical", knows) == (other["search_mode"], other["results"][0]["session_id"])
    assert "embedded with words, not with other: `smart-fork index run` embeds it again" in other["search_error"]
    assert "hybrid" == ask(shop)["search_mode"]
    assert "hybrid" == ask(shop, _NewerModel())["search_mode"]


def test_only_a_run_that_a_person_starts_replaces_the_vectors_of_another_model(world, shop, run, monkeypatch):  # noqa: F811
    world.claude(shop, ASKED, DONE)
    ask(shop)
    monkeypatch.setattr("indexer.default_embedder.configured_embedder", lambda **_: _OtherModel())
    for arguments, model in ((("--if-idle",), "words"), ((), "other")):
        run("index", "run", *arguments)
        with opened() as store:
            assert (model, 0) == (store.meta("model"), store.counts().chunks - store.counts().embedded)
