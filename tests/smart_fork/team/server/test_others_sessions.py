"""A fork of a teammate's session asks the user first, however it is started."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from smart_fork.agents.log_readers import READERS
from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused
from smart_fork.forking.plan import fork_session
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.resume import session_to_resume
from smart_fork.forking.source_sessions import is_others
from smart_fork.forking.spawn import WorkerRequest
from smart_fork.forking.start import prepare
from smart_fork.forking.worker_spec import WorkerSpec
from smart_fork.system.processes import Machine
from tests.smart_fork.forks import branched as branch
from tests.smart_fork.team.server.machines import TeamMachine

pytestmark = pytest.mark.slow

SAID = ("add retry with backoff to the uploader", "The uploader retries five times now.")
MORE = ("and the docs", "The docs say so.")
ASKING = "--permission-mode default"


@pytest.fixture
def hers(alice):
    """A session of Alice that all members of the project may read."""
    return alice.team("push", alice.world.claude(alice.repository, *SAID), "--yes", "--public")["session_id"]


def taken(machine: TeamMachine, session: str, *words: str) -> str:
    """Return the local id of another person's session."""
    return Path(machine.team("fork", session, *words)["files"][0]).stem


def planned(machine: TeamMachine, session: str) -> str:
    """Return the command that would fork a session."""
    said = machine.do("fork", session, "--in", "process", "--dry-run", "--json", "--", "go on")
    assert said.code == 0, said.out
    return said.json["command"]


def test_a_copy_of_a_teammates_session_and_all_that_is_made_of_it_ask_before_they_act(bob, hers):
    answer = bob.team("fork", hers)
    copy = Path(answer["files"][0]).stem
    native = bob.world.fork_claude(copy, bob.repository, *MORE)
    again = bob.world.fork_claude(native, bob.repository, "more", "Done")
    own = bob.world.claude(bob.repository, *MORE)
    with bob.here():
        branched = branch(copy)

        assert [True] * 4 == [is_others(one) for one in (copy, native, again, branched.session_id)]
        assert not is_others(own)
    assert answer["resume_command"].endswith(ASKING)
    assert branched.resume_command.endswith(ASKING)
    assert [True] * 4 == [ASKING in planned(bob, one) for one in (copy, native, again, branched.session_id)]
    assert ASKING not in planned(bob, own)
    lineage = bob.do("lineage", native, "--json").json["sessions"]
    assert [True] * 4 == [one["resume_command"].endswith(ASKING) for one in lineage if not one["log_gone"]]
    found = {hit["session_id"]: hit["fork_command"] for hit in bob.do("find", "the docs", "--json").json["results"]}
    assert [False] == [ASKING in command for session, command in found.items() if session == own]
    assert any(ASKING in command for session, command in found.items() if session != own)


def test_who_goes_on_in_one_is_asked_too_and_nobody_may_say_that_it_never_asks(bob, hers):
    copy = taken(bob, hers)
    os.utime(bob.world.log_of(copy), (0, 0))
    with bob.here():
        world = Machine()
        there = session_to_resume(copy)
        resumed = prepare(WorkerSpec("resume", "claude", there, Options(prompt="go on", place="process")), world)

        assert ASKING in " ".join(resumed.plan().argv)
        unasked = {
            "project_path": str(bob.repository),
            "skip_permissions": True,
            "run_in": "process",
            "prompt": "go on",
        }
        for said in ({"fork_from": copy}, {"resume_session_id": copy}, {"continue_session": True}):
            with pytest.raises(ForkRefused, match="continues a teammate's session"):
                WorkerRequest(unasked | said, "claude", None, world).ready()
        with pytest.raises(ForkRefused, match="continues a teammate's session"):
            fork_session(
                ForkRequest(copy, Options(prompt="go on", place="process", skip_permissions=True), dry_run=True)
            )


def test_one_that_is_written_for_another_agent_is_as_foreign(alice, bob):
    hers = alice.team("push", alice.world.codex(alice.repository, *SAID), "--yes", "--public")["session_id"]

    copy = taken(bob, hers, "--platform", "claude")
    native = bob.world.fork_claude(copy, bob.repository, *MORE)

    assert [True, True] == [ASKING in planned(bob, one) for one in (copy, native)]


@pytest.mark.thorough
def test_codex_takes_its_settings_of_now_and_knows_whose_forks_are_whose(alice, bob):
    hers = alice.team("push", alice.world.codex(alice.repository, *SAID), "--yes", "--public")["session_id"]

    copy = taken(bob, hers)[-36:]
    native = bob.world.codex(bob.repository, *MORE, forked_from_id=copy)

    with bob.here():
        assert [True, True] == [is_others(copy), is_others(native)]
        with pytest.raises(ForkRefused, match="continues a teammate's session"):
            fork_session(ForkRequest(native, Options(prompt="x", place="process", skip_permissions=True), dry_run=True))
    assert "permission" not in planned(bob, native)


@pytest.mark.thorough
def test_ones_own_session_stays_ones_own_when_what_others_made_of_it_comes_back(alice, bob):
    mine = alice.world.claude(alice.repository, *SAID)
    pushed = alice.team("push", mine, "--yes", "--public")["session_id"]
    his = bob.team("fork", pushed)
    log = Path(his["files"][0])
    records = bob.world.claude_records(log.stem, bob.repository, *MORE)
    records[0]["parentUuid"] = READERS["claude"].read(log).session.turns[-1].id
    bob.world.write_claude(log.stem, bob.repository, records, "a")
    back = bob.team("push", "--yes", "--public")["session_id"]

    copy = taken(alice, back)
    forks = [alice.world.fork_claude(one, alice.repository, "now this", "Done") for one in (mine, copy)]

    with alice.here():
        assert [False, True, False, True] == [is_others(one) for one in (mine, copy, *forks)]


@pytest.fixture
def second(bob, tmp_path, team, address, capsys):
    """A second machine of Bob."""
    machine = TeamMachine(tmp_path / "second", "elsewhere/shop", team, capsys)
    machine.invited(address, "bob")
    return machine


@pytest.mark.thorough
def test_ones_own_fork_of_a_teammates_session_is_no_less_foreign_on_another_machine(bob, hers, second):
    his = bob.team("fork", hers)["session_id"]

    pulled = Path(second.team("pull", his)["files"][0]).stem
    own = second.team("pull", bob.team("push", bob.world.claude(bob.repository, *MORE), "--yes")["session_id"])

    assert ASKING in planned(second, pulled)
    assert ASKING not in planned(second, Path(own["files"][0]).stem)


def test_a_copy_that_is_taken_away_again_leaves_nothing_behind(bob, hers, monkeypatch):
    def fork(*_, **__):
        raise ForkRefused("No room.")

    monkeypatch.setattr("smart_fork.forking.start.PreparedWorker.launch", fork)

    assert 1 == bob.do("fork", hers, "go on").code
    assert [] == bob.state("SELECT * FROM foreign_ids")


def test_of_a_fork_that_the_server_does_not_make_nothing_is_here(bob, hers, monkeypatch):
    def refused(*_, **__):
        raise ForkRefused("No room.")

    monkeypatch.setattr("smart_fork.team.client.Client.branch", refused)

    assert 1 == bob.do("team", "fork", hers).code
    assert [] == [*(bob.home / ".claude/projects").rglob("*.jsonl")]
    assert [[], []] == [bob.state(f"SELECT * FROM {table}") for table in ("foreign_ids", "pulled")]  # noqa: S608
