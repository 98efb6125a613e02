"""Workers of the real programs: new ones, sessions gone on with, and several at once; by what the model is sent."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from smart_fork.forking.session_use import FRESH_SECONDS
from tests.e2e.agents import Machine
from tests.e2e.logs import Json, Log
from tests.e2e.model_server import Message, Protocol
from tests.e2e.scenario import (
    ANSWER,
    BEGINNING,
    ask,
    assert_forked,
    assert_in,
    each_agent,
    heard,
    settled,
    unlike_any_other,
)
from tests.e2e.terminals import PROGRAM_SECONDS, wait_until
from tests.support.processes import command_line

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]


def start(machine: Machine, *words: str, cwd: Path | None = None) -> Json:
    told: Json = json.loads(machine.smart_fork(words[0], "--json", *words[1:], cwd=cwd).stdout)
    for worker in told.get("workers", [told]):
        settled(machine, worker)
    return told


def noted(prompt: str) -> list[Message]:
    return [Message("user", prompt), Message("assistant", f"Noted: {prompt[:60]}")]


def answered(machine: Machine, agent: Protocol, session_id: str, prompt: str) -> Log:
    log = machine.log(agent, session_id)
    wait_until(lambda: log.answers(f"Noted: {prompt[:60]}"), "the answer in the log")
    return log


def ended(machine: Machine, prompt: str) -> None:
    """A worker without a terminal ends with its answer."""
    wait_until(lambda: not [p for p in machine.processes() if prompt in command_line(p)], "the worker to end")


@each_agent(thorough="claude")
def test_a_session_begins_and_goes_on_without_a_terminal(equipped: Machine, agent: Protocol, project: Path):
    """R-060 to R-064, R-066: by the worker's id, and as the newest of its directory."""
    first, second, third = (unlike_any_other(f"The {word} step") for word in ("first", "second", "third"))
    how = ("--in", "process")

    new = start(equipped, "new", "--agent", agent, *how, "--", first, cwd=project)
    assert [Message("user", first)] == heard(equipped, first).said
    session = new["session_id"]
    log = answered(equipped, agent, session, first)
    assert_in(log, agent, project, "main")
    ended(equipped, first)
    resumed = start(equipped, "resume", new["worker_id"], *how, "--", second)
    assert [*noted(first), Message("user", second)] == heard(equipped, second).said
    answered(equipped, agent, session, second)
    ended(equipped, second)
    newest = start(equipped, "continue", "--agent", agent, *how, "--", third, cwd=project)
    assert [*noted(first), *noted(second), Message("user", third)] == heard(equipped, third).said

    workers = [new, resumed, newest]
    assert [session] * 3 == [worker["session_id"] for worker in workers]
    assert [str(project)] * 3 == [worker["cwd"] for worker in workers]
    assert ["new", "resume", "continue"] == [worker["kind"] for worker in workers]
    assert [[]] * 3 == [worker["warnings"] for worker in workers]
    assert log.path == answered(equipped, agent, session, third).path


@pytest.mark.thorough  # a rarer place
@each_agent()
def test_a_session_in_a_window_is_gone_to_while_it_runs_and_gone_on_with_afterwards(
    equipped: Machine, agent: Protocol, project: Path
):
    """R-060, R-064, R-065: Codex is another in the terminal than in a script."""
    first, second = unlike_any_other("The first step"), unlike_any_other("The second step")

    new = start(equipped, "new", "--agent", agent, "--in", "tmux", "--", first, cwd=project)
    assert [Message("user", first)] == heard(equipped, first).said
    log = answered(equipped, agent, new["session_id"], first)
    there = start(equipped, "resume", new["session_id"], "--in", "tmux")
    still = start(equipped, "continue", "--agent", agent, "--in", "tmux", cwd=project)
    pane = equipped.terminal(new["terminal_id"])
    pane.leave("/exit" if agent == "claude" else "/quit")
    on = start(equipped, "continue", "--agent", agent, "--in", "tmux", "--", second, cwd=project)

    assert [*noted(first), Message("user", second)] == heard(equipped, second).said
    for same in (there, still):
        assert (new["worker_id"], True, new["attach"]) == (same["worker_id"], same["already_running"], same["attach"])
    assert ("continue", new["session_id"]) == (on["kind"], on["session_id"])
    assert on["worker_id"] != new["worker_id"]
    assert log.path == answered(equipped, agent, new["session_id"], second).path


