"""Tests of answers while the index is being embedded: their notices, and the evidence for partly embedded sessions."""

from __future__ import annotations

import pytest

from smart_fork.finding.answer import EmbeddedShares
from smart_fork.finding.evidence import gather
from smart_fork.finding.index_access import opened
from smart_fork.finding.index_refresh import MANY_LOGS, Engine, embedded_shares
from smart_fork.finding.index_status import index_status
from smart_fork.finding.query import Query
from smart_fork.finding.ranking import parts
from smart_fork.finding.request import FindRequest
from tests.smart_fork.searches import find
from tests.smart_fork.world import WordsModel

ASKED = "why does the uploader lose a file"
LONG = "It never tried again. " * 200


def ask(folder):
    """Ask a question without making embeddings."""
    return find(FindRequest(ASKED), Engine(WordsModel(), embed_seconds=0.0), folder).as_json()


@pytest.fixture
def partly(world, shop):
    """Index a session of seven passages and a session of one; embed only the first passages of exchanges."""
    world.claude(shop, ASKED, LONG)
    world.claude(shop, "paint the button", "done")
    with opened() as store:
        ask(shop)
        model = WordsModel()
        store.use_model(model.model, model.dimensions)
        rows = [row for row in store.waiting((), 99) if row[1].startswith("User: ")]
        store.add_vectors([(row, model.embed([text])[0].tobytes()) for row, text in rows])
        yield store


def test_an_answer_and_the_status_say_what_is_covered(world, shop, partly):
    answer = ask(shop)["index"]
    status = index_status().as_json()
    share = int(1000 * 2 / answer["chunks"]) / 1000

    assert (2, False, False) == (answer["embedded"], answer["complete"], status["complete"])
    assert {"first_passages": 1.0, "all_passages": share} == answer["covered"] == status["covered"]


def test_nearly_all_is_not_all_and_of_nothing_all_is_covered(partly):
    counts = partly.counts()
    assert 0.0 < embedded_shares(partly, counts).all_passages < 1.0
    with opened() as store:
        assert EmbeddedShares(1.0, 1.0) == embedded_shares(store, store.counts(store.scope(None, [], automated=False)))


def test_a_passage_without_a_vector_says_nothing_against_its_session(partly):
    vector = WordsModel().embed([ASKED])[0].tobytes()
    query = Query(ASKED, partly.scope(None, ["claude"], automated=False), 5, everywhere=True)
    found = gather(partly, query, [vector], words=True)
    row = next(row for row, session in found.sessions.items() if session.title == ASKED)

    (asked,) = found.phrasings
    assert (1, 1) == (asked.evidence[row].chunks, len(asked.evidence[row].similar))
    assert asked.evidence[row].similar[0] == pytest.approx(parts(asked.evidence, asked.coverage)[row].whole)


@pytest.mark.parametrize(("sessions", "begun"), [(MANY_LOGS - 1, 0), (MANY_LOGS, 1)])
def test_while_many_logs_are_read_the_model_is_loaded(world, shop, sessions, begun):
    class Model(WordsModel):
        begins = 0

        def begin(self):
            Model.begins = 1

    for number in range(sessions):
        world.claude(shop, f"{ASKED} {number}", "done")

    answer = find(FindRequest(ASKED), Engine(Model()), shop).as_json()

    assert (begun, True) == (Model.begins, answer["index"]["complete"])
