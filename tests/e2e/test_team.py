"""Two people on machines of their own, with the real agents, and a real server between them."""

from __future__ import annotations

import contextlib
import json
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psycopg
import pytest

from smart_fork.agents import AGENTS
from smart_fork.finding import session_lookup
from smart_fork.team.server import auth
from smart_fork.team.server.postgres_process import OWNER
from tests.e2e import test_opencode
from tests.e2e.agents import Machine, machine_in
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Message, Protocol, Request
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import ask, each_agent, heard, settled, unlike_any_other
from tests.e2e.terminals import wait_until
from tests.e2e.test_handing_over import laid_out, with_others
from tests.smart_fork.team.server.conftest import account, base, database, installed, made, open_folder, pool
from tests.smart_fork.team.server.machines import serving, team_server
from tests.smart_fork.team.server.test_serve import Running

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

    def knows(self, intent: str, session_id: str, database: psycopg.Connection) -> None:
        """Wait until his server has indexed a session, and has its model at hand."""
        waiting = "SELECT 1 FROM jobs WHERE session_id = %s"
        wait_until(lambda: database.execute(waiting, (session_id,)).fetchone() is None, "the session to be indexed")
        assert session_id in [hit["session_id"] for hit in self.team("find", intent)["results"]]

    def copies_of(self, session_id: str) -> set[Path]:
        """The logs here that were written of a shared session."""
        tracked = json.loads((self.clone / ".smart-fork" / "tracking.json").read_text())["aliases"].values()
        return {Path(file) for one in tracked if one["parentId"] == session_id for file in one["files"]}


@pytest.fixture(scope="module")
def elsewhere(database, base, installed, open_folder) -> Iterator[str]:
    """Where a second server listens, which is another program with the same database."""
    dsn = ("--dsn", database.conninfo(OWNER, base))
    with contextlib.closing(Running(open_folder / "elsewhere" / "data", installed, *dsn)) as running:
        yield running.told["url"]


@pytest.fixture(scope="module")
def people(programs, machines, owner, pool, elsewhere) -> Iterator[tuple[Colleague, Colleague]]:
    """Alice and Bob, who have logged in to a server each, of one database. Their clones are at different places."""
    with (
        serving(team_server(pool)) as address,
        machine_in(cache_folder(), programs) as first,
        machine_in(cache_folder(), programs) as second,
    ):
        machines += [first, second]
        owner.execute("INSERT INTO projects(key) VALUES (%s)", (KEY,))
        alice = joined(first, "shop-of-alice", "alice", address, pool)
        yield (alice, joined(second, "checkout", "bob", elsewhere, pool))


@pytest.fixture(scope="module")
def owner(database, base) -> Iterator[psycopg.Connection]:
    """A connection as who owns the tables."""
    with psycopg.connect(database.conninfo(OWNER, base), autocommit=True) as db:
        yield db


def joined(machine: Machine, folder: str, name: str, address: str, pool) -> Colleague:
    clone = machine.repository(folder)
    subprocess.run(
        ["git", "remote", "add", "origin", "git@example.org:acme/shop.git"], cwd=clone, env=machine.env, check=True
    )
    machine.env |= {"SMART_FORK_BACKGROUND": "0", "HF_HUB_OFFLINE": "1"}
    machine.add_smart_fork()
    with pool.transaction() as db:
        auth.add_user(db, name)
        invitation = auth.invite(db, name, "write")
        auth.set_member(db, KEY, name, "writer")
    one = Colleague(machine, clone)
    one.team("login", address, invitation)
    return one


ABOUT = {"claude": "retry with backoff in the uploader", "codex": "in which currency invoices are rounded"}


