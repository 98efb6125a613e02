"""Tests of verdicts, tags, pins and the archive, through the forms of a session's page."""

from __future__ import annotations

import re
from urllib.parse import urlencode

import pytest

from smart_fork.finding import session_notes
from tests.support.cases import thorough_except_first

ASKED = "add a retry with backoff to the uploader of parcels"


@pytest.fixture
def session(world, shop) -> str:
    return world.claude(shop, ASKED, "It retries")


def send(served, session: str, do: str, **more: str) -> tuple[int, str]:
    """Press a button of the page as it is shown now, and return the status and the answer."""
    shown = served.get(f"/session/claude/{session}")[1]
    form = re.search(r'action="/note".*?name="form" value="([^"]+)"', shown, re.DOTALL)[1]
    said = {"session": f"claude:{session}", "form": form, "do": do, **more}
    origin = f"http://127.0.0.1:{served.port}"
    answer = served.answer("POST", "/note", urlencode(said).encode(), Origin=origin)
    return answer.status, answer.headers.get("Location") or answer.read().decode()


def followed(served, sent: tuple[int, str]) -> str:
    """Return the final address after the redirects of a form."""
    assert 303 == sent[0]
    return served.answer("GET", sent[1]).headers["Location"]


@pytest.mark.slow
def test_buttons_pin_archive_tag_and_judge_and_take_that_back(served, session, shop):
    assert f"/session/claude/{session}#notes" == followed(served, send(served, session, "mark pin"))
    send(served, session, "tag", tag="Retry")
    send(served, session, "verdict", outcome="dropped", reason="too slow & <b>")

    shown = served.get(f"/session/claude/{session}")[1]
    assert "and given up: too slow &amp; &lt;b&gt;" in shown
    assert "#retry" in shown
    assert "Unpin" in shown
    listed = served.get(f"/sessions?project={shop}")[1]
    assert ">Pinned</h3>" in listed
    assert "given up: too slow &amp;" in listed
    assert session in served.get(f"/sessions?project={shop}&tag=retry")[1]

    send(served, session, "mark archive")
    assert session not in served.get(f"/sessions?project={shop}")[1]
    assert session in served.get(f"/sessions?project={shop}&archived=yes")[1]
    for do in ("unmark pin", "unmark archive", "untag retry", "unjudge"):
        assert 303 == send(served, session, do)[0]
    assert {} == session_notes.noted([("claude", session)])


@pytest.mark.parametrize("wrong", thorough_except_first([
        {"do": ""}, {"do": "mark :pinned"}, {"do": "mark"}, {"do": "tag", "tag": "-x"}, {"do": "tag :pinned"},
        {"do": "verdict", "outcome": "great"}, {"do": "verdict"},
    ]))  # fmt: skip
def test_what_no_button_says_is_refused(served, session, wrong):
    status, said = send(served, session, **wrong)

    assert 400 <= status < 500
    assert "smart-fork" in said
    assert {} == session_notes.noted([("claude", session)])


def test_results_on_the_page_say_what_was_given_up(served, session, shop):
    send(served, session, "verdict", outcome="dropped", reason="too slow")

    assert "given up: too slow" in served.get(f"/results?q=retry+backoff+uploader&project={shop}")[1]
