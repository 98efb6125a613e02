"""Tests of harmless quotations of other people's text, and of times and numbers in words (F-042)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from indexer.masking.alternate_readings import BRACKETS, INVISIBLE, QUOTES
from smart_fork.display_text import printable, quotation
from smart_fork.finding.result_snippets import matched_words, snippet


@given(st.text(max_size=3000), st.lists(st.text(max_size=8), max_size=4), st.integers(20, 500))
def test_a_snippet_is_bounded_and_harmless(text, words, limit):
    found = snippet(text, words, limit)

    assert len(found) <= limit
    assert found == printable(found)


def test_a_snippet_shows_where_most_of_the_words_stand():
    text = "lorem ipsum " * 200 + "here the uploader retries with backoff " + "dolor sit " * 200

    found = snippet(text, ["uploader", "retry", "backoff"])

    assert "uploader retries with backoff" in found
    assert found.startswith("…")
    assert found.endswith("…")


def test_short_text_is_quoted_whole():
    assert snippet("  as it is ", ["is"]) == "as it is"


def test_it_is_cut_between_characters():
    assert "\ufffd" not in snippet("ü🚀数" * 400, ["x"]).encode().decode()


def test_escape_sequences_lose_what_makes_them_work():
    assert printable("\x1b]0;title\x07\x9b31mred\x1b[0m \u202eevil\r\n\ttab\x1f") == "]0;title31mred[0m evil\n\ttab"


def test_matched_words_are_found_as_they_are_and_inside_names():
    assert matched_words("We call retry_upload() twice", ["retry_upload", "retry", "twice", "down"]) == (
        "retry_upload", "retry", "twice",
    )  # fmt: skip
    assert matched_words("uploading files", ["upload", "fil"]) == ("upload",)


@given(st.text(st.sampled_from("ab \n\u2028\x85\x1b\u202e/" + BRACKETS + QUOTES), max_size=200))
def test_a_quotation_is_one_line_in_which_nothing_looks_like_a_tag_or_ends_it(text):
    said = quotation(text, 100)

    assert len(said) <= 100
    assert said.splitlines() in ([], [said])
    assert set(said).isdisjoint({*BRACKETS, *QUOTES})
    assert not INVISIBLE.search(said)


def test_typographic_quotation_marks_and_full_width_brackets_are_neutralized():
    said = quotation(
        "\u201c \u201d \u201e \u00ab \u00bb \u2039x\u203a \uff02 \uff1c/a\uff1e \u3008b\u3009 \u2018c\u2019", 100
    )

    assert "' ' ' [ ] [x] ' [/a] [b] 'c'" == said
