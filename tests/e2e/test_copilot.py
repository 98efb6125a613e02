"""The real Copilot CLI: what its model is sent of sessions that are gone on with and forked, and who it is that calls."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from smart_fork.workers.registry import Registry
from tests.e2e.agents import SERVER, Machine, machine_in
from tests.e2e.cut_and_resume import a_cut_session_goes_on
from tests.e2e.logs import Json
from tests.e2e.model_server import Call, Message, Request, Say
from tests.e2e.programs import COPILOT_VERSION, cache_folder
from tests.e2e.scenario import (
    BEGINNING,
    CONVERSATION,
    EXCHANGES,
    MORE,
    PROMPT,
    answers_from_the_cache,
    first_answer,
    settled,
    unlike_any_other,
)
from tests.e2e.terminals import alive, wait_until

pytestmark = pytest.mark.e2e
PERSONS = "77777777-7777-4777-8777-777777777777"
CALLER = "88888888-8888-4888-8888-888888888888"


def variables(url: str) -> dict[str, str]:
    """Where its model is."""
    provider = {"COPILOT_PROVIDER_BASE_URL": f"{url}/v1", "COPILOT_PROVIDER_API_KEY": "loopback"}
    return {**provider, "COPILOT_MODEL": "mock", "COPILOT_OFFLINE": "true", "COPILOT_AUTO_UPDATE": "false"}


def unpacked_in(home: Path) -> None:
    """What it unpacks at its first start in a home, 240 MB, is kept for all homes."""
    unpacked = cache_folder() / f"copilot-{COPILOT_VERSION}-unpacked"
    unpacked.mkdir(exist_ok=True)
    (home / ".cache" / "copilot").mkdir(parents=True)
    (home / ".cache" / "copilot" / "pkg").symlink_to(unpacked)


@pytest.fixture(scope="module")
def copilot(copilot_program: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with Copilot CLI alone, in which our MCP server and our hooks are set up."""
    with machine_in(cache_folder(), copilot_program) as machine:
        machines.append(machine)
        machine.env |= variables(machine.model.url)
        unpacked_in(machine.home)
        folder = machine.home / ".copilot"
        folder.mkdir()
        (folder / "config.json").write_text(json.dumps({"trustedFolders": [str(machine.home)]}))
        machine.set_up("copilot")
        for prompt, answer in EXCHANGES:
            machine.model.when(lambda text, wanted=prompt: text == wanted, answer)
        yield machine
        machine.close_terminals()


def asked(machine: Machine, prompt: str, *options: str) -> None:
    """Ask as a script does."""
    machine.run(machine.programs / "copilot", *options, f"--prompt={prompt}")


def ours(machine: Machine, *words: str) -> Json:
    told: Json = json.loads(machine.smart_fork(words[0], "--json", *words[1:]).stdout)
    return settled(machine, told)


def shown(machine: Machine, session: str) -> list[Message]:
    messages = json.loads(machine.smart_fork("show", session, "--json").stdout)["messages"]
    return [Message(one["role"], one["text"]) for one in messages]


def heard(machine: Machine, prompt: str) -> Request:
    return machine.model.wait_for(lambda request: request.last_prompt == prompt)


def an_agent_that_asks_is_known_and_not_found(copilot: Machine) -> None:
    """What it finds is a person's session: those that no person has begun are not told of."""
    asked(copilot, PROMPT, "--allow-all-tools", f"--session-id={PERSONS}")
    question, done = unlike_any_other(f"{PROMPT}. Who knows that?"), unlike_any_other("That one.")
    copilot.model.when(question, Call(SERVER, "smart_fork", {"intent": PROMPT, "auto_fork": False}, Say(done)))

    asked(copilot, question, "--allow-all-tools", f"--session-id={CALLER}")

    request = copilot.model.wait_for(lambda request: request.last_prompt == question and bool(request.our_results))
    (result,) = request.our_results
    assert PERSONS in result.text
    assert CALLER not in result.text


def a_worker_that_tells_what_it_does(copilot: Machine, parent: str, prompt: str) -> Json:
    """A fork at a message in a worktree, in a window: its hooks say that it waits for an answer, and has done all."""
    answer = Call("", "bash", {"command": "touch made", "description": "x"}, Say("Made."))
    copilot.model.when(prompt, answer)

    fork = ours(copilot, "fork", parent, "--at", "1", "--worktree-name", "elsewhere", "--in", "tmux", "--", prompt)

    assert heard(copilot, prompt).said == [*BEGINNING, Message("user", prompt)]
    assert fork["warnings"] == []
    with Registry(copilot.home / ".smart-fork" / "workers.db") as registry:
        wait_until(lambda: registry.get(fork["worker_id"]).status == "waiting", "the hook to tell that it asks")
        assert registry.get(fork["worker_id"]).status_note == "Run command: touch made"
        wait_until(lambda: "1. Yes" in copilot.tmux("capture-pane", "-p", "-t", fork["terminal_id"]), "the question")
        copilot.tmux("send-keys", "-t", fork["terminal_id"], "1")
        wait_until(lambda: registry.get(fork["worker_id"]).status == "idle", "the hook to tell of the answer")
    assert (copilot.project / ".worktrees/elsewhere/made").exists()
    return fork


