"""Code and commits on the page, in a browser."""

from __future__ import annotations

import pytest

from tests.e2e.page_fixtures import INTENT, settled

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("page")]
MADE = '<!doctype html><section id="made"><h2>Commits: 1</h2><ul><li>50d8160f Retry</li></ul></section>'


def test_the_commits_of_a_session_appear_beside_it_once_git_has_answered(served, opened):
    page = opened()
    page.context.route("**/commits", lambda route: route.fulfill(body=MADE, content_type="text/html"))
    page.goto(f"{served.url}/session/claude/{served.session('downloader')}")

    assert "50d8160f Retry" in page.inner_text("#fork #made")


@pytest.mark.thorough
def test_the_link_to_commits_stays_if_none_is_known(served, opened):
    page = opened()
    with page.expect_response("**/commits"):
        page.goto(f"{served.url}/session/claude/{served.session('downloader')}")
    page.click("#commits a")

    assert "No commit is known" in page.inner_text("#made")


def test_what_was_asked_about_code_is_kept_in_the_address_and_comes_back(opened):
    page = opened(f"/?q={INTENT.replace(' ', '+')}")
    page.click("summary:has-text('Who wrote this code?')")
    page.get_by_label("A line, lines or a file of the project").fill("upload.py:2")
    page.wait_for_url("**line=upload.py%3A2**")
    settled(page)
    page.get_by_label("The lines that my uncommitted changes touch").check()
    page.wait_for_url("**changes=yes**")
    settled(page)

    page.get_by_label("The lines that my uncommitted changes touch").uncheck()
    page.wait_for_url(lambda url: "changes" not in url)
    settled(page)
    page.go_back()
    page.wait_for_url("**changes=yes**")

    assert page.get_by_label("The lines that my uncommitted changes touch").is_checked()
    assert "upload.py:2" == page.get_by_label("A line, lines or a file of the project").input_value()
