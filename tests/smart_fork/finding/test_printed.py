"""Tests that results are parsed from any output of a program, and that unreadable output is not read as "no
results".
"""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from smart_fork.finding.qmd import NotJson, location_of, results_in, text_of
from tests.support.cases import parametrize_subtests

ONE, OTHER = {"file": "qmd://a/1.md", "score": 0.5}, {"file": "qmd://a/2.md", "score": 0.25}
BOTH = [ONE, OTHER]


@parametrize_subtests(
    ("printed", "results"),
    [
        (json.dumps(BOTH), BOTH),
        (json.dumps(BOTH, indent=2), BOTH),
        (json.dumps({"results": BOTH}), BOTH),
        (json.dumps(ONE), [ONE]),
        (f"{json.dumps(ONE)}\n\n{json.dumps(OTHER)}\n", BOTH),
        ("", []),
        (" \n", []),
        ("[]", []),
        (json.dumps([ONE, "text", 3, None, [ONE]]), [ONE]),
        ("No results found.\n", []),
        ("Searching 3 queries...\nNo results found above minimum score threshold.", []),
        (f"Downloading model 40%\n[node-llama-cpp] loading\n[1/2] done\n{json.dumps(BOTH, indent=2)}", BOTH),
        (f"loading... {json.dumps(BOTH)}", BOTH),
        (f"\x1b[?25l\x1b[31mWarning\x1b[0m\r{json.dumps(BOTH)}\x1b[?25h\nbye", BOTH),
        (f"plugins: []\n{json.dumps(BOTH)}\nleft: []", BOTH),
        (f'{{"level": "info", "msg": "model loaded"}}\n{json.dumps(ONE)}\n{json.dumps(OTHER)}', BOTH),
        ('{"level": "info"}\n[]', []),
    ],
)
def test_all_shapes_are_read_whatever_is_printed_around_them(printed, results):
    assert results_in(printed) == results


@parametrize_subtests(
    "printed",
    [
        "Segmentation fault",
        "42",
        '"text"',
        "null",
        '{"error": "no such collection"}',
        json.dumps(BOTH)[:-1],
        json.dumps(BOTH)[:30],
        json.dumps(BOTH, indent=2)[:-2],
        json.dumps(BOTH, indent=2)[:-20],
        f"log\n{json.dumps(BOTH)[:-9]}",
        json.dumps([{"file": "a", "lines": [{"k": 1}]}, ONE])[:-4],
        "[" * 100_000,
        '[{"a":' * 100_000,
        "9" * 5000,
    ],
)
def test_what_is_cut_off_or_no_results_at_all_is_an_error(printed):
    with pytest.raises(NotJson):
        results_in(printed)


@given(st.text())
def test_any_text_is_read_or_refused(printed):
    with suppress(NotJson):
        assert all(isinstance(one, dict) for one in results_in(printed))


@given(st.integers(0, len(json.dumps(BOTH, indent=2)) - 1))
def test_an_answer_that_is_cut_off_anywhere_gives_no_results(length):
    with suppress(NotJson):
        assert (results_in(json.dumps(BOTH, indent=2)[:length]), length) == ([], 0)


@parametrize_subtests(
    ("result", "place", "text"),
    [
        ({"path": "p", "snippet": "s"}, "p", "s"),
        ({"document": {"path": "p", "content": "s"}}, "p", "s"),
        ({"metadata": {"source": "p"}, "text": "s"}, "p", "s"),
        ({"meta": {"document_path": "p"}}, "p", ""),
        ({"file": " ", "source": "p", "snippet": 3}, "p", ""),
        ({"document": "p", "path": ["p"]}, "", ""),
    ],
)
def test_place_and_text_may_be_nested(result, place, text):
    """F-030."""
    assert (location_of(result), text_of(result)) == (place, text)
