"""Tests with the real model: meaning finds sessions without a common word, and nothing is found if nothing fits."""

from __future__ import annotations

import pytest

from indexer.default_embedder import configured_embedder
from smart_fork.finding.index_refresh import Engine
from smart_fork.finding.query import words_of
from smart_fork.finding.ranking import LIKELY_SCORE
from smart_fork.finding.request import FindRequest
from tests.smart_fork.forks import choosing
from tests.smart_fork.searches import find, find_and_fork
from tests.smart_fork.world import World
from tests.support.cases import parametrize_subtests

pytestmark = pytest.mark.slow

KNOWS = (
    "people cannot sign in once their password has expired",
    "Whoever has an expired password is asked for a new one, and is signed in with it.",
)
OTHERS = (
    ("make the product page work on small screens", "The pictures are one column below 600 pixels now."),
    ("translate the invoices into French", "All labels of invoice.html have French texts."),
    ("why do the database tests take so long?", "Each made its own schema; they share one now."),
    ("rename the logo file", "It is brand.svg, and the three pages that show it say so."),
)
MEANT = "authentication problem: old credentials lock out accounts"
NOTHING = "which white wine goes well with grilled asparagus"


@pytest.fixture
def engine(world: World, shop) -> Engine:
    """Return an engine with the packaged model."""
    for said in (*OTHERS, KNOWS):
        world.claude(shop, *said)
    world.model = configured_embedder()  # type: ignore[assignment]
    return Engine(world.model)


def test_meaning_finds_what_no_word_does(world, shop, engine):
    everything = " ".join(KNOWS).lower()
    assert not [word for word in words_of(MEANT) if word[:4] in everything], "not one word, nor its stem, is in it"

    best, second = world.find(MEANT, shop)["results"][:2]

    assert (KNOWS[0], []) == (best["title"], best["match"]["words"])
    assert best["score"] > LIKELY_SCORE
    assert best["score"] > 2 * second["score"]


def test_where_nothing_fits_it_is_right_that_nothing_is_found(world, shop, engine, monkeypatch):
    monkeypatch.setattr("smart_fork.forking.plan.fork_session", lambda *_, **__: pytest.fail("nothing fits"))
    request = FindRequest(NOTHING)

    scores = [hit["score"] for hit in world.find(NOTHING, shop)["results"]]
    answer = find_and_fork(request, engine, choosing(auto_fork=True), shop).as_json()

    assert max(scores) < LIKELY_SCORE
    assert [] == world.ids(NOTHING, shop, min_score=LIKELY_SCORE)
    assert "forked_session" not in answer
    assert answer["error"].startswith("Nothing was forked")


@parametrize_subtests(
    "question",
    [
        "exprieed passwrod canot sgin",
        "Anmeldung nach abgelaufenem Kennwort unmöglich",
        "iniciar sesión con contraseña caducada",
        "密码过期后无法登录",
    ],
)
def test_of_misspelled_words_and_other_languages_no_chance_is_known(world, shop, engine, question):
    assert find(FindRequest(question), engine, shop).language_notice


@parametrize_subtests("question", [NOTHING, "integrate subscriptions with monthly upgrades", "E0451", "frobnicate"])
def test_of_a_question_in_english_that_nothing_answers_the_chance_is_known(world, shop, engine, question):
    assert not find(FindRequest(question), engine, shop).language_notice
