"""Short names of a team's sessions."""

from __future__ import annotations

import pytest

from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, session_of


@pytest.mark.slow
def test_aliases_are_given_used_and_taken_away(alice):
    """C-043."""
    first = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    second = alice.team("push", session_of(alice, "claude", MORE, MORE_ANSWER), "--yes")

    alice.team("alias", "set", "retry", first["session_id"])
    alice.team("alias", "use", second["alias"])
    taken = alice.do("team", "alias", "set", "retry", second["session_id"])

    listed = alice.team("alias", "list")
    assert {"retry", second["alias"]} == set(listed["aliases"])
    assert (second["alias"], 2) == (listed["current"], taken.code)
    alice.team("alias", "remove", "retry")
    assert {second["alias"]} == set(alice.team("alias", "list")["aliases"])
    alice.team("alias", "set", "untracked", first["session_id"])
    assert first["session_id"] == alice.team("show", "untracked")["session"]["id"]
    assert [3, 2] == [alice.do("team", "alias", *words).code for words in (("use", "none"), ("set", "a/b", "x" * 8))]
