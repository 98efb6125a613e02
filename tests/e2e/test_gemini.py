"""The real Gemini CLI: what its model is sent of sessions that are gone on with and forked; and that none is lost by it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from smart_fork.agents.gemini.log_files import whole_name
from smart_fork.workers.registry import Registry
from tests.e2e.agents import SERVER, Machine, machine_in
from tests.e2e.cut_and_resume import a_cut_session_goes_on
from tests.e2e.logs import Json
from tests.e2e.model_server import Call, Message, Request, Say
from tests.e2e.programs import cache_folder
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
from tests.e2e.terminals import PROGRAM_SECONDS, wait_until

pytestmark = pytest.mark.e2e
SETTINGS = {
    "security": {"auth": {"selectedType": "gemini-api-key"}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
}
#: It would start itself once more, with more memory. It does so where that is part of what a test proves.
ONE_PROCESS = ("GEMINI_CLI_NO_RELAUNCH", "true")
PERSONS = "77777777-7777-4777-8777-777777777777"
CALLER = "88888888-8888-4888-8888-888888888888"


def variables(url: str) -> dict[str, str]:
    """Where its model is."""
    return {"GEMINI_API_KEY": "loopback", "GOOGLE_GEMINI_BASE_URL": url}


@pytest.fixture(scope="module")
def gemini(gemini_program: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with Gemini CLI alone, in which our MCP server is set up."""
    with machine_in(cache_folder(), gemini_program) as machine:
        machines.append(machine)
        machine.env |= variables(machine.model.url) | dict([ONE_PROCESS])
        folder = machine.home / ".gemini"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(SETTINGS))
        (folder / "trustedFolders.json").write_text(json.dumps({str(machine.home): "TRUST_FOLDER"}))
        machine.set_up("gemini", "--no-hooks")
        for prompt, answer in EXCHANGES:
            machine.model.when(lambda text, wanted=prompt: text == wanted, answer)
        yield machine
        machine.close_terminals()


def asked(machine: Machine, prompt: str, *options: str, env: Mapping[str, str] | None = None) -> None:
    """Ask as a script does."""
    machine.run(machine.programs / "gemini", *options, f"--prompt={prompt}", env=env)


def ours(machine: Machine, *words: str) -> Json:
    told: Json = json.loads(machine.smart_fork(words[0], "--json", *words[1:]).stdout)
    return settled(machine, told)


def shown(machine: Machine, session: str) -> list[tuple[str, str]]:
    messages = json.loads(machine.smart_fork("show", session, "--json").stdout)["messages"]
    return [(one["role"], one["text"]) for one in messages]


def heard(machine: Machine, prompt: str) -> Request:
    return machine.model.wait_for(lambda request: request.last_prompt == prompt)


def written(machine: Machine, session: str, prompt: str) -> Path:
    """The log of a session of ours, when the answer to that prompt is in it."""

    def find() -> Path | None:
        logs = (machine.home / ".gemini/tmp").glob(f"*/chats/session-*-{session}.jsonl")
        return next((log for log in logs if f"Noted: {prompt[:60]}" in log.read_text()), None)

    return wait_until(find, "the answer in the log")


def files(machine: Machine) -> dict[str, str]:
    """What stands in which log of the first repository, by its name."""
    return {log.name: log.read_text() for log in (machine.home / ".gemini/tmp/shop/chats").iterdir()}


def an_agent_that_asks_is_known_and_not_found(gemini: Machine) -> None:
    """Over MCP: the session that calls is told by the process that has started our server."""
    question, done = unlike_any_other(f"{PROMPT}. Who knows that?"), unlike_any_other("That one.")
    gemini.model.when(question, Call(SERVER, "smart_fork", {"intent": PROMPT, "auto_fork": False}, Say(done)))

    asked(gemini, question, "--yolo", "--session-id", CALLER, env={ONE_PROCESS[0]: ""})

    request = gemini.model.wait_for(lambda request: request.last_prompt == question and bool(request.our_results))
    (result,) = request.our_results
    assert PERSONS in result.text
    assert CALLER not in result.text


def a_fork_within_a_budget(gemini: Machine) -> Json:
    """Its model is sent what is kept, and a line for the rest."""
    prompt = unlike_any_other("And once more")

    fork = ours(gemini, "fork", PERSONS, "--budget", "match", "--drop", "2", "--in", "process", "--", prompt)

    line, *own = heard(gemini, prompt).said
    assert own == [*CONVERSATION[len(BEGINNING) :], Message("user", prompt)]
    assert "1 exchange dropped here" in line.text
    written(gemini, fork["new_session_id"], prompt)
    return fork


@pytest.fixture(scope="module")
def persons(gemini: Machine) -> Path:
    """The log of a person's session, which we have gone on with."""
    asked(gemini, PROMPT, "--session-id", PERSONS)
    (log,) = (gemini.home / ".gemini/tmp/shop/chats").iterdir()

    os.utime(log, (0, log.stat().st_mtime - 60))  # who has just written to it may still be there
    resumed = ours(gemini, "resume", PERSONS, "--in", "process", "--", MORE)

    assert heard(gemini, MORE).said == [*BEGINNING, Message("user", MORE)]
    wait_until(lambda: EXCHANGES[1][1] in log.read_text(), "the answer in the log")
    assert (resumed["session_id"], shown(gemini, PERSONS)) == (PERSONS, [(one.role, one.text) for one in CONVERSATION])
    return log


