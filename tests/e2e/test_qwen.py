"""The real Qwen Code: what its model is sent of sessions that are begun, gone on with, forked and cut, message by message."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from smart_fork.workers.registry import Registry
from tests.e2e.agents import SERVER, Machine, machine_in
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Call, Hold, Message, Request, Say
from tests.e2e.programs import cache_folder
from tests.e2e.scenario import (
    ANSWER,
    BEGINNING,
    CONVERSATION,
    EXCHANGES,
    answers_from_the_cache,
    first_answer,
    heard,
    settled,
    unlike_any_other,
)
from tests.e2e.terminals import PROGRAM_SECONDS, wait_until
from tests.support.processes import command_line

pytestmark = pytest.mark.e2e
NEXT = "Now do the same for the downloader"
#: It would start itself once more, with more memory. Workers do so where that is part of what a test proves.
ONE_PROCESS = ("QWEN_CODE_NO_RELAUNCH", "true")
#: Prompts that an agent, a shell or tmux could take for something else: the forks below are asked them.
DASH, SLASH, BANG, COMMAND = (
    "--dangerously $(touch HACKED) ; 'x' \"y\" \\ # &",
    "/clear all that you know",
    "!touch HACKED",
    "doctor",
)
SETTINGS = {
    "security": {"auth": {"selectedType": "openai"}},
    "general": {"enableAutoUpdate": False},
    "privacy": {"usageStatisticsEnabled": False},
    "tools": {"toolSearch": {"enabled": False}},
}


@pytest.fixture(scope="module")
def qwen(qwen_program: Path, machines: list[Machine]) -> Iterator[Machine]:
    """A machine with Qwen Code alone, in which our MCP server is set up."""
    with machine_in(cache_folder(), qwen_program) as machine:
        machines.append(machine)
        machine.env |= {"OPENAI_API_KEY": "loopback", "OPENAI_BASE_URL": f"{machine.model.url}/v1"}
        machine.env |= {"OPENAI_MODEL": "mock", "QWEN_CODE_SUPPRESS_YOLO_WARNING": "1"}
        machine.env |= dict([ONE_PROCESS])
        machine.env |= {"NODE_COMPILE_CACHE": str(cache_folder() / "compiled")}  # each start would compile all of it
        folder = machine.home / ".qwen"
        folder.mkdir()
        (folder / "settings.json").write_text(json.dumps(SETTINGS))
        machine.set_up("qwen", "--no-hooks")
        for prompt, answer in EXCHANGES:
            machine.model.when(lambda text, wanted=prompt: text == wanted, answer)
        yield machine


@pytest.fixture(autouse=True)
def _closed(qwen: Machine) -> Iterator[None]:
    """What a test has opened in terminals ends with it."""
    yield
    qwen.close_terminals()


def asked(machine: Machine, prompt: str, *options: str, cwd: Path | None = None) -> str:
    """Ask as a script does; the session's id."""
    words = (*options, "-o", "json", f"--prompt={prompt}")
    done = machine.run(machine.programs / "qwen", *words, cwd=cwd)
    session: str = json.loads(done.stdout)[0]["session_id"]
    return session


@pytest.fixture(scope="module")
def parents(qwen: Machine) -> Any:
    """Makes a session once, as we begin one and continue the newest without a terminal."""

    def make() -> Log:
        new = ours(qwen, "new", "--agent", "qwen", "--in", "process", "--", EXCHANGES[0][0])
        answered(qwen, new["session_id"], ANSWER, "")
        ended(qwen, EXCHANGES[0][0])
        newest = ours(qwen, "continue", "--agent", "qwen", "--in", "process", "--", EXCHANGES[1][0])
        assert (newest["session_id"], newest["warnings"]) == (new["session_id"], [])
        log = answered(qwen, new["session_id"], EXCHANGES[1][1], "")
        ended(qwen, EXCHANGES[1][0])
        return log

    return cache(make)


@pytest.fixture
def parent(parents: Any) -> Iterator[Log]:
    """Whatever a test does with it, it stays as it is."""
    log: Log = parents()
    before = log.sha256
    yield log
    assert before == log.sha256


def ours(machine: Machine, *words: str, cwd: Path | None = None) -> Json:
    told: Json = json.loads(machine.smart_fork(words[0], "--json", *words[1:], cwd=cwd).stdout)
    return settled(machine, told)


