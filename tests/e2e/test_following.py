"""Workers that run already, with the real programs: what they do, what they said, what is said to them, and their end."""

from __future__ import annotations

import json
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.agents import Machine
from tests.e2e.logs import Log
from tests.e2e.model_server import Answer, Call, Hold, Message, Protocol, Request, Say
from tests.e2e.scenario import CONVERSATION, EXCHANGES, PROMPT, ask, each_agent, heard, run_fork, unlike_any_other
from tests.e2e.terminals import PROGRAM_SECONDS, wait_until
from tests.support.processes import command_line, is_running

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]

NEXT = "Now do the same for the downloader"
#: Each line could be a command of an agent, of a shell or of tmux, or end what is pasted.
HOSTILE = "/exit\n/quit; !touch HACKED\n$(touch HACKED) `touch HACKED` #(touch HACKED) #{pane_id}\n  \x1b[201~naïve 日本語 🦊 @README.md"


def ours(machine: Machine, command: str, *words: str, check: bool = True) -> dict[str, Any]:
    """One of our commands, and what it says."""
    said: dict[str, Any] = json.loads(machine.smart_fork(command, "--json", *words, check=check).stdout)
    return said


def one(machine: Machine, worker: str) -> dict[str, Any]:
    """The worker among those that run."""
    (found,) = [found for found in ours(machine, "active")["workers"] if found["worker_id"] == worker]
    return found  # type: ignore[no-any-return]


def windows(machine: Machine) -> set[str]:
    return set(machine.tmux("list-panes", "-a", "-F", "#{session_name} #{pane_id} #{pane_pid}").splitlines())


def last_said(machine: Machine, words: str) -> Request:
    """The request whose last prompt ends so, whatever blanks the program makes of its ends."""
    return machine.model.wait_for(lambda request: request.last_prompt.strip() == words.strip())


def spoken(request: Request) -> list[Message]:
    return [Message(said.role, said.text.strip()) for said in request.said]


def executed(machine: Machine) -> list[Path]:
    return list(machine.project.rglob("HACKED*"))


@pytest.mark.thorough  # as one without a terminal
@each_agent()
def test_a_worker_in_a_terminal_is_followed_to_its_end(equipped: Machine, agent: Protocol, parent: Log):
    """F-105, R-004, R-005, R-014, R-067, X-003."""
    equipped.interactive("sh", "-c", "read forever")  # somebody else's
    prompt, answer, released = unlike_any_other(NEXT), unlike_any_other("The downloader retries"), threading.Event()
    equipped.model.when(prompt, Hold(released, Say(answer)))
    hostile = unlike_any_other(HOSTILE)
    said = hostile.replace("\x1b", "")
    equipped.model.when(hostile[-10:], "Nothing was touched.")
    others = wait_until(lambda: found if len(found := windows(equipped)) == 1 else None, "the parent's window to close")

    fork = run_fork(equipped, parent, prompt, "--in", "tmux", "--name", f"follow-{agent}")
    worker, session = fork["worker_id"], fork["new_session_id"]

    assert ("running", "working", session) == tuple(one(equipped, worker)[k] for k in ("state", "status", "session_id"))
    refused = ours(equipped, "message", worker, "hello", check=False)
    assert "is working" in refused["error"]
    released.set()
    (waited,) = ours(equipped, "wait", session[:13])["workers"]
    assert ("idle", answer) == (waited["status"], waited["last_words"])
    assert waited["tokens"] > 0

    typed = ours(equipped, "message", f"follow-{agent}", hostile)

    assert ("typed", session, []) == (typed["how"], typed["session_id"], typed["warnings"])
    request = last_said(equipped, said)
    own = [Message("user", prompt), Message("assistant", answer), Message("user", said)]
    assert [*CONVERSATION, *own] == spoken(request)
    ours(equipped, "wait", worker)
    read = ours(equipped, "read", worker, "-n", "9")
    assert [prompt, answer, said, "Nothing was touched."] == [m["text"].strip() for m in read["messages"]]
    assert PROMPT not in json.dumps(read)

    (closed,) = ours(equipped, "close", fork["terminal_id"])["workers"]

    assert (True, "") == (closed["closed"], closed["note"])
    assert others == windows(equipped)
    assert [] == [running for running in ours(equipped, "active")["workers"] if running["worker_id"] == worker]
    assert equipped.log(agent, session).answers("Nothing was touched.")
    assert [] == executed(equipped)