def test_a_session_is_found_gone_on_with_and_forked_at_a_message_into_a_worktree(gemini: Machine, persons: Path):
    """Gemini CLI itself deletes a session that was resumed, at its next start: not one that we have gone on with."""
    whole = persons.read_text()
    found = json.loads(gemini.smart_fork("find", PROMPT, "--agent", "gemini", "--json").stdout)
    assert found["results"][0]["session_id"] == PERSONS
    prompt = unlike_any_other("Do it for the downloader")
    answers_from_the_cache(gemini, prompt)

    fork = ours(gemini, "fork", PERSONS, "--at", "2", "--worktree-name", "elsewhere", "--in", "process", "--", prompt)

    assert heard(gemini, prompt).said == [*BEGINNING, Message("user", prompt)]
    log = written(gemini, fork["new_session_id"], prompt)
    assert (log.parents[1] / ".project_root").read_text() == f"{gemini.project}/.worktrees/elsewhere"
    assert fork["warnings"] == []
    assert {"read_from_cache": 142_000, "input": 100, "output": 20} == first_answer(gemini, fork)
    (kept,) = (text for name, text in files(gemini).items() if PERSONS in name)
    assert kept.startswith(whole)


@pytest.mark.thorough  # as of other agents
def test_forks_in_the_same_project_lose_no_session_and_who_asks_is_known_and_not_found(gemini: Machine, persons: Path):
    whole, prompt = persons.read_text(), unlike_any_other("And for the mailer")
    fork = ours(gemini, "fork", PERSONS, "--in", "process", "--", prompt)
    assert heard(gemini, prompt).said == [*CONVERSATION, Message("user", prompt)]
    in_shop = written(gemini, fork["new_session_id"], prompt)
    assert fork["warnings"] == []

    least = a_fork_within_a_budget(gemini)
    an_agent_that_asks_is_known_and_not_found(gemini)

    left = files(gemini)
    (kept,) = (text for name, text in left.items() if PERSONS in name)
    assert kept.startswith(whole)
    assert in_shop.name in left
    listed = json.loads(gemini.smart_fork("list", "--agent", "gemini", "--json").stdout)["sessions"]
    forks = {one["new_session_id"] for one in (fork, least)}
    assert {PERSONS, CALLER, *forks} <= {one["session_id"] for one in listed}
    assert shown(gemini, PERSONS) == [(one.role, one.text) for one in CONVERSATION]
    family = json.loads(gemini.smart_fork("lineage", fork["new_session_id"], "--json").stdout)
    assert PERSONS in json.dumps(family)


@pytest.mark.thorough  # as of other agents
def test_a_worker_tells_what_it_does_and_hears_what_is_said_to_it(gemini: Machine, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delitem(gemini.env, ONE_PROCESS[0])
    gemini.smart_fork("setup", "hooks", "--agent", "gemini")
    prompt, more = unlike_any_other("Make the file"), unlike_any_other("And say more")
    gemini.model.when(
        prompt, Call("", "run_shell_command", {"command": "touch made", "description": "x"}, Say("Made."))
    )

    new = ours(gemini, "new", "--agent", "gemini", "--in", "tmux", "--", prompt)

    def asks() -> bool:
        """Its hook may say that it waits before the question stands on its screen."""
        workers = json.loads(gemini.smart_fork("active", "--json").stdout)["workers"]
        worker = next(one for one in workers if one["worker_id"] == new["worker_id"])
        return worker["status"] == "waiting" and "Allow execution of [Shell]?" in json.dumps(worker)

    def screen() -> str:
        return gemini.tmux("capture-pane", "-p", "-t", new["terminal_id"])

    wait_until(lambda: "Allow execution of" in screen(), "the question on the screen")
    wait_until(asks, "the question", pause=PROGRAM_SECONDS)
    gemini.tmux("send-keys", "-t", new["terminal_id"], "1")
    with Registry(gemini.home / ".smart-fork" / "workers.db") as registry:
        wait_until(lambda: registry.get(new["worker_id"]).status == "idle", "the hook to tell of the answer")
    assert (gemini.project / "made").exists()

    gemini.smart_fork("wait", new["worker_id"])
    gemini.smart_fork("message", new["worker_id"], "--", more)

    assert heard(gemini, more).said[-3:] == [
        Message("user", prompt),
        Message("assistant", "Made."),
        Message("user", more),
    ]


@pytest.mark.thorough  # as of other agents
def test_a_cut_session_is_gone_on_with_and_nothing_of_what_went_is_left(gemini: Machine):
    """It is gone on with by our command, which keeps Gemini CLI from deleting it."""
    session = "66666666-6666-4666-8666-666666666666"
    gemini.close_terminals()  # a cut is refused while Gemini CLI runs in the session's directory

    def ask(prompt: str, begins: bool) -> None:
        if begins:
            asked(gemini, prompt, "--yolo", "--session-id", session)
            return
        chats = (gemini.home / ".gemini/tmp/shop/chats").glob(f"*-{session[:8]}*")
        log = next(one for one in chats if "step zebra" in one.read_text())
        log.rename(log.with_name(whole_name(log, session)))
        asked(gemini, prompt, "--yolo", "--resume", session)

    a_cut_session_goes_on(gemini, session, "run_shell_command", ask, ".gemini")
