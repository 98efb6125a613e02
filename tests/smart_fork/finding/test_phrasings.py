"""Tests of questions with several phrasings: which are valid, how they are asked, and what they find."""

from __future__ import annotations

import json

import pytest

import smart_fork
from smart_fork import public
from smart_fork.errors import Usage
from smart_fork.finding.evidence import gather
from smart_fork.finding.index_access import opened
from smart_fork.finding.query import Query
from smart_fork.finding.ranking import parts
from smart_fork.finding.request import MAX_PHRASING_CHARACTERS, MAX_PHRASINGS, FindRequest, check_also, further
from smart_fork.finding.search import embedded
from tests.smart_fork.world import BrokenModel, WordsModel
from tests.support.cases import parametrize_subtests, thorough_except_first

RETRY = "add retry with backoff to the uploader"
GERMAN = "Wiederholungsversuche beim Hochladen einbauen"


@parametrize_subtests(
    ("also", "told"),
    [
        ("one text", "also must be a list of texts, not"),
        (b"bytes", "also must be a list of texts, not"),
        (3, "also must be a list of texts, not 3"),
        ({"a": "b"}, "also must be a list of texts, not"),
        (["fine", None], "also must be a list of texts; number 2 is"),
        ([["nested"]], "also must be a list of texts; number 1 is"),
        (["x"] * 1000, f"also takes at most {MAX_PHRASINGS} texts, not 1000"),
        ([""] * (MAX_PHRASINGS + 1), f"also takes at most {MAX_PHRASINGS} texts, not {MAX_PHRASINGS + 1}"),
        (["fine", "x" * (MAX_PHRASING_CHARACTERS + 1)], f"number 2 has {MAX_PHRASING_CHARACTERS + 1}"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_read(also, told):
    with pytest.raises(Usage) as error:
        FindRequest(RETRY, also=also).checked()

    assert told in error.value.message
    assert len(error.value.message) < 300


@parametrize_subtests("also", [None, [], (), ["x" * MAX_PHRASING_CHARACTERS] * MAX_PHRASINGS, ["\0\ud800", "  "]])
def test_none_and_lists_of_texts_can_be_asked(also):
    check_also(also)


def test_blank_ones_and_repetitions_are_no_further_phrasings():
    given = ["", " \n\t", "\0", RETRY, f"  {RETRY.upper()} ", "retry uploads", "Retry  Uploads", "backoff.py", "\ud800"]

    assert further(RETRY, given) == ("retry uploads", "backoff.py", "?")
    assert further(RETRY, None) == further(RETRY, []) == ()


def test_a_question_in_another_language_is_found_by_the_same_in_the_sessions(world, shop):
    knows = world.claude(shop, RETRY, "The uploader retries with exponential backoff")
    for number in range(4):
        world.claude(shop, f"draw map number {number}", "drawn")

    alone = world.find(GERMAN, shop)
    answer = world.find(GERMAN, shop, also=["retry failed uploads with backoff", "uploader backoff"])

    assert alone["results"][0]["score"] < 0.5 < answer["results"][0]["score"]
    assert answer["results"][0]["session_id"] == knows
    assert answer["query"] == GERMAN
    assert answer["also"] == ["retry failed uploads with backoff", "uploader backoff"]
    assert "also" not in alone


def test_phrasings_that_count_nothing_change_nothing(world, shop):
    world.claude(shop, RETRY, "done")
    world.claude(shop, "draw a map of the uploader", "drawn")

    assert world.find(RETRY, shop) == world.find(RETRY, shop, also=["", RETRY.upper(), "  "])


def test_the_order_of_the_phrasings_does_not_matter(world, shop):
    for text in (RETRY, "draw the map", "upload the map again after a failure", "backoff for the mailer"):
        world.claude(shop, text, "done")
    also = ["retry uploads", "the uploader fails", "backoff"]

    scores = [
        [(hit["session_id"], hit["score"]) for hit in world.find(RETRY, shop, also=given)["results"]]
        for given in (also, also[::-1])
    ]

    assert scores[0] == scores[1]


def test_the_question_and_its_shortest_other_sentence_are_embedded_in_one_batch(world, shop):
    world.claude(shop, RETRY, "done")
    world.find(RETRY, shop)
    batches = []
    embed = world.model.embed
    world.model.embed = lambda texts: batches.append(list(texts)) or embed(texts)

    world.find(RETRY, shop, also=["uploads fail because of the network", "backoff", "uploads that fail"])

    assert batches == [[RETRY, "uploads that fail"]]


def test_each_word_is_looked_for_once_however_many_phrasings_have_it(world, shop, monkeypatch):
    world.claude(shop, RETRY, "done")
    world.find(RETRY, shop)
    asked: list[tuple[str, str]] = []
    with opened() as store:
        own = type(store).word_scores
        monkeypatch.setattr(
            type(store),
            "word_scores",
            lambda self, table, terms, *more: (
                asked.extend((table, term) for term in terms) or own(self, table, terms, *more)
            ),
        )
        scans = []
        scan = type(store).similarities
        monkeypatch.setattr(
            type(store),
            "similarities",
            lambda self, vectors, scope: scans.append(len(vectors)) or scan(self, vectors, scope),
        )
        everything = store.scope(None, ("claude",), automated=False)
        query = Query(RETRY, everything, 5, also=("retry the uploader", "uploader backoff retry"))
        gather(store, query, embedded(WordsModel(), query.meanings), words=True)

    assert scans == [2]
    assert len(asked) == len(set(asked))
    assert {term for _, term in asked} == {'"add"', '"retry"', '"backoff"', '"uploader"'}


def test_what_each_phrasing_finds_is_what_it_finds_alone(world, shop):
    for text in (
        RETRY,
        "draw the map of retries",
        "upload the map again",
        "backoff for the mailer",
        "the retry of maps",
    ):
        world.claude(shop, text, f"{text}: done in uploader_map.py")
    world.find(RETRY, shop)
    phrasings = (RETRY, "uploader map", "draw backoff")
    with opened() as store:
        everything = store.scope(None, ("claude",), automated=False)

        def found(intent: str, *also: str) -> list[dict]:
            query = Query(intent, everything, 5, everywhere=True, also=also)
            gathered = gather(store, query, embedded(WordsModel(), query.meanings), words=True)
            return [parts(one.evidence, one.coverage) for one in gathered.phrasings]

        together = found(*phrasings)
        for number, phrasing in enumerate(phrasings):
            (alone,) = found(phrasing)
            known = 6 if number in (0, 1) else 4  # of a longer one only the words
            assert {row: pytest.approx(tuple(one)[:known]) for row, one in alone.items()} == {
                row: tuple(together[number][row])[:known] for row in alone
            }
            assert all(tuple(one)[known:6] == (0, 0)[: 6 - known] for one in together[number].values())


def test_what_only_one_phrasing_finds_is_known_to_all(world, shop, monkeypatch):
    for word in ("harbour", "mailer", "uploader", "compass", "lantern"):
        world.claude(shop, f"paint the {word}", f"the {word} is painted")
    world.find(RETRY, shop)
    monkeypatch.setattr("smart_fork.finding.evidence.NEAREST_CHUNKS", 2)
    monkeypatch.setattr("smart_fork.finding.evidence.WORD_CHUNKS", 1)

    answer = world.find("harbour mailer compass", shop, also=["lantern", "harbour"], limit=5)

    assert answer["search_mode"] == "hybrid"
    assert "search_error" not in answer
    assert {"harbour", "mailer", "compass", "lantern"} <= {hit["title"].split()[-1] for hit in answer["results"]}


def test_explain_says_what_each_phrasing_found(world, shop):
    world.claude(shop, RETRY, "done")

    answer = world.find("qqq zzz", shop, also=["retry the uploader", "nothing of it"], explain=True)
    why = answer["results"][0]["explain"]

    assert [one["text"] for one in why["phrasings"]] == ["qqq zzz", "retry the uploader", "nothing of it"]
    assert [one["words"] for one in why["phrasings"]] == [[], ["retry", "uploader"], []]
    assert why["phrasings"][1]["points"]["session_words"] > 0 == why["phrasings"][0]["points"]["session_words"]
    for part, points in why["points"].items():
        assert points == pytest.approx(sum(one["points"][part] for one in why["phrasings"]), abs=0.02)
    assert "phrasings" not in world.find(RETRY, shop, explain=True)["results"][0]["explain"]


@pytest.mark.parametrize(
    "hostile",
    thorough_except_first(['" OR part: p1 NOT "', "NEAR(a b)*", "'; DROP TABLE sessions; --", "-" * 300, "\x1b[2J"]),
)
def test_hostile_phrasings_are_words_like_any_other(world, shop, hostile):
    knows = world.claude(shop, RETRY, "done")

    answer = world.find(RETRY, shop, also=[hostile], explain=True)

    assert answer["search_mode"] == "hybrid"
    assert [knows] == [hit["session_id"] for hit in answer["results"]]
    assert "\x1b" not in answer["results"][0]["explain"]["phrasings"][1]["text"]


def test_as_many_and_as_long_as_may_be_are_answered(world, shop):
    knows = world.claude(shop, RETRY, "done")
    words = [
        " ".join(f"w{number}x{word}" for word in range(60))[:MAX_PHRASING_CHARACTERS] for number in range(MAX_PHRASINGS)
    ]

    answer = world.find(" ".join(f"word{number}" for number in range(900)) + RETRY, shop, also=[*words[1:], RETRY])

    assert answer["search_mode"] == "hybrid"
    assert [knows] == [hit["session_id"] for hit in answer["results"]]


def test_without_a_model_the_words_of_all_phrasings_are_searched(world, shop):
    knows = world.claude(shop, RETRY, "done")
    world.claude(shop, "draw the map", "drawn")
    world.model = BrokenModel()

    answer = world.find(GERMAN, shop, also=["retry uploader"])

    assert answer["search_mode"] == "lexical"
    assert answer["results"][0]["session_id"] == knows


def test_scripts_may_ask_in_other_words(world, shop, monkeypatch):
    knows = world.claude(shop, RETRY, "done")
    monkeypatch.setattr(public, "_embedder", lambda: world.model)

    assert [knows] == [hit.session_id for hit in smart_fork.find(GERMAN, project=str(shop), also=["retry uploader"])]
    with pytest.raises(Usage):
        smart_fork.find(RETRY, project=str(shop), also="retry uploader")


def test_secrets_of_the_question_are_masked_in_what_the_answer_repeats_of_it(world, shop):
    world.claude(shop, RETRY, "done")
    secret = "postgres://app:kX7mQ2W9pL4@db.internal/shop"

    answer = world.find(f"connect to {secret}", shop, also=[f"why does {secret} fail"])

    assert "kX7mQ2W9pL4" not in json.dumps(answer)
    assert ("connect to postgres://", "why does postgres://") == (answer["query"][:22], answer["also"][0][:20])
