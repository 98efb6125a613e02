"""The tracked sessions of a clone can be listed and branched without the server."""

from __future__ import annotations

import json
from contextlib import contextmanager
from unittest.mock import patch

import httpx2
import pytest

from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, go_on, said, session_of

LATE, LATE_ANSWER = "and the tests", "They pass."


@pytest.fixture
def cut_off():
    """A context in which nothing listens at the server's address."""

    @contextmanager
    def cut():
        with patch.object(httpx2.Client, "stream", side_effect=httpx2.ConnectError("refused")):
            yield

    return cut


@pytest.fixture
def shared(alice):
    """Alice's session, with records that are not pushed."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--title", "Retry")
    go_on(alice, pushed["files"][0], "claude", LATE, LATE_ANSWER)
    return pushed


def test_the_status_says_what_is_known_here_and_that_the_rest_is_not(alice, shared, cut_off):
    with cut_off():
        told, shown = alice.team("status"), alice.do("team", "status")

    (one,) = told["aliases"]
    assert ("ahead", 2, None, True) == (one["state"], one["ahead"], one["behind"], bool(one["seen"]))
    assert "The server does not answer" in told["server_error"]
    assert (0, True) == (shown.code, "ahead, 2 ahead" in shown.out)
    assert "It may be out of date" in shown.err


def test_the_list_has_the_sessions_that_are_tracked_here(alice, shared, cut_off):
    with cut_off():
        told, shown = alice.team("list"), alice.do("team", "list")

    assert [(shared["session_id"], "Retry", 2)] == [
        (one["id"], one["title"], one["record_count"]) for one in told["sessions"]
    ]
    assert "The server does not answer" in told["server_error"]
    assert (0, True) == (shown.code, "Retry" in shown.out)
    assert "as of the last push or pull" in shown.err


def test_a_list_by_what_the_server_alone_knows_is_refused(alice, shared, cut_off):
    with cut_off():
        refused = alice.do("team", "list", "--tag", "x")

    assert (1, True) == (refused.code, "The server does not answer" in refused.err)


@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
def test_a_local_branch_is_made_of_what_is_here_and_shared_with_its_parent_later(alice, agent, cut_off):
    pushed = alice.team("push", session_of(alice, agent, PROMPT, ANSWER), "--yes")
    go_on(alice, pushed["files"][0], agent, LATE, LATE_ANSWER)
    with cut_off():
        made = alice.team("branch", "--local", "--alias", "mine")

    assert (None, pushed["session_id"], 2) == (made["session_id"], made["parent_id"], made["base_count"])
    assert any("The server does not answer" in warning for warning in made["warnings"])
    assert [PROMPT, ANSWER, LATE, LATE_ANSWER] == said(agent, made["files"][0])
    there = alice.team("push", "mine", "--yes")
    assert (pushed["session_id"], 2, 2, 4) == tuple(
        there[key] for key in ("parent_id", "base_count", "pushed_records", "record_count")
    )


@pytest.mark.thorough
def test_a_local_branch_at_a_message_has_the_first_ones(alice, shared, cut_off):
    go_on(alice, shared["files"][0], "claude", MORE, MORE_ANSWER)
    alice.team("push", "--yes")
    with cut_off():
        made = alice.team("branch", shared["alias"], "--local", "--at", "2", "--alias", "mine")

    assert [PROMPT, ANSWER] == said("claude", made["files"][0])
    go_on(alice, made["files"][0], "claude", "else", "Done.")
    there = alice.team("push", "mine", "--yes")
    assert (shared["session_id"], 2, 4) == (there["parent_id"], there["base_count"], there["record_count"])


def test_a_branch_that_the_server_is_to_make_needs_it(alice, shared, cut_off):
    with cut_off():
        refused = alice.do("team", "branch")

    assert (1, True) == (refused.code, "The server does not answer" in refused.err)


def test_a_local_branch_of_what_is_not_here_says_so(alice, shared, cut_off):
    with cut_off():
        refused = alice.do("team", "branch", "00000000-0000-4000-8000-000000000000", "--local", "--json")

    assert (1, True) == (refused.code, "The session is not on this machine." in json.loads(refused.out)["error"])
