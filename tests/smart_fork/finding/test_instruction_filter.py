"""Tests that instructions on how to work are left out of a question."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexer.default_embedder import LightEmbedder
from smart_fork.finding.query import doubt_of, is_prompt, unnamed
from smart_fork.finding.question_instructions import without_instructions
from smart_fork.finding.ranking import MAX_UNNAMED_CHANCE

QUESTION = "the sitemap lists pages of drafts that nobody has published"
#: None of them is one of those that the numbers were made of.
STANDING = (
    "You are a meticulous colleague with an eye for detail. Stick to the style of the surrounding code. Keep commits "
    "small and focused. Never invent an interface, look it up. When everything passes, sum up what you have done."
)


@pytest.fixture(scope="module")
def embedder() -> LightEmbedder:
    return LightEmbedder()


@pytest.mark.parametrize("text", [f"{QUESTION}. {STANDING}", f"{STANDING} {QUESTION}"], ids=["behind", "before"])
def test_standing_instructions_are_left_out_wherever_they_stand(embedder, text):
    left = without_instructions(text, embedder)

    assert QUESTION in left
    assert len(left.split()) < len(QUESTION.split()) + len(STANDING.split()) / 4


def test_of_a_text_of_instructions_alone_what_is_least_like_one_is_asked(embedder):
    left = without_instructions(STANDING, embedder)

    assert 0 < len(left) < len(STANDING)
    assert all(f"{sentence}." in STANDING for sentence in left.removesuffix(".").split(". "))


@pytest.mark.parametrize("text", ["{0} {1}", "{1} {0}"])
def test_without_punctuation_the_question_is_found_between_words_on_how_to_work(embedder, text):
    standing = STANDING.lower().replace(".", "").replace(",", "")
    question = "the uploader loses its place in the queue when two workers pick the same chunk after a restart"

    left = without_instructions(text.format(standing, question), embedder).split()

    assert len(set(question.split()) & set(left)) > 0.7 * len(set(question.split()))
    assert len(left) < 2 * len(question.split())


def test_an_instruction_that_names_code_is_kept(embedder):
    named = "Keep to the conventions of CODE_STYLE.md and write small commits."

    assert named in without_instructions(f"{named} {STANDING} {QUESTION}", embedder)


def test_of_another_model_nothing_is_left_out():
    class Other:
        model, dimensions = "other@1", 384

    assert without_instructions(f"{STANDING} {QUESTION}", Other()) == f"{STANDING} {QUESTION}"


@given(words=st.lists(st.sampled_from([*STANDING.split(), *QUESTION.split(), "a,", "b.", "\n"]), max_size=120))
def test_what_is_left_is_words_of_the_text_in_their_order(words):
    text = " ".join(words)
    rest = iter(text.split())

    assert all(word in rest for word in without_instructions(text, LightEmbedder()).split())


def test_a_short_prompt_to_an_agent_is_doubted_and_words_to_search_with_are_not():
    prompt, words = "Please add a sitemap for the help pages.", "sitemap for the help pages"

    assert is_prompt(prompt)
    assert not is_prompt(words)
    assert doubt_of(words) == 0 < doubt_of(prompt)


@given(size=st.integers(1, 400))
def test_a_prompt_is_doubted_less_the_longer_it_is(size):
    prompt = "Please add a sitemap."

    assert 0 <= doubt_of(prompt, size + 1) <= doubt_of(prompt, size)
    assert math.isclose(doubt_of(prompt, size) - doubt_of(prompt, size + 1), 0, abs_tol=0.03)


@pytest.mark.parametrize(
    ("text", "nothing"),
    [
        ("Please fix my failing tests", True),
        ("continue", True),
        ("can you fix the linting error", True),
        ("fix the failing sitemap test", False),
        ("修复失败的测试", False),
        ("q", True),
        ("167", True),
        ("what model are you?", True),
        ("/specify --help", True),
        ("/specify a sitemap", False),
        ("/etc/hosts", False),
    ],
)
def test_a_prompt_of_everyday_words_names_no_work(text, nothing):
    assert bool(unnamed(text)) is nothing


def test_a_prompt_that_names_no_work_is_no_more_than_possible(world, shop):
    world.claude(shop, "Please fix my failing tests", "Fixed.")

    named, nothing = (
        world.find(f"fix my failing {what}tests", shop)["results"][0]["score"] for what in ("sitemap ", "")
    )

    assert nothing <= MAX_UNNAMED_CHANCE
    assert named != nothing
