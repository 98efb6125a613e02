"""Tests of code authors and of a session's commits on the page, with real git."""

from __future__ import annotations

import html
import re

import pytest

from tests.smart_fork.finding.test_authorship import BODY, LATER, ask, commit, git, wrote
from tests.smart_fork.world import Did
from tests.support.cases import thorough_except_first


def text_of(page: str) -> str:
    return " ".join(html.unescape(re.sub("<[^>]+>", " ", page)).split())


@pytest.fixture
def written(world, shop):
    """Write a session, and a commit with its change beside a line written by hand."""
    done = Did("Write", {"file_path": str(shop / "upload.py"), "content": BODY})
    steps = ("> hello there", "hi", "> retry the upload five times", done, "Done.", "> what is left to do?", "Nothing.")
    session = world.worked("claude", shop, *steps)
    return session, commit(shop, "upload.py", BODY + "print('by hand, and nothing else')\n", "Retry")


@pytest.mark.parametrize(
    "asked", thorough_except_first([{"line": "upload.py:2-3"}, {"line": "upload.py"}, {"commit": "HEAD"}])
)
def test_a_line_a_file_or_a_commit_leads_to_who_wrote_it_and_to_a_fork_there(served, shop, written, asked):
    session, name = written

    status, page = served.get("/", project=str(shop), **asked)

    text = text_of(page)
    assert status == 200
    assert "1 session wrote this" in text
    assert f"/session/claude/{session}" in page
    assert "retry the upload five times" in text
    assert f"· commit {name[:8]}" in text
    point = re.search(r'<option value="(\d+)" selected>the exchange that wrote it', page)
    assert point, "the fork begins there"
    assert f"--at {point[1]}" in text
    if asked == {"line": "upload.py:2-3"}:
        assert "Wrote 2 of 2 lines, most of them in exchange 2" in text
    else:
        assert "No session is known to have written 1 of 8 lines." in text


def test_the_uncommitted_changes_lead_to_who_wrote_what_they_touch(served, shop, written):
    assert "No session is known" in served.get("/results", project=str(shop), changes="yes")[1]
    (shop / "upload.py").write_text(BODY.replace("wait_before_retry(attempt)", "pass"))

    page = served.get("/results", project=str(shop), changes="yes")[1]

    assert "sessions wrote this" in text_of(page) or "1 session wrote this" in text_of(page)
    assert written[0] in page


def test_words_beside_a_line_order_the_sessions(served, world, shop, written):
    world.claude(shop, "retry the upload five times", "Another one that wrote nothing.")

    page = served.get("/results", project=str(shop), q="retry the upload", line="upload.py:2")[1]

    assert "1 session wrote this" in text_of(page)
    assert 'title="Score: the chance' in page, "the score is what the words are worth"


def test_code_that_nobody_is_known_to_have_written_is_said(served, shop, written):
    page = served.get("/results", project=str(shop), line="upload.py:8")[1]

    assert "No session is known to have written this" in page
    assert "smart-fork new" not in page


def test_what_is_no_code_is_refused_in_the_place_of_results(served, shop, written):
    for asked in ({"line": "../other.py:1"}, {"line": "nothing.py:1"}, {"commit": "--output=x"}, {"line": "a" * 5000}):
        status, page = served.get("/results", project=str(shop), **asked)
        assert (status, 'class="note bad"' in page) == (400, True), asked
    assert not (shop / "x").exists()


def test_one_project_needs_not_be_named(served, shop, written):
    served.get("/results", q="retry")

    assert "1 session wrote this" in text_of(served.get("/results", line="upload.py:2")[1])


def test_the_form_keeps_what_was_asked(served, shop, written):
    page = served.get("/", project=str(shop), line='a"b.py:2', commit="HEAD", changes="yes")[1]

    assert 'value="a&#34;b.py:2"' in page
    assert 'name="changes" value="yes" checked' in page


@pytest.mark.slow
def test_a_session_leads_to_its_commits_and_their_lines(served, world, shop, written):
    session, name = written
    ask(world, shop, files=["upload.py"])
    git(shop, "mv", "upload.py", "sender.py")
    git(shop, "commit", "-q", "-m", "Rename", at=LATER + 50)

    read = served.get(f"/session/claude/{session}")[1]
    page = served.get(f"/session/claude/{session}/commits")[1]

    assert f'href="/session/claude/{session}/commits"' in read
    assert "Commits: 1" in page
    assert f"{name[:8]} Retry" in text_of(page)
    assert "7 of 8 lines" in page
    assert "Lines of these in HEAD now: 7: sender.py:1-7" in text_of(page)
    assert f"commits: {name[:8]} · lines of these in HEAD now: 7" in text_of(served.get(f"/family/claude/{session}")[1])


def test_a_session_without_a_commit_says_so(served, world, shop):
    session = wrote(world, shop)
    commit(shop, "other.py", "print('by hand')\n")
    ask(world, shop, files=["other.py"])

    assert "No commit is known" in served.get(f"/session/claude/{session}/commits")[1]
