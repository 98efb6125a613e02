"""Where sentences begin and end, in prose, lists, code, and scripts without spaces."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer.store.base import bigrams
from smart_fork.finding.result_snippets import best, sentences
from tests.support.cases import parametrize_subtests

SPLIT = [
    ("One thing. Another? A third!", ["One thing.", "Another?", "A third!"]),
    ("Use e.g. a queue. Then wait.", ["Use e.g. a queue.", "Then wait."]),
    ("Set it to 1.5 in src/app.py now. Done.", ["Set it to 1.5 in src/app.py now.", "Done."]),
    ("- first item\n- second item", ["- first item", "- second item"]),
    ("1. first\n2. second", ["1. first", "2. second"]),
    ("def f(x):\n    return x", ["def f(x):", "return x"]),
    ("再試行を追加した。テストは通る。", ["再試行を追加した。", "テストは通る。"]),
    ("他说「好」。然后走了！真的？", ["他说「好」。", "然后走了！", "真的？"]),
    ("This line was broken to fit a screen that is\nnarrow. The next.", ["This line was broken to fit a screen that is\nnarrow.", "The next."]),
    ('He said "stop." Then it went on.', ['He said "stop."', "Then it went on."]),
    ("one\n\n\ntwo", ["one", "two"]),
    ("", []),
    (" \n ", []),
]  # fmt: skip


@parametrize_subtests(("text", "expected"), SPLIT)
def test_a_text_has_these_sentences(text, expected):
    assert expected == [text[start:end] for start, end in sentences(text)]


@given(st.text(alphabet="ab .!?。\n-#`", max_size=200))
def test_sentences_are_in_order_and_leave_out_white_space_alone(text):
    spans = sentences(text)

    assert sorted(spans) == spans
    assert "".join(text.split()) == "".join("".join(text[start:end].split()) for start, end in spans)


def test_the_sentence_with_most_of_the_words_is_the_best():
    text = "We talked. The uploader retries with backoff. The uploader is slow."

    assert 1 == best(text, sentences(text), ["uploader", "retry", "backoff"])
    assert best(text, sentences(text), ["nothing"]) is None


def test_words_without_spaces_between_are_found_as_parts():
    text = "設計を検討した。再試行を追加した。"

    assert 1 == best(text, sentences(text), bigrams("再試行の追加").split())
