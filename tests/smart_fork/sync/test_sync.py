"""Tests of one person's sessions on two machines, synchronized over a bare repository."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from smart_fork.sharing.outgoing import NotSent, prepare
from tests.smart_fork import checkpoint_repository
from tests.smart_fork.sync.two_machines import REF, Machines, machines
from tests.smart_fork.world import git

pytestmark = pytest.mark.slow

__all__ = ["machines"]

SAID = ("Why does the upload fail at 413?", "The proxy limits the body to 1 MB")
ALICES = "60309e1e-0000-4000-8000-0000000000a1"
SECRET = "ghp_" + "a1B2c3D4e5F6g7H8i9J0" + "k1L2m3N4o5P6q7R8"


def moved(machines: Machines, *said: str, agent: str = "claude") -> tuple[str, str]:
    """Synchronize a session from the laptop to the desktop, and return its ids on both."""
    write = getattr(machines.laptop.world, agent)
    session = write(machines.laptop.repository, *(said or SAID))
    machines.set_up()
    machines.laptop.sync()
    (one,) = machines.desktop.sync()["received"]
    return session, one["session_id"]


def say_more(machine, session: str, prompt: str, answer: str) -> None:
    """Continue a session of Claude Code."""
    path = next(machine.home.rglob(f"{session}.jsonl"))
    records = [json.loads(line) for line in path.read_text().splitlines()]
    last = next(one for one in reversed(records) if "uuid" in one)
    more = machine.world.claude_records(session, machine.repository, prompt, answer)
    more[0]["parentUuid"] = last["uuid"]
    path.write_text("".join(json.dumps(one) + "\n" for one in [*records, *more]))


def reachable(machines: Machines) -> bytes:
    """Return all bytes that can be reached from the ref of the remote."""
    names = [line.split()[0] for line in machines.git("rev-list", "--objects", REF).splitlines()]
    return b"".join(
        subprocess.run(["git", "-C", machines.remote, "cat-file", "-p", name], check=True, capture_output=True).stdout
        for name in names
    )


@pytest.mark.parametrize("agent", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
def test_a_session_of_one_machine_is_found_and_forked_on_the_other(machines, agent):
    _, there = moved(machines, agent=agent)
    assert machines.desktop.ids() == {there}
    assert there in str(machines.desktop.do("find", "upload fails 413", "--json").json)
    said = machines.desktop.do("fork", there, "Raise the limit", "--dry-run", "--json")
    assert said.code == 0, said.err
    assert str(machines.laptop.repository) not in machines.desktop.logs()
    assert str(machines.desktop.repository) in machines.desktop.logs()
    assert (machines.laptop.sync()["sent"], machines.desktop.sync()["sent"]) == ([], [])
    assert machines.desktop.sync()["received"] == []


def test_the_remote_learns_neither_text_nor_names(machines):
    session, _ = moved(machines, f"The token is {SECRET}. {SAID[0]}", SAID[1])
    told = reachable(machines)
    for secret in (session, "shop", "answers 413", "proxy", "claude", "laptop", "example.org", "Test"):
        assert secret.encode() not in told
    assert SECRET not in machines.desktop.logs()
    assert SAID[0] in machines.desktop.logs()


def test_a_session_that_grew_is_the_same_session_on_the_other_machine(machines):
    session, there = moved(machines)
    say_more(machines.laptop, session, "And downloads?", "They have no limit")
    machines.laptop.sync()
    (one,) = machines.desktop.sync()["received"]
    assert one["session_id"] == there
    assert machines.desktop.ids() == {there}
    assert "They have no limit" in machines.desktop.logs()


def test_a_copy_that_was_continued_goes_back_as_a_session_of_its_own(machines):
    session, there = moved(machines)
    say_more(machines.desktop, there, "And downloads?", "They have no limit")
    assert [one["session_id"] for one in machines.desktop.sync()["sent"]] == [there]
    (one,) = machines.laptop.sync()["received"]
    assert machines.laptop.ids() == {session, one["session_id"]}
    say_more(machines.laptop, session, "And mail?", "It has another limit")
    machines.laptop.sync()
    (two,) = machines.desktop.sync()["received"]
    assert machines.desktop.ids() == {there, two["session_id"]}
    assert [machine.sync()["sent"] for machine in (machines.laptop, machines.desktop)] == [[], []]


def test_what_is_withdrawn_goes_from_the_remote_and_the_other_machine(machines):
    session, there = moved(machines)
    before = set(machines.files().values())
    assert len(machines.laptop.sync("withdraw", session)["withdrawn"]) == 1
    assert before.isdisjoint(machines.git("rev-list", "--objects", REF).split())
    assert machines.desktop.ids() == {there}
    assert [one["session_id"] for one in machines.desktop.sync()["withdrawn"]] == [there]
    assert machines.desktop.ids() == set()
    assert '"results": []' in machines.desktop.do("find", "upload fails 413", "--json").out
    assert SAID[0] not in machines.desktop.logs()
    assert machines.laptop.ids() == {session}
    for machine in (machines.laptop, machines.desktop):
        said = machine.sync()
        assert (said["sent"], said["received"], said["withdrawn"]) == ([], [], [])


@pytest.mark.thorough
def test_it_is_withdrawn_from_the_machine_that_received_it_as_well(machines):
    session, there = moved(machines)
    machines.desktop.sync("withdraw", there)
    assert machines.desktop.ids() == set()
    machines.laptop.sync()
    assert machines.laptop.ids() == {session}
    assert len(machines.files()) == 1


@pytest.mark.thorough
def test_what_is_withdrawn_goes_from_a_copy_that_was_continued(machines):
    session, there = moved(machines)
    say_more(machines.desktop, there, "And downloads?", "They have no limit")
    machines.laptop.sync("withdraw", session)
    machines.desktop.sync()
    assert SAID[0] not in machines.desktop.logs()
    assert "They have no limit" in machines.desktop.logs()


def test_a_forgotten_session_is_withdrawn(machines):
    session, _ = moved(machines)
    assert machines.laptop.do("forget", session, "--yes").code == 0
    assert len(machines.laptop.sync()["withdrawn"]) == 1
    machines.desktop.sync()
    assert SAID[0] not in machines.desktop.logs()
    machines.laptop.do("forget", session, "--undo")
    assert machines.laptop.sync()["sent"] == []


@pytest.mark.parametrize("continued", [pytest.param(False, marks=pytest.mark.thorough), True])
def test_what_was_cut_out_of_a_session_is_cut_out_of_its_copies(machines, continued):
    session, there = moved(machines, *SAID, "The customer is Miller & Sons", "I see", "And mail?", "No limit there")
    if continued:
        say_more(machines.desktop, there, "And downloads?", "They have no limit")
    before = set(machines.files().values())
    said = machines.laptop.do("excise", "cut", "2-3", session, "--yes")
    assert said.code == 0, said.err
    machines.laptop.sync()
    assert before.isdisjoint(machines.git("rev-list", "--objects", REF).split())
    machines.desktop.sync()
    assert "Miller" not in machines.desktop.logs()
    assert "No limit there" in machines.desktop.logs()
    assert ("They have no limit" in machines.desktop.logs()) == continued
    assert (
        machines.desktop.do("find", "Miller & Sons customer", "--json").out.count("Miller & Sons") <= 1
    )  # the question
    assert there in machines.desktop.ids()


def test_a_dry_run_changes_nothing(machines):
    machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    assert len(machines.laptop.sync("--dry-run")["sent"]) == 1
    assert machines.git("for-each-ref") == ""
    machines.laptop.sync()
    assert len(machines.desktop.sync("--dry-run")["received"]) == 1
    assert machines.desktop.ids() == set()


def test_only_repositories_that_were_added_take_part(machines):
    other = machines.laptop.world.repository("other")
    machines.laptop.world.claude(other, "What about wombats?", "They are shy")
    machines.set_up()
    assert machines.laptop.sync()["sent"] == []
    assert machines.laptop.do("sync", "add", "--project", str(other)).code == 0
    assert len(machines.laptop.sync()["sent"]) == 1
    said = machines.desktop.sync()
    assert (said["received"], [one["directory"] for one in said["waiting"]]) == ([], [str(other)])
    assert "wombats" not in machines.desktop.logs()
    machines.laptop.do("sync", "remove", "--project", str(other))
    assert machines.laptop.sync()["withdrawn"] == []


@pytest.mark.thorough
def test_a_fork_of_the_repository_waits_until_its_directory_is_adopted(machines):
    git(machines.desktop.repository, "remote", "set-url", "origin", "git@example.org:somebody/shop.git")
    machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    machines.laptop.sync()
    said = machines.desktop.sync()
    assert (said["received"], len(said["waiting"])) == ([], 1)
    there = said["waiting"][0]["directory"]
    Path(there).rename(f"{there}-is-on-another-machine")
    machines.desktop.sync()
    assert there in machines.desktop.do("project", "--json").json["maybe"]
    assert machines.desktop.do("project", "adopt", there).code == 0
    assert len(machines.desktop.sync()["received"]) == 1
    assert len(machines.desktop.ids()) == 1


@pytest.mark.thorough
def test_a_directory_that_is_never_shared_does_not_take_part(machines):
    session, _ = moved(machines)
    config = machines.laptop.home / ".smart-fork/config.toml"
    config.write_text(f'[team]\nnever = ["{machines.laptop.repository}"]\n')
    machines.laptop.world.claude(machines.laptop.repository, "Another?", "Another one")
    said = machines.laptop.sync()
    assert ([], [session]) == (said["sent"], [one["session_id"] for one in said["withdrawn"]])


def test_a_session_with_messages_of_a_teammate_is_not_sent(machines):
    from smart_fork import provenance

    session = machines.laptop.world.claude(machines.laptop.repository, *SAID)
    with machines.laptop.here():
        provenance.remember_foreign(session, [])
    machines.set_up()
    assert machines.laptop.sync()["sent"] == []


@pytest.mark.thorough
def test_a_session_that_the_repository_keeps_is_not_sent(machines):
    laptop = machines.laptop
    kept = checkpoint_repository.claude(laptop.world, ALICES, *SAID)
    checkpoint_repository.commit(
        laptop.repository, "a1b2c3d4e5f6", checkpoint_repository.session(ALICES, kept), session_id=ALICES
    )
    machines.set_up()
    assert laptop.ids() == {ALICES}
    assert laptop.sync()["sent"] == []
    (log,) = (one["jsonl_path"] for one in laptop.do("list", "--json").json["sessions"])
    with laptop.here(), pytest.raises(NotSent, match="The repository keeps this session"):
        prepare(Path(log), "claude", laptop.repository)


@pytest.mark.thorough
def test_a_copy_that_was_deleted_does_not_come_back_until_it_grows(machines):
    session, there = moved(machines)
    next(machines.desktop.home.rglob(f"{there}.jsonl")).unlink()
    assert machines.desktop.sync()["received"] == []
    say_more(machines.laptop, session, "And downloads?", "They have no limit")
    machines.laptop.sync()
    assert len(machines.desktop.sync()["received"]) == 1


@pytest.mark.thorough
def test_a_log_that_its_agent_deleted_stays_on_the_remote(machines):
    session, there = moved(machines)
    next(machines.laptop.home.rglob(f"{session}.jsonl")).unlink()
    said = machines.laptop.sync()
    assert (said["withdrawn"], said["received"]) == ([], [])
    machines.desktop.sync()
    assert machines.desktop.ids() == {there}


def test_what_was_done_is_printed(machines):
    session = machines.laptop.world.claude(machines.laptop.repository, *SAID)
    machines.set_up()
    said = machines.laptop.do("sync")
    assert (
        f"  sent       {session[:13]}  Why does the upload fail at 413?\n1 sent, 0 received, 0 withdrawn.\n" == said.out
    )
    assert "1 received" in machines.desktop.do("sync").out
    assert machines.desktop.do("sync").out == "0 sent, 0 received, 0 withdrawn.\n"