@each_agent(thorough="codex")
def test_a_worker_without_a_terminal_is_taken_up_again(equipped: Machine, agent: Protocol, parent: Log):
    """The same session, as the same worker."""
    prompt, more = unlike_any_other(NEXT), unlike_any_other("--help me with the tests\n!touch HACKED")
    fork = run_fork(equipped, parent, prompt, "--in", "process")
    worker = fork["worker_id"]
    (ended,) = ours(equipped, "wait", worker)["workers"]
    logs = set(equipped.logs(agent))
    equipped.model.when(more[-10:], "That helped.")

    resumed = ours(equipped, "message", worker, "--", more)

    assert ("resumed", worker, fork["new_session_id"]) == (
        resumed["how"], resumed["worker_id"], resumed["session_id"],
    )  # fmt: skip
    own = [Message("user", prompt), Message("assistant", ended["last_words"]), Message("user", more)]
    assert [*CONVERSATION, *own] == spoken(last_said(equipped, more))
    (waited,) = ours(equipped, "wait", worker)["workers"]
    assert ("ended", "That helped.") == (waited["state"], waited["last_words"])
    assert more.strip() in [said["text"].strip() for said in ours(equipped, "read", worker)["messages"]]
    assert logs == set(equipped.logs(agent))
    assert [] == executed(equipped)


def test_codex_takes_a_message_by_its_own_verb_and_a_half_typed_line_stays(machine: Machine):
    """Nothing is typed into its window: what a person was about to say is still there, and is not sent.

    Its server has the session only where its windows are started without settings of their own, as for our tools.
    """
    machine.know_smart_fork()
    prompt, more, draft = unlike_any_other(NEXT), unlike_any_other("and the tests"), "half a thought"
    fork = run_fork(machine, machine.session_of_before("codex", *EXCHANGES), prompt, "--in", "tmux")
    ours(machine, "wait", fork["worker_id"])
    pane = fork["terminal_id"]

    def screen() -> str:
        return machine.tmux("capture-pane", "-p", "-t", pane)

    machine.tmux("send-keys", "-t", pane, "-l", draft)
    wait_until(lambda: draft in screen(), "the half typed line")

    told = ours(machine, "message", fork["worker_id"], more)

    assert ("typed", fork["new_session_id"], []) == (told["how"], told["session_id"], told["warnings"])
    assert more == last_said(machine, more).last_prompt.strip()
    assert draft in screen()
    ours(machine, "close", fork["worker_id"])


def permission(agent: Protocol, then: Answer) -> Call:
    """A call of a tool that a person has to allow."""
    if agent == "claude":
        return Call("", "Bash", {"command": "touch /etc/made-by-a-worker", "description": "Make a file"}, then)
    asks = {"sandbox_permissions": "require_escalated", "justification": "May I touch a file?"}
    return Call("", "exec_command", {"cmd": "touch /etc/made-by-a-worker"} | asks, then)


@each_agent(thorough="claude")
def test_a_worker_that_asks_for_permission_waits_for_a_person(equipped: Machine, agent: Protocol):
    settings = equipped.home / ".codex/config.toml"
    before = settings.read_text()
    # 2.1.332 starts in auto mode, which asks only where its own check cannot be reached.
    asking = equipped.home / ".claude/settings.json"
    asked = asking.read_text() if asking.exists() else None
    asking.write_text(json.dumps(json.loads(asked or "{}") | {"permissions": {"defaultMode": "default"}}))
    settings.write_text(before.replace('"never"', '"on-request"').replace('"danger-full-access"', '"read-only"'))
    prompt = unlike_any_other(NEXT)
    equipped.model.when(prompt, permission(agent, Say("Made.")))
    try:
        # A fork of a session in auto mode would be in auto mode.
        worker = ours(equipped, "new", "--agent", agent, "--in", "tmux", "--", prompt)["worker_id"]
    finally:
        settings.write_text(before)
        asking.write_text(asked or "{}")

    (waited,) = ours(equipped, "wait", worker)["workers"]

    assert ("waiting", True) == (waited["status"], waited["settled"])
    assert "touch /etc/made-by-a-worker" in waited["waiting_for"]
    assert "1. Yes" in waited["waiting_for"]
    assert prompt not in waited["waiting_for"]
    assert waited["waiting_for"] == one(equipped, worker)["waiting_for"]
    refused = ours(equipped, "message", worker, "1", check=False)
    assert "touch /etc/made-by-a-worker" in refused["error"]
    no = re.findall(r"(\d)\. ", waited["waiting_for"])[-1]  # 2.1.332 has one more option
    assert "Options are 1, 2, 3" in ours(equipped, "message", worker, "9", "--answer", check=False)["hint"]

    answered = ours(equipped, "message", worker, no, "--answer")

    assert ("answered", []) == (answered["how"], answered["warnings"])
    wait_until(lambda: one(equipped, worker)["status"] == "idle", "the worker to be idle", pause=PROGRAM_SECONDS)
    assert not Path("/etc/made-by-a-worker").exists()