@pytest.mark.thorough  # a rarer way
@each_agent()
def test_without_a_prompt_a_window_waits_for_the_person(equipped: Machine, agent: Protocol, project: Path):
    """R-024, R-041: and the start does not."""
    typed = unlike_any_other("What the person types")

    new = start(equipped, "new", "--agent", agent, "--in", "tmux", cwd=project)
    pane = equipped.terminal(new["terminal_id"])
    # Codex has a line to type in before. Claude Code 2.1.332 names its mode instead of the shortcuts.
    ready = {"claude": ("for shortcuts", "shift+tab to cycle"), "codex": ("gpt-5 default",)}[agent]
    wait_until(lambda: any(sign in pane.screen for sign in ready), "the agent to be ready")
    pane.type(typed)

    assert [Message("user", typed)] == heard(equipped, typed).said
    assert (new["session_id"] is None) == (agent == "codex")
    if agent == "claude":
        answered(equipped, agent, new["session_id"], typed)


@pytest.mark.thorough
def test_workers_of_both_agents_fork_at_a_message_in_worktrees_of_their_own(equipped: Machine, parents):
    """F-110, F-115, F-120: asked for by a real agent over MCP."""
    pairs = [(agent, parents(agent), unlike_any_other("Now the downloader")) for agent in ("claude", "codex")]
    orders = []
    for agent, parent, prompt in pairs:
        messages = json.loads(equipped.smart_fork("show", parent.session_id, "--json").stdout)["messages"]
        (number,) = [message["number"] for message in messages if message["text"] == ANSWER]
        order = {"project_path": str(equipped.project), "prompt": prompt, "fork_from": parent.session_id}
        orders.append(order | {"at": number, "run_in": "process", "name": f"{agent} apart"})
    before = [parent.sha256 for _, parent, _ in pairs]

    (told,), _ = ask(equipped, "claude", equipped.project, ("spawn_workers", {"workers": orders}))

    assert (2, 0) == (told["started"], told["failed"])
    for worker in told["workers"]:
        settled(equipped, worker)
    for (agent, parent, prompt), worker in zip(pairs, told["workers"], strict=True):
        fork = {**worker, "new_session_id": worker["session_id"], "resume_session_id": worker["source_session_id"]}
        if agent == "codex":  # and Claude Code has asked
            assert fork["warnings"].pop(0).startswith("This starts Codex, not Claude Code")
        log = assert_forked(equipped, agent, parent, fork, prompt, said_before=BEGINNING)
        worktree = equipped.project / ".worktrees" / worker["name"].replace(" ", "-")
        assert (str(worktree), f"smart-fork/{worktree.name}") == (worker["worktree"], worker["branch"])
        if agent == "claude":
            assert_in(log, agent, worktree, worker["branch"])
    assert before == [parent.sha256 for _, parent, _ in pairs]


def test_one_new_and_one_that_forks_the_newest(equipped: Machine, project: Path):
    """F-110, F-111, F-112, F-117: from a file, one of each agent."""
    first, again, fresh = (unlike_any_other(f"The {word} piece") for word in ("first", "same", "other"))
    base = {"project_path": str(project), "run_in": "process", "worktree": False}
    start(equipped, "new", "--agent", "codex", "--in", "process", "--", first, cwd=project)
    ended(equipped, first)
    newest = {"agent_type": "codex", "continue_session": True, "fork_session": True, "prompt": again}
    file = equipped.root / "workers.json"
    file.write_text(json.dumps([base | newest, base | {"agent_type": "claude", "prompt": fresh}]))

    told = start(equipped, "spawn", str(file))

    assert [*noted(first), Message("user", again)] == heard(equipped, again).said
    assert [Message("user", fresh)] == heard(equipped, fresh).said
    assert ["fork", "new"] == [worker["kind"] for worker in told["workers"]]
    assert [str(project)] * 2 == [worker["cwd"] for worker in told["workers"]]
    assert all(worker["session_id"] for worker in told["workers"])