def answered(machine: Machine, session: str, prompt: str, noted: str = "Noted: ") -> Log:
    log = machine.log("qwen", session)
    wait_until(lambda: log.answers(f"{noted}{prompt[:60]}"), "the answer in the log")
    return log


def ended(machine: Machine, prompt: str) -> None:
    """A worker without a terminal ends with its answer."""
    running = lambda: [one for one in machine.processes() if any(prompt in word for word in command_line(one))]  # noqa: E731
    wait_until(lambda: not running(), "the worker to end")


def heard_as_words(machine: Machine, prompt: str) -> Request:
    """What was sent with that prompt, which is nothing but words: nobody has done what it looks like."""
    request = machine.model.wait_for(lambda request: request.last_prompt.endswith(prompt))
    assert request.last_prompt.strip() == prompt
    assert not list(machine.root.rglob("HACKED"))
    return request


def number_of(machine: Machine, session: str, text: str) -> str:
    messages = json.loads(machine.smart_fork("show", session, "--json").stdout)["messages"]
    (number,) = [message["number"] for message in messages if message["text"] == text]
    return str(number)


def test_a_session_begins_and_goes_on_without_a_terminal_and_is_found_and_shown_as_it_was_said(
    qwen: Machine, parent: Log
):
    words = ("--agent", "qwen", "--include-automated", "--json")
    (found,) = json.loads(qwen.smart_fork("find", EXCHANGES[0][0], *words).stdout)["results"]
    listed = json.loads(qwen.smart_fork("list", *words).stdout)["sessions"]
    shown = json.loads(qwen.smart_fork("show", parent.session_id, "--json").stdout)

    assert [parent.session_id] == [one["session_id"] for one in listed] == [found["session_id"]]
    assert BEGINNING[:1] == heard(qwen, EXCHANGES[0][0]).said
    assert CONVERSATION[:3] == heard(qwen, EXCHANGES[1][0]).said
    assert [(one["role"], one["text"]) for one in shown["messages"]] == [(one.role, one.text) for one in CONVERSATION]


@pytest.mark.thorough  # as within a budget, of all
def test_a_fork_knows_what_its_parent_knew(qwen: Machine, parent: Log, monkeypatch: pytest.MonkeyPatch):
    """Without a terminal too: into a worktree, below."""
    monkeypatch.delitem(qwen.env, ONE_PROCESS[0])
    prompt = unlike_any_other(DASH)

    fork = ours(qwen, "fork", parent.session_id, "--in", "tmux", "--", prompt)

    request = heard_as_words(qwen, prompt)
    assert request.said[:-1] == CONVERSATION
    log = answered(qwen, fork["new_session_id"], request.last_prompt)
    assert fork["warnings"] == []
    assert log.records[0]["forkedFrom"]["sessionId"] == parent.session_id


@pytest.mark.thorough  # as of other agents
def test_a_fork_at_an_earlier_message_knows_nothing_of_what_came_later_and_its_hooks_tell_what_it_does(
    qwen: Machine, parent: Log, monkeypatch: pytest.MonkeyPatch
):
    """Beside somebody else's, in its settings."""
    monkeypatch.delitem(qwen.env, ONE_PROCESS[0])
    settings = qwen.home / ".qwen/settings.json"
    theirs = [{"hooks": [{"type": "command", "command": f"touch {qwen.home}/theirs"}]}]
    settings.write_text(json.dumps(json.loads(settings.read_text()) | {"hooks": {"Stop": theirs}}))
    qwen.smart_fork("setup", "hooks")
    prompt, number = unlike_any_other(BANG), number_of(qwen, parent.session_id, ANSWER)

    fork = ours(qwen, "fork", parent.session_id, "--at", number, "--in", "tmux", "--", prompt)

    request = heard_as_words(qwen, prompt)
    assert request.said[:-1] == BEGINNING
    with Registry(qwen.home / ".smart-fork" / "workers.db") as registry:
        wait_until(lambda: registry.get(fork["worker_id"]).status == "idle", "the hook to tell of the answer")
        answered(qwen, fork["new_session_id"], request.last_prompt)
        pane = fork["terminal_id"]
        qwen.tmux("send-keys", "-t", pane, "-l", "/quit")
        wait_until(lambda: "> /quit" in qwen.tmux("capture-pane", "-p", "-t", pane), "what was typed")
        qwen.tmux("send-keys", "-t", pane, "Enter")
        wait_until(lambda: registry.get(fork["worker_id"]).state == "ended", "the hook to tell of the end")
    assert (qwen.home / "theirs").exists()
    qwen.smart_fork("setup", "hooks", "--remove")
    assert json.loads(settings.read_text())["hooks"] == {"Stop": theirs}


