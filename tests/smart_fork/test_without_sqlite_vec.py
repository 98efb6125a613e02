"""Where sqlite-vec cannot be loaded, words are searched, and what is wrong is said with the next step."""

from __future__ import annotations

import json
from contextlib import closing

import apsw
import pytest

from indexer.safe_files import index_db
from indexer.store import schema
from smart_fork.doctor import run_checks
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.request import FindRequest
from tests.smart_fork.commands import command_model, run  # noqa: F401 - fixtures
from tests.smart_fork.searches import find

RETRY = "add retry with backoff to the uploader"


@pytest.fixture
def absent(monkeypatch, tmp_path):
    """From now on."""
    return lambda: monkeypatch.setattr(schema, "extension_path", lambda: tmp_path / "vec0")


def asked(world, shop) -> dict:
    return find(FindRequest(RETRY), Engine(world.model), shop).as_json()


@pytest.mark.parametrize("embedded", [True, False])
def test_a_question_is_answered_by_words_and_says_why(world, shop, absent, embedded):
    knows = world.claude(shop, RETRY, "Done")
    if embedded:
        assert "hybrid" == asked(world, shop)["search_mode"]
    absent()
    for answer in (asked(world, shop), asked(world, shop)):
        assert knows == answer["results"][0]["session_id"]
        assert "lexical" == answer["search_mode"]
        assert "sqlite-vec cannot be loaded" in answer["search_error"]


def test_no_passage_is_embedded_in_vain(world, shop, absent):
    world.claude(shop, RETRY, "Done")
    asked(world, shop)
    world.claude(shop, "draw the map", "drawn")
    absent()
    taken = []
    world.model.embed = taken.append

    asked(world, shop)
    assert [] == taken


def test_the_doctor_names_the_next_step(world, shop, absent):
    (well,) = (check for check in run_checks(world.model) if check.name == "vectors")
    absent()
    (check,) = (check for check in run_checks(world.model) if check.name == "vectors")

    assert (True, False) == (well.ok, check.ok)
    assert "sqlite-vec v0" in well.detail
    assert "cannot be loaded" in check.detail
    assert "Reinstall" in check.next_step


def test_an_index_run_says_that_words_are_indexed_and_what_to_do(world, shop, absent, run):  # noqa: F811
    world.claude(shop, RETRY, "Done")
    absent()
    done = run("index", "run")

    assert 1 == done.code
    assert "Words are indexed, embeddings are not: sqlite-vec cannot be loaded" in done.err
    assert "smart-fork doctor" in done.err
    assert 1 == json.loads(run("index", "status", "--json").out)["sessions"]


def test_damage_of_its_tables_is_noticed_by_a_question_and_the_index_is_built_anew(world, shop):
    knows = world.claude(shop, RETRY, "Done")
    asked(world, shop)
    with closing(apsw.Connection(str(index_db()))) as db:
        db.execute("UPDATE vectors_chunks SET validity = x'00'")
    answers = [asked(world, shop) for _ in range(3)]

    assert "The index was damaged" in json.dumps(answers[0])
    assert (knows, "hybrid") == (answers[-1]["results"][0]["session_id"], answers[-1]["search_mode"])
    assert 1 == len(list(index_db().parent.glob("index.db.corrupt-*")))
