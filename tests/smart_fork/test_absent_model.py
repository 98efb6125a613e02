"""A model that is not there is named in the answer, once, and nobody waits for it again."""

from __future__ import annotations

import json

import pytest

from indexer import embedder, state_db
from indexer.default_embedder import configured_embedder
from indexer.embedder import ModelUnavailableError, SentenceTransformerEmbedder
from indexer.shared_embedder import SharedEmbedder
from smart_fork.doctor import run_checks
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.searches import find
from tests.smart_fork.world import World
from tests.support.cases import thorough_except_first

#: The light install looks for no other model.
pytestmark = [pytest.mark.full, pytest.mark.slow, pytest.mark.xdist_group("pytorch")]

RETRY = "add retry with backoff to the uploader"


@pytest.fixture(params=thorough_except_first(["/no/such/folder", "~/no-such-folder", "nobody/has-this-model"]))
def absent(request, monkeypatch) -> str:
    monkeypatch.setenv("SMART_FORK_MODEL", request.param)
    return request.param


@pytest.fixture
def loads(monkeypatch) -> list[str]:
    """The models that were looked for, each time that takes long."""
    looked_for = []
    really = SentenceTransformerEmbedder._from_disk

    def counted(self: SentenceTransformerEmbedder):
        looked_for.append(self._name)
        return really(self)

    monkeypatch.setattr(SentenceTransformerEmbedder, "_from_disk", counted)
    return looked_for


def asked(world: World, shop, embedder=None) -> dict:
    return find(FindRequest(RETRY), Engine(embedder or configured_embedder()), shop).as_json()


def named(answer: dict, model: str) -> bool:
    return json.dumps(answer).count(model) == 1 and model in answer["search_error"]


def test_it_is_named_once_and_not_looked_for_again(world, shop, absent, loads):
    knows = world.claude(shop, RETRY, "Done")

    first, *later = (asked(world, shop) for _ in range(4))  # each as another process would

    assert [absent] == loads
    for answer in (first, *later):
        assert knows == answer["results"][0]["session_id"]
        assert "lexical" == answer["search_mode"]
        assert named(answer, absent), answer["search_error"]


def test_a_server_names_it_and_does_not_wait_again(world, shop, absent, loads):
    world.claude(shop, RETRY, "Done")
    model = SharedEmbedder(configured_embedder(), 30.0)

    answers = [asked(world, shop, model), asked(world, shop, model)]
    another = SharedEmbedder(configured_embedder(), 30.0)
    answers.append(asked(world, shop, another))

    assert [absent] == loads
    assert all(named(answer, absent) for answer in answers)


def test_an_index_of_another_model_is_said_with_the_one_that_is_not_there(world, shop, absent):
    world.claude(shop, RETRY, "Done")
    world.find(RETRY, shop)

    answer = asked(world, shop)

    assert "the index is embedded with words, not with" in answer["search_error"]
    assert "is not there" in answer["search_error"] or "neither found nor downloaded" in answer["search_error"]


def test_other_settings_another_model_or_an_hour_and_it_is_looked_for_again(world, shop, absent, loads, monkeypatch):
    def again() -> int:
        with pytest.raises(ModelUnavailableError):
            configured_embedder().embed(["hi"])
        return len(loads)

    assert (1, 1) == (again(), again())
    monkeypatch.setenv("HF_HOME", "/elsewhere")
    assert (2, 2) == (again(), again())
    monkeypatch.setenv("SMART_FORK_MODEL", "/another/one")
    assert (3, 3) == (again(), again())
    state_db.keep("missing model", state_db.fact("missing model") | {"at": 0})
    assert (4, 4) == (again(), again())
    state_db.path().write_bytes(b"this is no database" * 1000)
    assert 5 == again()


def test_the_doctor_looks_again_and_names_it(home, absent, loads):
    embedder.note_absence(configured_embedder().model, "an old reason")

    (check,) = (check for check in run_checks() if check.name == "model")

    assert [absent] == loads
    assert not check.ok
    assert absent in check.detail


def test_one_that_can_be_loaded_again_is_not_kept_from_it(home, absent, monkeypatch):
    embedder.note_absence(configured_embedder().model, "why")
    embedder.forget_absence()
    monkeypatch.setattr(SentenceTransformerEmbedder, "_from_disk", lambda _: "loaded")

    assert "loaded" == SentenceTransformerEmbedder(absent)._load()
    assert state_db.fact("missing model") is None