@pytest.mark.thorough  # as of other agents
def test_a_fork_within_a_budget_into_a_worktree_works_there_and_knows_what_is_kept(qwen: Machine, parent: Log):
    prompt, name = unlike_any_other(SLASH), "qwen-elsewhere"
    kept, where = ("--budget", "match", "--drop", "1"), ("--worktree-name", name, "--in", "process")
    answers_from_the_cache(qwen, f" {prompt}")

    fork = ours(qwen, "fork", parent.session_id, *kept, *where, "--", prompt)

    request = heard_as_words(qwen, prompt)
    line, *own = request.said[:-1]
    assert own == CONVERSATION[len(BEGINNING) :]
    assert "1 exchange dropped here" in line.text
    worktree = qwen.project / ".worktrees" / name
    log = answered(qwen, fork["new_session_id"], request.last_prompt)
    (warning,) = fork["warnings"]
    assert "the last exchange is kept" in warning, "nothing in the session answers that prompt"
    assert fork["cwd"] == str(worktree)
    assert {record["cwd"] for record in log.records} == {str(worktree)}
    assert log.chain[-1]["gitBranch"] == f"smart-fork/{name}"
    assert {"read_from_cache": 142_000, "input": 100, "output": 20} == first_answer(qwen, fork)


@pytest.mark.thorough  # a rarer place
def test_a_named_fork_of_what_was_put_away_elsewhere_has_its_name_as_title(
    qwen: Machine, parent: Log, monkeypatch: pytest.MonkeyPatch
):
    """Its sessions are where ``QWEN_RUNTIME_DIR`` says, and it finds none that it has put away."""
    elsewhere = qwen.home / "elsewhere"
    monkeypatch.setitem(qwen.env, "QWEN_RUNTIME_DIR", str(elsewhere))
    name = unlike_any_other("Downloads")
    chats = elsewhere / parent.path.parent.relative_to(qwen.home / ".qwen")
    (chats / "archive").mkdir(parents=True)
    (chats / "archive" / parent.path.name).write_bytes(parent.path.read_bytes())

    fork = ours(qwen, "fork", parent.session_id, "--name", name, "--in", "tmux", "--", COMMAND)

    request = heard_as_words(qwen, COMMAND)
    assert request.said[:-1] == CONVERSATION
    copy = chats / f"{fork['new_session_id']}.jsonl"
    wait_until(lambda: f"Noted: {request.last_prompt}" in copy.read_text(), "the answer in the log")
    listed = json.loads(qwen.smart_fork("list", "--agent", "qwen", "--include-automated", "--json").stdout)["sessions"]
    titles = {parent.session_id: EXCHANGES[0][0], copy.stem: name}
    assert titles == {one["session_id"]: one["title"] for one in listed}


@pytest.mark.thorough  # that it names its parent, the logs of a fork of ours say as well
def test_qwen_codes_own_fork_is_one_of_the_family(qwen: Machine, parent: Log):
    """Its forks have the ids of its parent's records, and name them."""
    prompt = unlike_any_other("Fork it by hand")
    fork = asked(qwen, prompt, "--resume", parent.session_id, "--fork-session")

    told = json.loads(qwen.smart_fork("lineage", fork, "--json").stdout)

    assert [*CONVERSATION, Message("user", prompt)] == heard(qwen, prompt).said
    assert parent.session_id in json.dumps(told)