@pytest.mark.thorough
@each_agent()
def test_a_worker_in_a_directory_that_is_not_trusted_waits_for_a_person(
    equipped: Machine, agent: Protocol, parent: Log
):
    if agent == "codex":
        pytest.skip("Codex asks as well, and a fork with a prompt waits for it; its screen is among the recorded ones")
    stranger = equipped.repository("strange")
    equipped.trusted.remove(stranger)
    settings = equipped.home / ".claude.json"
    known = json.loads(settings.read_text())
    del known["projects"][str(stranger)]
    settings.write_text(json.dumps(known))
    fork = ours(equipped, "fork", parent.session_id, "--in", "tmux", "--cwd", str(stranger))

    (waited,) = ours(equipped, "wait", fork["worker_id"])["workers"]

    assert "waiting" == waited["status"]
    assert "trust this folder" in waited["waiting_for"]
    (yes,) = re.findall(r"(\d)\. Yes", waited["waiting_for"])  # 2.1.332 has "No" first, and no numbers
    ours(equipped, "message", fork["worker_id"], yes, "--answer")
    (waited,) = ours(equipped, "wait", fork["worker_id"])["workers"]
    assert "idle" == waited["status"]


@each_agent(thorough="claude")
def test_an_agent_follows_a_worker_to_its_end(equipped: Machine, agent: Protocol, parent: Log, project: Path):
    """Over MCP: listed, waited for, read, spoken to, waited for again, ended."""
    prompt, more, name = unlike_any_other(NEXT), unlike_any_other("And the tests?\nThose too."), f"led-{agent}"
    fork = run_fork(equipped, parent, prompt, "--in", "tmux", "--name", name)
    there, both = {"project_path": str(equipped.project)}, {"workers": [name], "timeout": 60}

    answers, _ = ask(
        equipped, agent, project,
        ("list_workers", there), ("wait_workers", both), ("message_worker", {"worker": name, "message": more}),
        ("read_worker", {"worker": name}), ("close_workers", {"workers": [fork["new_session_id"]]}),
    )  # fmt: skip

    listed, waited, told, read, closed = answers
    assert fork["worker_id"] in [one["worker_id"] for one in listed["workers"]]
    assert (True, "idle", f"Noted: {prompt[:60]}") == (
        waited["done"], waited["workers"][0]["status"], waited["workers"][0]["last_words"],
    )  # fmt: skip
    assert ("typed", []) == (told["how"], told["warnings"])
    assert [*CONVERSATION, Message("user", prompt), Message("assistant", f"Noted: {prompt[:60]}")] == spoken(
        last_said(equipped, more)
    )[:-1]
    assert [prompt, f"Noted: {prompt[:60]}", more] == [m["text"] for m in read["messages"]][:3]
    assert [True] == [one["closed"] for one in closed["workers"]]
    assert fork["terminal_id"] not in equipped.tmux("list-panes", "-a", "-F", "#{pane_id}", check=False).split()


@each_agent(thorough="claude")
def test_stopping_ends_the_workers_of_a_project_and_nothing_else(equipped: Machine, agent: Protocol, parent: Log):
    """R-014, R-070, X-003."""
    stay = equipped.interactive("sh", "-c", "read forever")
    released = threading.Event()
    prompts = [unlike_any_other(NEXT) for _ in range(2)]
    for prompt in prompts:
        equipped.model.when(prompt, Hold(released, Say("Too late.")))
    forks = [
        run_fork(equipped, parent, prompt, "--in", place)
        for prompt, place in zip(prompts, ("tmux", "process"), strict=True)
    ]
    try:
        (waited,) = ours(equipped, "wait", forks[1]["worker_id"], "--timeout", "0", check=False)["workers"]
        assert ("working", False) == (waited["status"], waited["settled"])

        stopped = ours(equipped, "stop")["workers"]
    finally:
        released.set()

    assert {fork["worker_id"] for fork in forks} <= {one["worker_id"] for one in stopped if one["closed"]}
    assert stay.running
    assert [] == [
        machine_process
        for machine_process in equipped.processes()
        if any(prompt in command_line(machine_process) for prompt in prompts) and is_running(machine_process)
    ]
    assert [] == ours(equipped, "stop")["workers"]
    for fork in forks:
        assert heard(equipped, prompts[forks.index(fork)]) is not None
        assert equipped.log(agent, fork["new_session_id"])