def a_fork_within_a_budget(copilot: Machine, parent: str) -> Json:
    """Its model is sent what is kept, and a line for the rest."""
    prompt = unlike_any_other("And for the mailer")
    answers_from_the_cache(copilot, prompt)

    fork = ours(copilot, "fork", parent, "--budget", "match", "--drop", "1", "--in", "process", "--", prompt)

    line, *own = heard(copilot, prompt).said
    assert own == [*CONVERSATION[len(BEGINNING) :], Message("user", prompt)]
    assert "1 exchange dropped here" in line.text
    assert ["nothing", "whole"] == [one["kept"] for one in fork["selection"]["exchanges"]]
    cached = {"read_from_cache": 142_000, "written_to_cache": 0, "input": 100, "output": 20}
    assert cached == first_answer(copilot, fork)
    return fork


@pytest.fixture(scope="module")
def persons(copilot: Machine) -> Path:
    """The log of a session that was begun and gone on with."""
    new = ours(copilot, "new", "--agent", "copilot", "--in", "process", "--", PROMPT)
    session = new["session_id"]
    assert heard(copilot, PROMPT).said == BEGINNING[:1]
    copilot.smart_fork("wait", new["worker_id"])
    log = copilot.home / f".copilot/session-state/{session}/events.jsonl"
    wait_until(lambda: "session.shutdown" in log.read_text(), "the end of what was begun")
    notes = log.parent.glob("inuse.*.lock")
    holders = [int(note.name.split(".")[1]) for note in notes]
    wait_until(lambda: not any(map(alive, holders)), "the process to end: what it writes last is not its end")

    os.utime(log, (0, log.stat().st_mtime - 60))  # who has just written to it may still be there
    resumed = ours(copilot, "resume", session, "--in", "process", "--", MORE)

    assert heard(copilot, MORE).said == [*BEGINNING, Message("user", MORE)]
    wait_until(lambda: log.read_text().count("session.shutdown") == 2, "the end of what goes on")
    assert (resumed["session_id"], shown(copilot, session)) == (session, CONVERSATION)
    return log


def test_a_session_is_begun_gone_on_with_found_and_forked_at_a_message_into_a_worktree(copilot: Machine, persons: Path):
    whole, session = persons.read_text(), persons.parent.name
    found = json.loads(copilot.smart_fork("find", PROMPT, "--agent", "copilot", "--include-automated", "--json").stdout)
    assert found["results"][0]["session_id"] == session

    fork = a_worker_that_tells_what_it_does(copilot, session, unlike_any_other("Do it for the downloader"))

    (told,) = [
        one
        for one in copilot.home.glob(".copilot/session-state/*/workspace.yaml")
        if fork["new_session_id"] in one.read_text()
    ]
    assert f"cwd: {copilot.project}/.worktrees/elsewhere\n" in told.read_text()
    assert persons.read_text() == whole


@pytest.mark.thorough  # as of other agents
def test_a_fork_within_a_budget_has_what_is_kept_and_who_asks_is_known_and_not_found(copilot: Machine, persons: Path):
    whole, session = persons.read_text(), persons.parent.name

    least = a_fork_within_a_budget(copilot, session)
    an_agent_that_asks_is_known_and_not_found(copilot)

    told = copilot.smart_fork("list", "--agent", "copilot", "--include-automated", "--json").stdout
    listed = {one["session_id"] for one in json.loads(told)["sessions"]}
    assert {session, PERSONS, CALLER, least["new_session_id"]} <= listed
    assert persons.read_text() == whole


@pytest.mark.thorough  # as of other agents
def test_a_cut_session_is_gone_on_with_and_nothing_of_what_went_is_left(copilot: Machine):
    session = "66666666-6666-4666-8666-666666666666"

    def ask(prompt: str, begins: bool) -> None:
        option = "--session-id" if begins else "--resume"
        asked(copilot, prompt, "--allow-all-tools", f"{option}={session}")

    a_cut_session_goes_on(copilot, session, "bash", ask, ".copilot")