@pytest.mark.thorough  # as of other agents
def test_a_question_on_its_screen_is_told_a_message_is_heard_and_an_answer_that_is_broken_off_is_seen_to_have_ended(
    qwen: Machine,
):
    """Of the latter its log has no word."""
    prompt, more = unlike_any_other("Make the file"), unlike_any_other("And think long")
    release = threading.Event()
    qwen.model.when(
        prompt, Call("", "run_shell_command", {"command": "touch made", "is_background": False}, Say("Made."))
    )
    qwen.model.when(more, Hold(release, Say("At last.")))
    settings = qwen.home / ".qwen/settings.json"
    before = settings.read_text()
    settings.write_text(json.dumps(json.loads(before) | {"tools": {"approvalMode": "default"}}))
    new = ours(qwen, "new", "--agent", "qwen", "--in", "tmux", "--", prompt)
    settings.write_text(before)

    def asks() -> bool:
        """A hook may say that it waits before the question stands on its screen."""
        (worker,) = [
            one
            for one in json.loads(qwen.smart_fork("active", "--json").stdout)["workers"]
            if one["worker_id"] == new["worker_id"]
        ]
        return worker["status"] == "waiting" and "Allow execution of: 'touch'?" in json.dumps(worker)

    wait_until(lambda: "Allow execution of" in screen_of(qwen, new), "the question on the screen")
    wait_until(asks, "the question", pause=PROGRAM_SECONDS)
    qwen.tmux("send-keys", "-t", new["terminal_id"], "1")
    answered(qwen, new["session_id"], "Made.", "")

    qwen.smart_fork("message", new["worker_id"], "--", more)

    assert [Message("user", prompt), Message("assistant", "Made."), Message("user", more)] == heard(qwen, more).said[
        -3:
    ]
    assert (qwen.project / "made").exists()

    wait_until(lambda: "esc to cancel" in screen_of(qwen, new), "the agent to say that it works")
    assert status_of(qwen, new) == "working"
    qwen.tmux("send-keys", "-t", new["terminal_id"], "Escape")
    wait_until(lambda: "esc to cancel" not in screen_of(qwen, new), "the agent to say that it has ended")
    wait_until(lambda: status_of(qwen, new) == "idle", "the worker to be idle", pause=PROGRAM_SECONDS)
    release.set()


def screen_of(machine: Machine, worker: Json) -> str:
    return machine.tmux("capture-pane", "-p", "-t", worker["terminal_id"])


def status_of(machine: Machine, worker: Json) -> str:
    told = json.loads(machine.smart_fork("active", "--json").stdout)["workers"]
    return next(str(one["status"]) for one in told if one["worker_id"] == worker["worker_id"])


@pytest.mark.thorough  # as of other agents
def test_a_cut_session_is_resumed_and_knows_only_what_stayed(qwen: Machine, monkeypatch: pytest.MonkeyPatch):
    """By our command, without a terminal."""
    names = ("zebra", "walrus", "heron")
    session = str(uuid.uuid4())
    for name in names:
        call = Call("", "run_shell_command", {"command": f"echo {name}", "is_background": False}, Say(f"done {name}"))
        qwen.model.when(lambda text, wanted=f"step {name}": text == wanted, call)
    for number, name in enumerate(names):
        asked(qwen, f"step {name}", "--resume" if number else "--session-id", session, "--yolo")
    log = qwen.log("qwen", session)
    listed = json.loads(qwen.smart_fork("excise", "list", session, "--json").stdout)["turns"]
    said = [turn["preview"] for turn in listed]
    gone = listed[said.index("step walrus") : said.index("step heron")]
    last = unlike_any_other("And now")

    cuts = [word for turn in gone if turn["role"] != "system" for word in ("--id", turn["id"])]
    qwen.smart_fork("excise", "cut", session, *cuts, "-y", "--json")
    left = log.path.read_text()
    os.utime(log.path, (0, log.path.stat().st_mtime - 60))  # who has just written to it may still be there
    monkeypatch.delitem(qwen.env, ONE_PROCESS[0])
    resumed = ours(qwen, "resume", session, "--in", "process", "--", last)

    request = heard(qwen, last)
    assert (resumed["kind"], resumed["session_id"], resumed["warnings"]) == ("resume", session, [])
    assert [message.text for message in request.said] == ["step zebra", "done zebra", "step heron", "done heron", last]
    assert "walrus" not in json.dumps(request.body) + left
    assert log.path == answered(qwen, session, last).path
    ended(qwen, last)
    assert qwen.model.refused == []


@pytest.mark.thorough  # as of other agents
def test_an_agent_that_asks_is_known_and_not_found(qwen: Machine):
    """Over MCP: the session that calls is told by the environment that Qwen Code gives its servers."""
    persons = asked(qwen, EXCHANGES[0][0])
    question, done = unlike_any_other(f"{EXCHANGES[0][0]}. Who knows that?"), unlike_any_other("That one.")
    arguments = {"intent": EXCHANGES[0][0], "auto_fork": False}
    qwen.model.when(question, Call(SERVER, "smart_fork", arguments, Say(done)))

    asking = asked(qwen, question, "--yolo")

    request = qwen.model.wait_for(lambda request: request.last_prompt == question and bool(request.our_results))
    (result,) = request.our_results
    assert persons in result.text
    assert asking not in result.text
