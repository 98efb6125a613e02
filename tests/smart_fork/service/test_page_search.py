"""Tests of the page for a question that no session on this machine answers."""

from __future__ import annotations

import html
import json
import re

import pytest

from tests.smart_fork.service.test_page import DONE, RETRY

STRANGE = "Configure the ingress for grafana"


def heading(text: str) -> str:
    found = re.search(r"<h2 data-count>(.*?)</h2>", text)
    assert found
    return found[1]


@pytest.mark.parametrize("path", ["/", "/results"])
def test_where_nothing_fits_the_page_says_so_and_offers_other_words_and_a_new_session(served, world, shop, path):
    for number in range(4):
        world.claude(shop, f"Make the logo {number} blue", "It is blue.")

    text = served.get(path, q=STRANGE, project=str(shop))[1]

    assert "Nothing fits. The best score is " in heading(text)
    assert "the likeliest first" not in text
    assert "in other words" in text
    assert 'project=%2A">search all projects' in text
    assert f"smart-fork new --project {shop} '{STRANGE}'" in html.unescape(re.sub("<[^>]+>", "", text))
    assert 'class="hits"' not in text, "with a button that stands out"
    assert 4 == text.count("/session/claude/")


def test_where_something_fits_it_stands_first_with_its_button(served, world, shop):
    world.claude(shop, RETRY, DONE)
    for number in range(3):
        world.claude(shop, f"Make the logo {number} blue", "It is blue.")

    text = served.get("/", q=RETRY)[1]

    assert "the likeliest first" in heading(text)
    assert 'class="hits"' in text
    assert "smart-fork new" not in text


def test_sessions_that_are_alike_fit_together_though_each_of_them_is_unlikely(served, world, shop):
    for number in range(12):
        world.claude(shop, f"{RETRY} number {number}", DONE)

    text = served.get("/", q=RETRY, project=str(shop))[1]

    assert "the likeliest first" in heading(text)
    assert "very likely" not in text


def test_where_nothing_is_found_a_new_session_is_offered_whatever_the_question_is(served):
    text = html.unescape(re.sub("<[^>]+>", "", served.get("/", q="--help; $(id)")[1]))

    assert "Nothing found" in text
    assert "smart-fork new -- '--help; $(id)'" in text


def test_prompts_of_deleted_sessions_stand_apart_without_links_or_forms(served, world, shop):
    world.claude(shop, "draw the map", "drawn")
    gone = "5f0c8b1e-0000-4000-8000-000000000001"
    kept = {
        "display": "add <b>retry</b> to the uploader",
        "timestamp": 1_767_225_600_000,
        "project": str(shop),
        "sessionId": gone,
    }
    (world.home / ".claude/history.jsonl").write_text(f"{json.dumps(kept)}\n")

    for path, asked in (("/sessions", {}), ("/", {"q": "add retry to the uploader"})):
        status, text = served.get(path, project=str(shop), **asked)
        apart = text[text.index('<section class="gone"') :].partition("</section>")[0]

        assert 200 == status
        assert "add &lt;b&gt;retry&lt;/b&gt; to the uploader" in apart
        assert "href" not in apart
        assert "form" not in apart.replace("information", "")
        assert gone not in text


def test_a_question_that_cannot_be_asked_is_answered_in_its_place(served):
    status, text = served.get("/results", q="x", project="/not/there")

    assert 400 == status
    assert "project_path " in text
    assert "<!doctype" not in text
    status, text = served.get("/", q="x", agent="nobody")
    assert (400, True) == (status, 'id="q"' in text)
