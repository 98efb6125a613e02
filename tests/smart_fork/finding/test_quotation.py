"""Tests of quotations: the matching sentence of a passage, and its speaker."""

from __future__ import annotations

import json

import pytest

from indexer.store.base import Placement
from smart_fork.finding.candidates import Candidate
from smart_fork.finding.result_snippets import quotations, snippet, tidied
from tests.support.cases import parametrize_subtests

TEXT = "User: please mend the uploader\nIt fails on Mondays.\nI looked at it. The retry had no backoff.\n\nNow it waits.\nrun pytest -q"
VOICES = ((TEXT.index("I looked"), "assistant"), (TEXT.index("run"), "action"))


def hit(text: str = TEXT, *asked: str, role: str = "user", voices: object = VOICES) -> Candidate:
    place = Placement(1, 0, 1, 0, "m", role, 0, None, 10)
    return Candidate(None, 0.9, place, text, (), None, (), None, asked=asked, voices=voices)  # type: ignore[arg-type]


def quoted(one: Candidate, limit: int = 500, nearness: object = None) -> tuple[str | None, str]:
    (found,) = quotations([one], limit, nearness)  # type: ignore[arg-type]
    return found.said_by, found.text


@parametrize_subtests(
    ("asked", "by", "text"),
    [
        (["uploader"], "user", "please mend the uploader\nIt fails on Mondays."),
        (["mondays"], "user", "It fails on Mondays."),
        (["retry", "backoff"], "assistant", "The retry had no backoff.\nNow it waits."),
        (["pytest"], "assistant", "run pytest -q"),
        ([], "user", "please mend the uploader\nIt fails on Mondays."),
    ],
)
def test_the_sentence_that_matched_is_quoted_with_who_said_it(asked, by, text):
    assert (by, text) == quoted(hit(TEXT, *asked))


def test_where_no_word_matches_the_sentence_nearest_in_meaning_is_quoted():
    def near(texts: list[str]) -> list[float]:
        return [float("waits" in text) for text in texts]

    assert ("assistant", "Now it waits.") == quoted(hit(TEXT, "exponential"), nearness=near)


def test_what_was_done_is_compared_in_meaning_only_where_nobody_says_anything():
    asked: list[str] = []

    def near(texts: list[str]) -> list[float]:
        asked.extend(texts)
        return [float("pytest" in text) for text in texts]

    said = quoted(hit("User: mend it.\nrun pytest -q", "exponential", voices=((15, "action"),)), nearness=near)
    assert (["mend it."], ("user", "mend it.")) == (asked, said)

    asked.clear()
    done = hit("run ruff\nrun pytest -q", "exponential", voices=((0, "action"),))
    assert ("assistant", "run pytest -q") == quoted(done, nearness=near)
    assert ["run ruff", "run pytest -q"] == asked


def test_meaning_is_not_asked_where_words_match():
    def never(texts: list[str]) -> list[float]:
        raise AssertionError(texts)

    assert "assistant" == quoted(hit(TEXT, "backoff"), nearness=never)[0]


def test_meaning_is_asked_once_for_few_sentences_of_few_hits():
    asked: list[int] = []

    def near(texts: list[str]) -> list[float]:
        asked.append(len(texts))
        return [0.0] * len(texts)

    many = [hit("One. Two. Three. " * 40, "nothing", voices=()) for _ in range(20)]
    assert 20 == len(quotations(many, 120, near))
    assert asked == [10]


def test_of_an_index_that_does_not_know_who_goes_on_nobody_is_named():
    old = hit(TEXT, "backoff", voices=None)

    assert (None, "The retry had no backoff.\nNow it waits.\nrun pytest -q") == quoted(old)
    assert "user" == quoted(hit(TEXT, "uploader", voices=None))[0]
    assert "assistant" == quoted(hit("The retry had no backoff.", "retry", role="assistant", voices=None))[0]


@pytest.mark.parametrize("text", ["", "## \n\n---\n```", "User: "])
def test_a_passage_of_marks_alone_gives_nothing(text):
    assert (None, "") == quoted(hit(text, "retry", voices=()))


SHOWN = [
    ("## Plan\n\n##\n\nfix the retry", "Plan\nfix the retry"),
    ("a\n\n\n\nb", "a\nb"),
    ("```python\nretry()\n```\ndone", "retry()\ndone"),
    ("| a | b |\n|---|---|\n| 1 | 2 |", "| a | b |\n| 1 | 2 |"),
    ("one\n***\n- \n> \ntwo", "one\ntwo"),
    ("# install first\nrun it", "# install first\nrun it"),
    ("\x1b[31mred\x1b[0m\n\u202eevil", "[31mred[0m\nevil"),
]


@parametrize_subtests(("text", "expected"), SHOWN)
def test_what_is_shown_has_no_blank_lines_and_no_bare_marks(text, expected):
    assert expected == tidied(text)


def test_a_very_long_sentence_is_shown_around_its_words():
    text = "lorem ipsum " * 200 + "the uploader retries with backoff " + "dolor sit " * 200
    found = snippet(tidied("First. " + text), ["uploader", "backoff"], 200)

    assert "uploader retries with backoff" in found
    assert len(found) <= 200
    assert (found[0], found[-1]) == ("…", "…")


def test_a_sentence_of_one_script_without_spaces_is_found():
    assert "再試行を追加した。終わり。" == snippet(tidied("設計を検討した。再試行を追加した。終わり。"), ["再試行"])


def test_who_spoke_is_known_of_what_was_indexed(world, shop):
    world.claude(shop, "mend the parser of invoices", "The tokenizer dropped the minus sign, so totals were wrong.")

    said = {one: world.find(one, shop)["results"][0] for one in ("invoices", "tokenizer minus sign")}
    assert {"invoices": "user", "tokenizer minus sign": "assistant"} == {
        one: result["said_by"] for one, result in said.items()
    }
    assert said["tokenizer minus sign"]["snippet"].startswith("The tokenizer dropped")
    assert json.dumps(said)
