"""Tests of a session that grows, is cut, or is deleted while somebody reads it on the page."""

from __future__ import annotations

import html
import json
import re

import pytest

from smart_fork.errors import ForkRefused, Usage
from smart_fork.excise import Request, cut
from smart_fork.page.changes_since_shown import ShownState, refuse_changed_session
from tests.smart_fork.service.test_page_parts import session, turn
from tests.smart_fork.session_family import ids_with
from tests.smart_fork.world import Did

ASKED = ("Find the leak", "It is the timer.", "Where?", "In the heartbeat.")


def shown(served, one: str, agent: str = "claude", **query) -> tuple[str, str, str]:
    """Open a session's page. Return the page, the address that its window polls, and the address for people."""
    status, text = served.get(f"/session/{agent}/{one}", **query)
    assert status == 200, text
    (asks,), (look,) = re.findall(r'data-ask="([^"]*)"', text), re.findall(r'<a href="([^"]*)#more">Check', text)
    return text, html.unescape(asks), html.unescape(look)


def go_on(world, one: str, cwd, *said: str) -> None:
    """Add prompts and answers to a session."""
    last = json.loads(world.log_of(one).read_text().splitlines()[-1])
    records = world.claude_records(one, cwd, *said)
    records[0]["parentUuid"] = last["uuid"]
    world.write_claude(one, cwd, records, "a")


def test_a_session_that_goes_on_says_so_and_shows_what_is_new(served, world, shop):
    one = world.claude(shop, *ASKED)
    text, asks, look = shown(served, one)
    nothing = served.answer("GET", asks)
    again = served.get(look)[1]
    go_on(world, one, shop, "And the <b>others</b>?", "There are none.")

    told, now = served.answer("GET", asks).read().decode(), served.get(look)[1]

    assert (204, b"") == (nothing.status, nothing.read())
    assert ("No new messages" in text, "No new messages" in again, again.count('id="more"')) == (
        False,
        True,
        1,
    )
    assert "2 new messages" in told
    assert f'href="{html.escape(look)}#more"' in told, "what is shown is not touched: a link leads to all of it"
    before, _, after = now.partition('id="more"')
    assert ("In the heartbeat." in before, "There are none." in before, "There are none." in after) == (
        True,
        False,
        True,
    )
    assert "New messages: 2 messages" in after
    assert 204 == served.answer("GET", shown(served, one)[1]).status, "the new page has another mark"


@pytest.mark.slow
def test_a_session_that_was_cut_is_another_one_and_nothing_is_done_with_its_old_numbers(served, world, shop):
    came = "\n".join(f"line {number}" for number in range(30))
    one = world.worked("claude", shop, "> Find it", "Here.", "> Forget this", "I will.", "> Run it", Did("Bash", {"command": "make"}, came), "Done.")  # fmt: skip
    text, asks, look = shown(served, one)
    (seen,) = re.findall(r'name="seen" value="([^"]*)"', text)
    (printed,) = re.findall(r'href="([^"]*/output/[^"]*)"', text)
    points = re.findall(r'data-fork="(\d+)"', text)
    assert 200 == served.get(printed)[0]
    cut(Request(one, ids=ids_with(world.log_of(one), "Forget this")))

    forked = served.answer("POST", "/fork", _body(served, one, f"at={points[0]}&seen={seen}"))
    told, now = served.answer("GET", asks).read().decode(), served.get(look)[1]

    assert (409, True) == (forked.status, b"The session has changed" in forked.read())
    assert (409, True) == ((said := served.get(printed))[0], "Open the session again" in said[1])
    assert "part of it was cut" in told
    assert ("This session has changed" in now, "Forget this" in now) == (True, False)
    assert [400] * 3 == [
        served.get(f"/session/claude/{one}", since=mark)[0] for mark in ("1", "1-x-y", "\u00b2-" + seen[2:])
    ]
    assert 400 == served.answer("POST", "/fork", _body(served, one, "seen=1")).status


def _body(served, one: str, more: str) -> bytes:
    form = served.form("/fork")
    return f"form={form}&session={one}&prompt=go+on&place=process&{more}".encode()


def test_a_session_that_is_deleted_while_it_is_read_is_said_to_be_gone(served, world, shop):
    one = world.claude(shop, *ASKED)
    _, asks, look = shown(served, one)
    world.log_of(one).unlink()

    assert "Its log was deleted" in served.answer("GET", asks).read().decode()
    assert (404, True) == ((said := served.get(look))[0], "Session not found" in said[1])
    assert (
        404
        == served.answer(
            "POST", "/fork", _body(served, one, f"seen={ShownState.of(session(turn(0, 'user', 'x')))}")
        ).status
    )


def test_a_session_of_which_a_copy_was_kept_does_not_go_on(served, world, shop, monkeypatch):
    """The log, the only one of its project, was deleted before the page was opened. Nothing has changed since."""
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    one = world.claude(shop, *ASKED)
    served.get("/", q="leak")  # reads the logs
    world.log_of(one).unlink()

    status, text = served.get(f"/session/claude/{one}")

    assert (200, True, False, False) == (
        status,
        "smart-fork kept a copy" in text,
        "data-ask" in text,
        "Check for new messages" in text,
    )


def test_what_is_written_last_may_be_written_on():
    """An agent that keeps a whole answer in one record rewrites the record as the answer grows."""
    begun = session(turn(0, "user", "why"), turn(1, "assistant", "Because"))
    mark = ShownState.of(begun)
    states = {
        "same": begun,
        "more": session(*begun.turns, turn(2, "assistant", "so.")),
        "grown": session(begun.turns[0], turn(1, "assistant", "Because of it")),
        "another": session(turn(0, "user", "WHY"), *begun.turns[1:]),
        "less": session(begun.turns[0]),
    }

    became = {name: mark.change_to(one).became for name, one in states.items()}

    assert {"same": "same", "more": "more", "grown": "more", "another": "another", "less": "another"} == became
    assert (2, 1) == (mark.change_to(states["more"]).first, mark.change_to(states["grown"]).first)
    assert mark == ShownState.parse(str(mark))
    refuse_changed_session("", states["another"])
    refuse_changed_session(str(mark), states["more"])
    with pytest.raises(ForkRefused):
        refuse_changed_session(str(mark), states["less"])
    with pytest.raises(Usage):
        refuse_changed_session("x", begun)
