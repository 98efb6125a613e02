"""A shared session on the machine of a person who uses another agent."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from smart_fork.agents.log_readers import READERS
from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, assert_refused, session_of
from tests.support.cases import thorough_except_first

OTHER = {"claude": "codex", "codex": "claude"}


@pytest.mark.parametrize("agent", thorough_except_first(OTHER))
def test_a_teammate_s_session_becomes_one_of_another_agent_and_back(alice, bob, agent):
    pushed = alice.team("push", session_of(alice, agent, PROMPT, ANSWER, MORE, MORE_ANSWER), "--public", "--yes")

    forked = bob.team("fork", pushed["session_id"], "--platform", OTHER[agent])
    there = READERS[OTHER[agent]].read(Path(forked["files"][0])).session
    again = bob.team("push", forked["files"][0], "--public", "--yes")
    back = alice.team("fork", again["session_id"], "--platform", agent)

    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == [turn.text for _, turn in there.messages]
    assert str(bob.repository) == there.cwd
    assert (None, None) == (forked["session_id"], forked["alias"])
    assert OTHER[agent] in forked["resume_command"]
    assert any("another agent" in warning for warning in forked["warnings"])
    assert (OTHER[agent], None) == (again["agent"], again["parent_id"])
    text = [turn.text for _, turn in READERS[agent].read(Path(back["files"][0])).session.messages]
    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == text


def test_of_one_s_own_the_first_messages_too(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER, MORE, MORE_ANSWER), "--yes")
    made = alice.team("branch", "--at", "2", "--platform", "codex")

    session = READERS["codex"].read(Path(made["files"][0])).session
    assert [PROMPT, ANSWER] == [turn.text for _, turn in session.messages]
    assert {pushed["alias"]} == set(alice.tracking()["aliases"])
    assert_refused(alice, 2, "--platform writes the session here, and --no-pull does not",
                   "branch", "--platform", "codex", "--no-pull")  # fmt: skip


def test_as_a_file_of_the_project_it_is_the_records_as_they_are(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    pulled = alice.team("pull", pushed["session_id"], "--platform", "file", "--alias", "kept")

    path = alice.repository / ".smart-fork/sessions/kept.jsonl"
    header, *records = [json.loads(line) for line in path.read_text().splitlines()]
    assert [str(path)] == pulled["files"]
    assert (1, pushed["session_id"]) == (header["smart_fork"], header["session"]["id"])
    assert pushed["record_count"] == len(records)


def test_an_agent_that_is_not_known_or_cannot_have_it_is_named(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")["session_id"]

    assert_refused(alice, 2, "Unknown agent: nobody", "pull", pushed, "--platform", "nobody")
    assert_refused(alice, 2, "Sessions of Cursor are not shared", "pull", pushed, "--platform", "cursor")
