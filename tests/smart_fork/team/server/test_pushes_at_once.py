"""Equal pushes at one time: processes of one machine push once, and of two machines one wins."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest

from smart_fork.team.client import Client
from tests.smart_fork.team.server.machines import TeamMachine
from tests.smart_fork.team.server.test_killed_clients import shared_by
from tests.smart_fork.team.server.test_two_people import ANSWER, MORE, MORE_ANSWER, PROMPT, go_on, said, session_of
from tests.smart_fork.world import git
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample

pytestmark = pytest.mark.slow

PUSHES, ROUNDS = 4, full_or_sample(3, 1)


def at_once(machine, *words, places=()):
    """Run one command in several processes at one time, in the given places in turn. Return the answers."""
    gone = ("CLAUDE_CONFIG_DIR", "CODEX_HOME", "SMART_FORK_TEAM_URL", "SMART_FORK_TEAM_TOKEN")
    env = {name: value for name, value in os.environ.items() if name not in gone} | machine.env
    command = [sys.executable, "-m", "smart_fork", "team", *words, "--json"]
    started = [
        forkserver.Popen(command, cwd=place, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for place, _ in zip(cycle(places or [machine.repository]), range(PUSHES), strict=False)
    ]
    ended = [(one.communicate(), one.returncode) for one in started]
    assert [0] * PUSHES == [code for _, code in ended], ended
    return [json.loads(told[0]) for told, _ in ended]


@pytest.mark.thorough
def test_of_the_same_pushes_at_once_one_makes_the_session_and_all_name_it(alice, team):
    for number in range(ROUNDS):
        session = session_of(alice, "claude", f"{PROMPT} {number}", ANSWER)

        told = at_once(alice, "push", session, "--yes")

        assert 1 == len({one["session_id"] for one in told})
        assert [False, False, False, True] == sorted(one["created"] for one in told)
        assert [False, True, True, True] == sorted(one["up_to_date"] for one in told)
        assert number + 1 == len(shared_by(team, "alice")) == len(alice.tracking()["aliases"])


@pytest.mark.thorough
def test_of_the_same_pushes_at_once_one_appends_and_the_others_have_nothing_new(alice):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    for number in range(ROUNDS):
        go_on(alice, pushed["files"][0], "claude", f"{MORE} {number}", MORE_ANSWER)

        told = at_once(alice, "push", "--yes")

        assert {pushed["session_id"]} == {one["session_id"] for one in told}
        assert [0, 0, 0, 2] == sorted(one["pushed_records"] for one in told)
        assert {4 + 2 * number} == {one["record_count"] for one in told}
    assert alice.team("push")["up_to_date"]


def test_of_the_same_first_pushes_of_a_branch_at_once_one_makes_it(alice, team):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    made = alice.team("branch", "--local", "--alias", "mine")
    go_on(alice, made["files"][0], "claude", MORE, MORE_ANSWER)

    told = at_once(alice, "push", "mine", "--yes")

    assert 1 == len({one["session_id"] for one in told})
    assert {pushed["session_id"]} == {one["parent_id"] for one in told}
    assert 2 == len(shared_by(team, "alice"))


@pytest.fixture
def worktree(alice):
    """A second worktree of Alice's repository, with links to its sessions."""
    folder = alice.repository.parent / "aside"
    git(alice.repository, "commit", "-q", "--allow-empty", "-m", "begin")
    git(alice.repository, "worktree", "add", "-q", str(folder))
    return folder


@pytest.mark.thorough
def test_of_the_same_pushes_at_once_from_two_checkouts_one_makes_the_session_and_all_name_it(alice, team, worktree):
    for number in range(ROUNDS):
        session = session_of(alice, "claude", f"{PROMPT} {number}", ANSWER)

        told = at_once(alice, "push", session, "--yes", places=(alice.repository, worktree))

        assert 1 == len({one["session_id"] for one in told})
        assert [False, False, False, True] == sorted(one["created"] for one in told)
        assert number + 1 == len(shared_by(team, "alice"))


@pytest.mark.thorough
def test_what_one_checkout_has_pushed_goes_on_there(alice, worktree, monkeypatch):
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    go_on(alice, pushed["files"][0], "claude", MORE, MORE_ANSWER)
    session, first = Path(pushed["files"][0]).stem, alice.repository
    monkeypatch.setattr(alice, "repository", worktree)

    refused = alice.do("team", "push", session, "--yes", "--json")

    assert 9 == refused.code
    assert {
        "error": f"{session} was pushed from another checkout: {first}",
        "hint": f"Push new records from there: cd {first} && smart-fork team push {pushed['alias']}",
    } == json.loads(refused.out)
    assert alice.team("push", session, "--yes", "--force")["created"]


@pytest.fixture
def second_machine(tmp_path, team, alice, address, capsys):
    """A second machine of a person, with the session."""
    machine = TeamMachine(tmp_path / "second", "elsewhere/shop", team, capsys)
    machine.invited(address, "alice")
    return machine


@pytest.fixture
def overtaken(alice, second_machine, monkeypatch):
    """Alice's session, to which another machine pushes while this machine reads its last segment."""
    pushed = alice.team("push", session_of(alice, "claude", PROMPT, ANSWER), "--yes")
    there = second_machine.team("pull", pushed["session_id"])
    go_on(second_machine, there["files"][0], "claude", MORE, MORE_ANSWER)
    read, overtook = Client.segment, []

    def segment(self, project, digest):
        if not overtook:
            overtook.append(True)
            second_machine.team("push", "--yes")
        return read(self, project, digest)

    monkeypatch.setattr(Client, "segment", segment)
    return pushed


def test_a_push_that_another_machine_overtakes_says_that_the_session_has_advanced(alice, overtaken):
    go_on(alice, overtaken["files"][0], "claude", "and the tests", "They pass.")

    refused = alice.do("team", "push", "--yes")

    assert (9, True) == (refused.code, "The remote session has advanced (2 -> 4 records)." in refused.err)


@pytest.mark.thorough
def test_who_reads_a_session_while_it_is_pushed_to_reads_what_is_there_then(alice, overtaken):
    shown = alice.team("show", overtaken["session_id"])

    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == [one["text"] for one in shown["messages"]]
    pulled = alice.team("pull", overtaken["session_id"], "--force")
    assert [PROMPT, ANSWER, MORE, MORE_ANSWER] == said("claude", pulled["files"][0])