@each_agent(thorough="claude")
def test_what_one_pushes_the_other_finds_forks_and_goes_on_with(people, owner, agent: Protocol):
    """C-070 to C-076: the model gets exactly her messages and his prompt, with his paths and none of hers.

    He finds it by a command, and from inside each of his agents, which starts the fork; she asks one server, he
    another one of the same database. What is said in a fork is pushed as one of hers.
    """
    alice, bob = people
    other: Protocol = "codex" if agent == "claude" else "claude"
    asked = unlike_any_other(f"{ABOUT[agent]}: see {alice.clone}/upload.py and the key {SECRET}")
    answer = unlike_any_other("It is done five times")
    hers = alice.ask(agent, asked, answer)
    arrived = asked.replace(str(alice.clone), str(bob.clone)).replace(SECRET, "[REDACTED:anthropic-key]")
    pushed = alice.team("push", hers.session_id, "--public", "--yes")
    bob.knows(ABOUT[agent], pushed["session_id"], owner)

    found = json.loads(bob.machine.smart_fork("find", ABOUT[agent], "--json", cwd=bob.clone).stdout)
    assert (pushed["session_id"], "alice") == (
        found["results"][0]["session_id"],
        found["results"][0]["origin"]["owner"],
    )

    words = {"intent": ABOUT[agent], "run_in": "process"}
    prompts = [unlike_any_other("Do the same for the downloader") for _ in range(2)]
    first = {**words, "agent_type": agent, "fork_index": 0, "prompt": prompts[0]}
    second = {**words, "fork_session_id": pushed["session_id"], "prompt": prompts[1]}
    (one,), _ = ask(bob.machine, agent, bob.clone, ("smart_fork", first))
    (two,), _ = ask(bob.machine, other, bob.clone, ("smart_fork", second))

    assert ["team", "team"] == [told.get("resolved") for told in (one, two)], (one, two)
    for told, prompt in zip((one, two), prompts, strict=True):
        request = bob.sent(prompt)
        assert [Message("user", arrived), Message("assistant", answer), Message("user", prompt)] == request.said
        whole = json.dumps(request.body)
        assert [] == [text for text in (str(alice.clone), str(alice.machine.home), SECRET, "\ue0f0") if text in whole]
        assert ("--permission-mode default" in told["forked_session"]["command"]) == (agent == "claude")
    (copy,) = bob.copies_of(pushed["session_id"])
    assert "permissionMode" not in copy.read_text()

    worker = wait_until(lambda: bob.machine.find_log(agent, f"Noted: {prompts[0][:60]}"), "the fork's log")
    bob.machine.smart_fork("wait", one["forked_session"]["worker_id"], cwd=bob.clone)
    back = bob.team("push", worker.session_id, "--yes", "--public")
    assert (pushed["session_id"], pushed["record_count"]) == (back["parent_id"], back["base_count"])
    seen = {one["session_id"]: one["depth"] for one in alice.team("log", pushed["session_id"])["sessions"]}
    assert {pushed["session_id"]: 0, back["session_id"]: 1} == seen


@pytest.mark.thorough
@pytest.mark.parametrize(("agent", "other"), [("claude", "codex"), ("codex", "claude")])
def test_forks_of_which_something_was_withdrawn_are_gone_on_with(people, agent: Protocol, other: Protocol):
    """The model gets what is left, and nothing of what went: in the agent whose session it was, and in another one."""
    alice, bob = people
    slip, slip_answer = unlike_any_other("Our customer is Acme"), unlike_any_other("I shall remember")
    kept, kept_answer = unlike_any_other("And where are the docs?"), unlike_any_other("They are in docs")
    hers = alice.ask(agent, slip, slip_answer)
    alice.ask(agent, kept, kept_answer, hers.session_id)
    pushed = alice.team("push", hers.session_id, "--public", "--yes")
    (crossed,) = map(Path, bob.team("fork", pushed["session_id"], "--platform", other)["files"])
    (log,) = map(Path, bob.team("fork", pushed["session_id"])["files"])
    assert slip in log.read_text()
    assert slip in crossed.read_text()

    alice.team("excise", "cut", "1-2", pushed["session_id"], "--yes")
    assert {str(log), str(crossed)} == set(bob.team("sync")["changed"])
    for changed, goes_on in ((crossed, other), (log, agent)):
        assert not any(text in changed.read_text() for text in (slip, slip_answer))
        more = unlike_any_other("What else?")
        bob.ask(goes_on, more, unlike_any_other("Nothing else"), Log(changed).session_id)

        request = bob.sent(more)
        assert [Message("user", kept), Message("assistant", kept_answer), Message("user", more)] == request.said
        assert not any(text in json.dumps(request.body) for text in (slip, slip_answer))
    assert 0 < bob.team("push", "--yes")["pushed_records"]


@pytest.mark.thorough
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
    first, *rest = bob.sent(more).said
    assert first.text.endswith(f"\n\n{arrived}"), "below what says that tool output is data"
    assert [Message("assistant", answer), Message("user", more)] == rest
    assert more_answer in log.read_text()
    back = bob.team("push", str(log), "--public", "--yes")
    assert (other, None) == (back["agent"], back["parent_id"])


#: The agents of whose sessions one is put there as its own program wrote it, with her secret in the place of a word.
OTHERS = {"qwen": "RETRIES = 3", "gemini": "zebra", "copilot": "retry = 1", "opencode": "def upload"}


@pytest.fixture(scope="module")
def equipped_people(
    people, qwen_program: Path, gemini_program: Path, copilot_program: Path, opencode_program: Path
) -> tuple[Colleague, Colleague]:
    """Bob has the other agents as well."""
    with_others(people[1].machine, qwen_program, gemini_program, copilot_program, opencode_program)
    test_opencode.at_home(people[1].machine)
    return people