def test_what_a_person_has_open_and_idle_is_neither_gone_on_with_nor_cut_until_it_is_closed(
    equipped: Machine, project: Path
):
    """It was started without an id, which only Claude Code's own note tells."""
    prompt, answer = unlike_any_other("My codeword is ALPHA"), unlike_any_other("Noted.")
    equipped.model.when(lambda text: text == prompt, answer)
    terminal = equipped.agent_interactive("claude", "--", prompt, cwd=project)
    log = wait_until(lambda: equipped.find_log("claude", answer), "the answer in the log")
    wait_until(lambda: time.time() - log.path.stat().st_mtime > FRESH_SECONDS, "the log to be quiet")
    before = log.path.read_bytes()

    for words in (("resume", log.session_id), ("continue",), ("resume", log.session_id, "--agent", "claude")):
        done = equipped.smart_fork(*words, "--in", "process", "--json", "--", "go on", cwd=project, check=False)
        assert 1 == done.returncode
        assert "open elsewhere: process" in done.stdout + done.stderr
        assert f"smart-fork fork {log.session_id}" in done.stdout + done.stderr
    cut = equipped.smart_fork("excise", "cut", "1", log.session_id, "-y", "--force", check=False)
    assert "is running" in cut.stderr
    assert before == log.path.read_bytes()

    terminal.type("/clear")
    wait_until(lambda: log.session_id not in _noted_by_claude(equipped), "the note to name another session")
    again = unlike_any_other("go on")
    words = ("resume", log.session_id, "--in", "process", "--", again)
    wait_until(  # newer programs write to it once more
        lambda: not equipped.smart_fork(*words, cwd=project, check=False).returncode,
        "the log to be quiet",
        pause=PROGRAM_SECONDS,
    )
    assert [Message("user", prompt), Message("assistant", answer), Message("user", again)] == heard(
        equipped, again
    ).said
    terminal.leave("/exit")


def _noted_by_claude(machine: Machine) -> str:
    return "".join(one.read_text() for one in (machine.home / ".claude/sessions").glob("*.json"))


@each_agent(thorough="codex")
def test_a_session_goes_on_in_its_repository_when_its_worktree_is_gone(
    equipped: Machine, agent: Protocol, project: Path
):
    """A worker's, whose worktree our own command took away: it is forked, and then gone on with."""
    first, forked, resumed = (unlike_any_other(f"The {word} step") for word in ("first", "forked", "resumed"))
    parent = start(equipped, "new", "--agent", agent, "--worktree", "--in", "process", "--", first, cwd=project)
    heard(equipped, first)
    log = answered(equipped, agent, parent["session_id"], first)
    ended(equipped, first)
    equipped.smart_fork("close", parent["worker_id"], "--remove-worktree", cwd=project)
    assert not Path(parent["worktree"]).exists()

    fork = start(equipped, "fork", log.session_id, "--no-brief", "--in", "process", "--", forked, cwd=project)
    assert [*noted(first), Message("user", forked)] == heard(equipped, forked).said
    assert str(project) == fork["cwd"]
    answered(equipped, agent, fork["new_session_id"], forked)
    ended(equipped, forked)

    again = start(equipped, "resume", log.session_id, "--in", "process", "--", resumed, cwd=project)
    assert [*noted(first), Message("user", resumed)] == heard(equipped, resumed).said
    assert str(project) == again["cwd"]
    wait_until(lambda: log.answers(f"Noted: {resumed[:60]}"), "the answer in the session's own log")
