"""Two people on machines of their own, with the real agents, and a real server between them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from smart_fork.teamserver import auth
from smart_fork.teamserver.cluster import OWNER
from tests.e2e.agents import Machine, machine_in
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Message, Protocol, Request
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import heard, unlike_any_other
from tests.e2e.terminals import wait_until
from tests.smart_fork.teamserver.conftest import account, base, database, installed, made, open_folder, pool
from tests.smart_fork.teamserver.machines import serving, team_server

__all__ = ["account", "base", "database", "installed", "made", "open_folder", "pool"]  # the database of a server

pytestmark = pytest.mark.e2e

KEY = "example.org/acme/shop"
SECRET = "sk-ant-api03-" + "x7Kq9" * 18


@dataclass
class Colleague:
    """Somebody with a clone of the project on a machine of his own."""

    machine: Machine
    clone: Path

    def team(self, *words: str) -> Json:
        told: Json = json.loads(self.machine.smart_fork("team", *words, "--json", cwd=self.clone).stdout)
        return told

    def ask(self, agent: Protocol, prompt: str, answer: str, session_id: str = "") -> Log:
        """Have an agent asked something by a script, in a session of its own or in that one; its log."""
        self.machine.model.when(lambda text: text == prompt, answer)
        go_on = {"claude": ("--resume", session_id), "codex": ("resume", session_id)}[agent] if session_id else ()
        words = ("-p", *go_on) if agent == "claude" else ("exec", *go_on)
        self.machine.run(self.machine.programs / agent, *words, "--", prompt, cwd=self.clone)
        return wait_until(lambda: self.machine.find_log(agent, answer), "the answer in the log")

    def sent(self, prompt: str) -> Request:
        return heard(self.machine, prompt)


@pytest.fixture(scope="module")
def people(programs, machines, database, base, pool) -> Iterator[tuple[Colleague, Colleague]]:
    """Alice and Bob, who have logged in to one server. Their clones are at different places."""
    with (
        serving(team_server(pool)) as address,
        machine_in(cache_folder(), programs) as first,
        machine_in(cache_folder(), programs) as second,
    ):
        machines += [first, second]
        with psycopg.connect(database.conninfo(OWNER, base), autocommit=True) as db:
            db.execute("INSERT INTO projects(key) VALUES (%s)", (KEY,))
        yield (joined(first, "shop-of-alice", "alice", address, pool), joined(second, "checkout", "bob", address, pool))


def joined(machine: Machine, folder: str, name: str, address: str, pool) -> Colleague:
    clone = machine.repository(folder)
    subprocess.run(
        ["git", "remote", "add", "origin", "git@example.org:acme/shop.git"], cwd=clone, env=machine.env, check=True
    )
    machine.env |= {"SMART_FORK_BACKGROUND": "0", "HF_HUB_OFFLINE": "1"}
    with pool.asked_by() as db:
        auth.add_user(db, name)
        invitation = auth.invite(db, name, "write")
        auth.set_member(db, KEY, name, "writer")
    one = Colleague(machine, clone)
    one.team("login", address, invitation)
    return one


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_what_one_pushes_the_other_forks_and_goes_on_with(people, agent: Protocol):
    """C-070 to C-076: the model gets exactly her messages and his prompt, with his paths and none of hers.

    What he says in his fork is pushed as one of hers, also what a worker says in a fork that runs at once.
    """
    alice, bob = people
    asked = unlike_any_other(f"Where does {alice.clone}/upload.py retry? The key is {SECRET}")
    answer = unlike_any_other("It retries five times")
    hers = alice.ask(agent, asked, answer)
    arrived = asked.replace(str(alice.clone), str(bob.clone)).replace(SECRET, "[REDACTED:anthropic-key]")

    pushed = alice.team("push", hers.session_id, "--public", "--yes")
    forked = bob.team("fork", pushed["session_id"])
    (log,) = map(Path, forked["files"])
    more, more_answer = unlike_any_other("And the downloader?"), unlike_any_other("Not yet")
    bob.ask(agent, more, more_answer, Log(log).session_id)

    request = bob.sent(more)
    assert [Message("user", arrived), Message("assistant", answer), Message("user", more)] == request.said
    whole = json.dumps(request.body)
    assert [] == [text for text in (str(alice.clone), str(alice.machine.home), SECRET, "\ue0f0") if text in whole]
    assert "permissionMode" not in log.read_text().partition(more)[0]

    back = bob.team("push", "--yes", "--public")
    assert (pushed["session_id"], forked["session_id"], pushed["record_count"]) == (
        back["parent_id"],
        back["session_id"],
        back["base_count"],
    )
    assert back["record_count"] > pushed["record_count"]

    prompt = unlike_any_other("Do the same for the downloader")
    words = ("fork", pushed["session_id"], "--in", "process", "--json", "--", prompt)
    worker = json.loads(bob.machine.smart_fork(*words, cwd=bob.clone).stdout)
    assert [Message("user", arrived), Message("assistant", answer), Message("user", prompt)] == bob.sent(prompt).said
    log_of_worker = wait_until(lambda: bob.machine.find_log(agent, f"Noted: {prompt[:60]}"), "the fork's log")
    bob.machine.smart_fork("wait", worker["worker_id"], cwd=bob.clone)
    there = bob.team("push", log_of_worker.session_id, "--yes", "--public")
    assert (pushed["session_id"], pushed["record_count"]) == (there["parent_id"], there["base_count"])

    seen = {one["session_id"]: one["depth"] for one in alice.team("log", pushed["session_id"])["sessions"]}
    assert {pushed["session_id"]: 0, back["session_id"]: 1, there["session_id"]: 1} == seen

    other: Protocol = "codex" if agent == "claude" else "claude"
    crossed = bob.team("fork", pushed["session_id"], "--platform", other)
    across = unlike_any_other("What did she say?")
    bob.ask(other, across, unlike_any_other("That it retries"), Log(Path(crossed["files"][0])).session_id)
    heard_there = "\n".join(message.text for message in bob.sent(across).said)
    assert arrived in heard_there
    assert answer in heard_there
    assert str(alice.clone) not in json.dumps(bob.sent(across).body)


@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_fork_of_which_something_was_withdrawn_is_gone_on_with(people, agent: Protocol):
    """The model gets what is left, and nothing of what went."""
    alice, bob = people
    slip, slip_answer = unlike_any_other("Our customer is Acme"), unlike_any_other("I shall remember")
    kept, kept_answer = unlike_any_other("And where are the docs?"), unlike_any_other("They are in docs")
    hers = alice.ask(agent, slip, slip_answer)
    alice.ask(agent, kept, kept_answer, hers.session_id)
    pushed = alice.team("push", hers.session_id, "--public", "--yes")
    (log,) = map(Path, bob.team("fork", pushed["session_id"])["files"])
    assert slip in log.read_text()

    alice.team("excise", "cut", "1-2", pushed["session_id"], "--yes")
    assert [str(log)] == bob.team("sync")["changed"]
    assert not any(text in log.read_text() for text in (slip, slip_answer))
    more = unlike_any_other("What else?")
    bob.ask(agent, more, unlike_any_other("Nothing else"), Log(log).session_id)

    request = bob.sent(more)
    assert [Message("user", kept), Message("assistant", kept_answer), Message("user", more)] == request.said
    assert not any(text in json.dumps(request.body) for text in (slip, slip_answer))
    assert 0 < bob.team("push", "--yes")["pushed_records"]


@pytest.mark.parametrize(("agent", "other"), [("claude", "codex"), ("codex", "claude")])
def test_what_one_pushes_the_other_goes_on_with_in_another_agent(people, agent: Protocol, other: Protocol):
    """The real program resumes what another one's session was written as; its model gets exactly what was said."""
    alice, bob = people
    asked, answer = unlike_any_other(f"Who reads {alice.clone}/queue.py?"), unlike_any_other("The worker does")
    pushed = alice.team("push", alice.ask(agent, asked, answer).session_id, "--public", "--yes")

    forked = bob.team("fork", pushed["session_id"], "--platform", other)
    (log,) = map(Path, forked["files"])
    more, more_answer = unlike_any_other("And who writes it?"), unlike_any_other("The uploader")
    bob.ask(other, more, more_answer, Log(log).session_id)

    arrived = asked.replace(str(alice.clone), str(bob.clone))
    assert [Message("user", arrived), Message("assistant", answer), Message("user", more)] == bob.sent(more).said
    assert more_answer in log.read_text()
    back = bob.team("push", str(log), "--public", "--yes")
    assert (other, None) == (back["agent"], back["parent_id"])