@pytest.mark.thorough
@pytest.mark.parametrize(("agent", "word"), OTHERS.items(), ids=OTHERS)
def test_a_session_of_another_agent_that_one_pushes_is_forked_and_gone_on_with_by_the_other(
    equipped_people, agent: str, word: str, monkeypatch: pytest.MonkeyPatch
):
    """As its own program wrote it: what was said, calls, what came back; with his paths, and without her secret."""
    alice, bob = equipped_people
    for name in (*AGENTS.home_variables(), "SMART_FORK_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(alice.machine.home))
    hers = laid_out(
        agent, alice.clone, lambda text: text.replace("/home/ada/shop", str(alice.clone)).replace(word, SECRET)
    )
    said = session_lookup.read(session_lookup.locate(hers)).messages
    pushed = alice.team("push", hers, "--public", "--yes")
    prompt = unlike_any_other("Do the same for the downloader")

    words = ("--in", "process", "--no-brief", "--json", "--", prompt)
    told = json.loads(bob.machine.smart_fork("fork", pushed["session_id"], *words, cwd=bob.clone).stdout)
    fork = settled(bob.machine, told)

    def arrived(text: str) -> str:
        return text.replace(str(alice.clone), str(bob.clone)).replace(SECRET, "[REDACTED:anthropic-key]")

    request = bob.sent(prompt)
    own = [Message(one.role, one.text.strip()) for one in request.said if not one.text.startswith("<")]
    assert [*(Message(turn.role, arrived(turn.text)) for _, turn in said), Message("user", prompt)] == own
    whole = json.dumps(request.body)
    assert "[REDACTED:anthropic-key]" in whole
    assert [] == [text for text in (str(alice.clone), str(alice.machine.home), SECRET, "\ue0f0") if text in whole]
    assert (fork["agent_type"], fork["resolved"], fork["warnings"]) == (agent, "team", [])


@pytest.mark.thorough  # a rarer session
@each_agent()
def test_a_session_that_broke_off_after_a_result_is_forked_and_gone_on_with(people, agent: Protocol):
    """The model gets the call and its result, which her session ended with, and then his prompt."""
    alice, bob = people
    hers = alice.ask(agent, unlike_any_other("Read the queue"), unlike_any_other("It is read"))
    output = unlike_any_other("def queue")
    (_broken_off_claude if agent == "claude" else _broken_off_codex)(hers, output)
    pushed = alice.team("push", hers.session_id, "--public", "--yes")

    (log,) = map(Path, bob.team("fork", pushed["session_id"])["files"])
    prompt = unlike_any_other("Go on")
    bob.ask(agent, prompt, unlike_any_other("Done"), Log(log).session_id)

    body = json.dumps(bob.sent(prompt).body)
    assert body.index("call_brokenoff") < body.index(output) < body.index(prompt)


def _broken_off_claude(hers: Log, output: str) -> None:
    prompt = next(one for one in hers.records if one["type"] == "user" and "uuid" in one)
    said = next(one for one in reversed(hers.records) if one["type"] == "assistant")
    call = {"type": "tool_use", "id": "call_brokenoff", "name": "Read", "input": {"file_path": "queue.py"}}
    result = {"type": "tool_result", "tool_use_id": call["id"], "content": output}
    answer = said["message"] | {"id": "msg_brokenoff", "content": [call], "stop_reason": "tool_use"}
    parent = said["uuid"]
    with hers.path.open("a") as log:
        for record in (
            prompt | {"message": {"role": "user", "content": "and now?"}},
            said | {"message": answer},
            prompt | {"message": {"role": "user", "content": [result]}},
        ):
            record |= {"uuid": str(uuid.uuid4()), "parentUuid": parent}
            parent = record["uuid"]
            log.write(json.dumps(record) + "\n")


def _broken_off_codex(hers: Log, output: str) -> None:
    last = hers.records[-1]
    arguments = json.dumps({"command": ["cat", "queue.py"]})
    call = {"type": "function_call", "name": "shell", "arguments": arguments, "call_id": "call_brokenoff"}
    with hers.path.open("a") as log:
        for number, item in enumerate((
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "and now?"}]},
            call,
            {"type": "function_call_output", "call_id": "call_brokenoff", "output": output},
        ), 1):  # fmt: skip
            ordinal = {"ordinal": last["ordinal"] + number} if "ordinal" in last else {}
            record = {"timestamp": last["timestamp"], **ordinal, "type": "response_item", "payload": item}
            log.write(json.dumps(record) + "\n")
