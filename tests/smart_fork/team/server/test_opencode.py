"""Sessions of OpenCode, which are rows of a database: pushed, pulled, forked, continued and withdrawn."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.agents.log_readers import READERS
from smart_fork.agents.portable_records import HomePlace, TargetSession, Utterance
from tests.smart_fork.agents.opencode import database
from tests.smart_fork.team.server.test_two_people import said, second_machine  # noqa: F401
from tests.smart_fork.team.server.test_withdrawal import LEFT, OWN, OWN_ANSWER, SAID, SECRET, carol, later

__all__ = ["carol"]
NEW = "ses_00112233445566778899aabbcc"


def equipped(machine) -> Path:
    database.program(machine.home / "bin")
    with machine.here():
        return database.make()


def told(machine, session_id: str, texts: tuple[str, ...], hour: int) -> dict:
    moments = (f"2026-11-24T{hour}:0{number}:00.000Z" for number in range(len(texts)))
    utterances = [Utterance(not number % 2, *one) for number, one in enumerate(zip(texts, moments, strict=True))]
    place = HomePlace(str(machine.repository), str(machine.home))
    (document,) = AGENTS.converter_of("opencode").log_of(utterances, TargetSession(session_id, place))
    return document


def written(machine, *texts: str) -> str:
    path = equipped(machine)
    database.take(path, told(machine, NEW, texts, 10))
    database.change(path, "UPDATE session SET directory = ?, title = 't' WHERE id = ?", str(machine.repository), NEW)
    return NEW


def go_on(machine, log: str, *texts: str) -> None:
    """Continue a session, as the program does."""
    session_id = Path(log).name
    for message in told(machine, f"{session_id}x", texts, 12)["messages"]:
        info = message["info"]
        when = info["time"]["created"]
        say = "INSERT INTO message VALUES (?, ?, ?, ?, ?)"
        database.change(Path(log).parent, say, info["id"], session_id, when, when, json.dumps(info))
        for part in message["parts"]:
            say = "INSERT INTO part VALUES (?, ?, ?, ?, ?, ?)"
            database.change(Path(log).parent, say, part["id"], info["id"], session_id, when, when, json.dumps(part))


def having(machine) -> list[str]:
    found = [one for one in machine.home.rglob("*") if one.is_file() and SECRET.encode() in one.read_bytes()]
    return [one.name for one in found]


@contextlib.contextmanager
def running(log: str) -> Iterator[None]:
    """A process that has the database open, as OpenCode has."""
    holding = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); db.execute('PRAGMA journal_mode = WAL'); "
    holding += "db.execute('SELECT * FROM part').fetchone(); print(1, flush=True); sys.stdin.read()"
    words = [sys.executable, "-c", holding, str(Path(log).parent)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        yield
        process.stdin.close()


@pytest.mark.thorough
def test_what_is_excised_is_in_nobodys_database_after_the_next_command(alice, bob, second_machine):  # noqa: F811
    pushed = alice.team("push", written(alice, *SAID), "--public", "--yes")
    for one in (bob, second_machine):
        equipped(one)
    fork = bob.team("fork", pushed["session_id"])["files"][0]
    pulled = second_machine.team("pull", pushed["session_id"])["files"][0]
    assert [*SAID] == said("opencode", fork) == said("opencode", pulled)
    go_on(bob, fork, OWN, OWN_ANSWER)
    back = bob.team("push", "--yes")
    assert (pushed["session_id"], 6, 2) == (back["parent_id"], back["base_count"], back["pushed_records"])
    assert having(bob)

    done = alice.team("excise", "cut", "3-4", pushed["session_id"], "--yes")
    for one in (bob, second_machine):
        later(one)
    with running(fork):
        assert [fork] == list(bob.team("sync")["put_off"])
    again = bob.team("push", "--yes")
    second_machine.team("pull", pushed["session_id"])

    assert (2, 1) == (done["cut"], done["descendants"])
    assert again["up_to_date"]
    assert [*LEFT, OWN, OWN_ANSWER] == said("opencode", fork)
    assert LEFT == said("opencode", pulled)
    assert ([], []) == (having(bob), having(second_machine))


@pytest.mark.thorough
def test_what_is_deleted_everywhere_is_gone_but_for_what_was_said_since(alice, bob, carol):
    pushed = alice.team("push", written(alice, *SAID), "--public", "--yes")
    for one in (bob, carol):
        equipped(one)
    forks = {one: one.team("fork", pushed["session_id"])["files"][0] for one in (bob, carol)}
    go_on(bob, forks[bob], OWN, OWN_ANSWER)

    alice.team("delete", pushed["session_id"], "--everywhere", "--yes")

    assert [forks[bob]] == bob.team("sync")["changed"]
    synced = carol.team("sync")
    assert ([forks[carol]], {}) == (synced["removed"], synced["put_off"]), (
        synced,
        carol.state("SELECT * FROM pulled"),
    )
    assert [OWN, OWN_ANSWER] == said("opencode", forks[bob])
    assert ([], []) == (having(bob), having(carol))
    with carol.here():
        assert READERS["opencode"].log_at(forks[carol]) is None


@pytest.mark.parametrize("others", ["claude", pytest.param("codex", marks=pytest.mark.thorough)])
@pytest.mark.slow
def test_it_is_forked_for_another_agent_and_back(alice, bob, others):
    pushed = alice.team("push", written(alice, *LEFT), "--public", "--yes")
    crossed = bob.team("fork", pushed["session_id"], "--platform", others)["files"][0]
    assert LEFT == said(others, crossed)

    back = bob.team("push", crossed, "--public", "--yes")
    again = alice.team("fork", back["session_id"], "--platform", "opencode")["files"][0]

    assert LEFT == said("opencode", again)


@pytest.mark.thorough
def test_of_a_branch_at_a_message_and_of_more_that_is_said_only_what_is_new_is_sent(alice):
    pushed = alice.team("push", written(alice, *SAID), "--yes")
    branched = alice.team("branch", pushed["session_id"], "--at", "2")["files"][0]
    assert [*SAID[:2]] == said("opencode", branched)

    go_on(alice, branched, OWN, OWN_ANSWER)
    more = alice.team("push", "--yes")

    assert (2, 2) == (more["base_count"], more["pushed_records"])
