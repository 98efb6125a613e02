"""Shared sessions of agents with sessions that cannot be cut: they can only be withdrawn as a whole, and errors say
so.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.copier import NewSession
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace, TargetSession, Utterance
from smart_fork.sharing.withdrawal import is_rewritten
from tests.smart_fork.team.server.test_two_people import said
from tests.smart_fork.team.server.test_withdrawal import LEFT, OWN, OWN_ANSWER, SAID, SECRET, carol, having

pytestmark = pytest.mark.thorough

__all__ = ["carol"]

UNCUT = [agent.name for agent in AGENTS if agent.has("converter") and is_rewritten(agent.name)]


def told(machine, agent: str, session_id: str, *texts: str) -> list[dict]:
    """A log with these messages, as its agent writes it."""
    utterances = [
        Utterance(not number % 2, text, f"2026-11-23T10:0{number}:00.000Z") for number, text in enumerate(texts)
    ]
    place = HomePlace(str(machine.repository), str(machine.home))
    return list(AGENTS.converter_of(agent).log_of(utterances, TargetSession(session_id, place)))


def written(machine, agent: str, *texts: str) -> str:
    session_id = str(uuid.uuid4())
    with machine.here():
        log = AGENTS.copier_of(agent).place(Path("log"), NewSession(session_id, machine.repository, datetime.now(UTC)))
        log.parent.mkdir(parents=True)
        (log.parents[1] / ".project_root").write_text(str(machine.repository))
        write(log, told(machine, agent, session_id, *texts))
    return session_id


def write(log: Path, records: list[dict]) -> None:
    with log.open("a") as file:
        file.writelines(json.dumps(record) + "\n" for record in records)


def go_on(machine, log: str, agent: str, *texts: str) -> None:
    new = told(machine, agent, str(uuid.uuid4()), *texts)[-len(texts) :]
    if "parentId" in new[0]:
        new[0]["parentId"] = json.loads(Path(log).read_text().splitlines()[-1])["id"]
    write(Path(log), new)


@contextlib.contextmanager
def running(agent: str, log: str) -> Iterator[None]:
    """A process that looks like the agent, which continues the session."""
    session_id = READERS[agent].id_of(Path(log))
    words = [agent, "-c", "import sys; print(flush=True); sys.stdin.read()", f"--resume={session_id}", session_id]
    with subprocess.Popen(words, executable=sys.executable, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield
        process.stdin.close()


@pytest.mark.parametrize("agent", UNCUT)
def test_what_was_forked_is_gone_on_with_pushed_on_top_and_withdrawn_by_deleting_it_everywhere(
    alice, bob, carol, agent
):
    pushed = alice.team("push", written(alice, agent, *SAID), "--public", "--yes")
    forks = {one: one.team("fork", pushed["session_id"])["files"][0] for one in (bob, carol)}
    assert list(SAID) == said(agent, forks[bob])
    assert str(alice.home) not in Path(forks[bob]).read_text()
    go_on(bob, forks[bob], agent, OWN, OWN_ANSWER)
    back = bob.team("push", "--yes")
    assert (pushed["session_id"], pushed["record_count"], 2) == (
        back["parent_id"], back["base_count"], back["pushed_records"],
    )  # fmt: skip

    refused = alice.do("team", "excise", "cut", "3-4", pushed["session_id"], "--yes", "--json")
    assert f"Messages of shared sessions of {AGENTS.title_of(agent)} cannot be withdrawn" in refused.out
    assert "--everywhere" in refused.out
    alice.team("delete", pushed["session_id"], "--everywhere", "--yes")

    with running(agent, forks[bob]):
        assert [forks[bob]] == list(bob.team("sync")["put_off"])
    assert [forks[bob]] == bob.team("sync")["changed"]
    assert [forks[carol]] == carol.team("sync")["removed"]
    assert [OWN, OWN_ANSWER] == said(agent, forks[bob])
    assert ([], []) == (having(bob), having(carol))
    assert bob.team("push", "--yes")["up_to_date"]
    assert SECRET in "".join(SAID)


@pytest.mark.parametrize("agent", UNCUT)
def test_a_name_that_was_made_of_what_is_withdrawn_is_beside_no_copy(alice, bob, agent):
    pushed = alice.team("push", written(alice, agent, f"remember {SECRET}", *SAID[1:]), "--public", "--yes")
    fork = bob.team("fork", pushed["session_id"])["files"][0]
    go_on(bob, fork, agent, OWN, OWN_ANSWER)

    alice.team("delete", pushed["session_id"], "--everywhere", "--yes")
    bob.team("sync")

    assert [OWN, OWN_ANSWER] == said(agent, fork)
    assert [] == having(bob)


@pytest.mark.parametrize("agent", UNCUT)
def test_a_copy_that_tells_another_agents_session_follows(alice, bob, agent):
    pushed = alice.team("push", written(alice, agent, *LEFT), "--public", "--yes")
    told_as = bob.team("fork", pushed["session_id"], "--platform", "claude")["files"][0]
    back = bob.team("push", told_as, "--public", "--yes")
    crossed = alice.team("fork", back["session_id"], "--platform", agent)["files"][0]
    go_on(alice, crossed, agent, OWN, OWN_ANSWER)

    bob.team("delete", back["session_id"], "--everywhere", "--yes")

    assert [crossed] == alice.team("sync")["changed"]
    assert [OWN, OWN_ANSWER] == said(agent, crossed)
