"""A copy of a shared session is as old as its last record. Later changes are counted from there."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from smart_fork.agents.log_readers import READERS
from tests.smart_fork.team.server.test_two_people import ANSWER, PROMPT, session_of
from tests.smart_fork.team.server.test_unfinished_sessions import SHARED, broken_off, opencode_in
from tests.smart_fork.world import Did
from tests.support.cases import thorough_except_first

pytestmark = pytest.mark.slow

OTHER = {"claude": "codex", "codex": "claude"}


def read(machine, agent, log):
    with machine.here():
        return READERS[agent].read(Path(log)).session


@pytest.mark.parametrize("agent", SHARED)
def test_a_fork_is_as_old_as_its_last_record(alice, bob, agent):
    pushed = alice.team("push", broken_off(alice, agent), "--public", "--yes")
    if agent == "opencode":
        opencode_in(bob)
    forked = bob.team("fork", pushed["session_id"])

    there = read(bob, agent, forked["files"][0])

    last = max(turn.timestamp for turn in there.turns)
    assert last == there.last_activity or (
        agent == "opencode" and last < there.last_activity
    )  # its answers have an end
    assert there.last_activity <= read(alice, agent, pushed["files"][0]).last_activity


@pytest.mark.parametrize("agent", thorough_except_first(OTHER))
def test_a_fork_for_another_agent_is_as_old_as_the_session(alice, bob, agent):
    pushed = alice.team("push", session_of(alice, agent, PROMPT, ANSWER), "--public", "--yes")
    forked = bob.team("fork", pushed["session_id"], "--platform", OTHER[agent])

    last = read(alice, agent, pushed["files"][0]).last_activity

    assert last == read(bob, OTHER[agent], forked["files"][0]).last_activity


@pytest.mark.parametrize("agent", thorough_except_first(OTHER))
def test_a_branch_of_this_machine_is_as_old_as_its_last_record_too(alice, agent):
    session = session_of(alice, agent, PROMPT, ANSWER)
    log = alice.world.log_of(session)
    branched = json.loads(alice.do("branch", session, "--json").out)

    assert read(alice, agent, log).last_activity == read(alice, agent, branched["path"]).last_activity


def committed(clone, text, date):
    (clone / "up.py").write_text(text)
    env = {"GIT_AUTHOR_DATE": date, "GIT_COMMITTER_DATE": date, "PATH": "/usr/bin:/bin", "HOME": str(clone.parent)}
    for words in (("add", "up.py"), ("-c", "user.name=b", "-c", "user.email=b@example.org", "commit", "-qm", text)):
        subprocess.run(["git", *words], cwd=clone, env=env, check=True, capture_output=True)


def test_the_note_and_the_price_of_a_teammate_s_session_count_from_its_last_record(alice, bob):
    call = Did("Read", {"file_path": str(alice.repository / "up.py")}, "one")
    session = alice.world.worked("claude", alice.repository, f"> {PROMPT}", call, ANSWER)
    pushed = alice.team("push", session, "--public", "--yes")
    committed(bob.repository, "one", "2025-12-31T00:00:00Z")
    committed(bob.repository, "two", "2026-02-01T00:00:00Z")

    shown = bob.do("fork", pushed["session_id"], "do the same", "--dry-run", "--json")

    told = json.loads(shown.out)
    command = json.dumps(told)
    assert "is as of 2026-01-01 00:" in command
    assert "- up.py (+1 -1)" in command
    assert "may still be in its model's cache" not in bob.do("fork", pushed["session_id"], "go", "--dry-run").out


@pytest.mark.parametrize("more", [(), pytest.param(("--json",), marks=pytest.mark.thorough)])
def test_a_dry_run_of_a_teammate_s_session_prints_a_command_that_can_be_given(alice, bob, more):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes", "--public")["session_id"]

    shown = bob.do("fork", pushed, "do the same", "--dry-run", *more)

    assert 0 == shown.code, shown.err
    assert f"smart-fork fork {pushed} 'do the same'" in shown.out
    assert "then runs: " in shown.out + shown.err
    assert "<its id>" in shown.out + shown.err
    assert [] == list(bob.home.glob(".claude/**/*.jsonl"))
