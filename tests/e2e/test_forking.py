"""Forks of real sessions from the command line: wherever they run, they know what their parents knew."""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from pathlib import Path

import psutil
import pytest

from smart_fork.agents import AGENTS
from tests.e2e.agents import SMART_FORK, Machine
from tests.e2e.logs import Log
from tests.e2e.model_server import Message, Protocol
from tests.e2e.scenario import (
    ANSWER,
    BEGINNING,
    CONVERSATION,
    EXCHANGES,
    answers_from_the_cache,
    assert_forked,
    assert_in,
    each_agent,
    first_answer,
    heard,
    run_fork,
    unlike_any_other,
)
from tests.e2e.terminals import Terminal, wait_until
from tests.support.exhaustive import full_or_sample
from tests.support.processes import command_line

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]

NEXT = "Now do the same for the downloader"
SHELL = "'single' \"double\" $(touch HACKED) `touch HACKED` $HOME ${HOME} \\ \\n ; touch HACKED # & | > HACKED"
#: What an agent, a shell or tmux could take for something else than words.
DASH, SLASH, BANG = (
    f"--dangerously {SHELL}\n  second line: naïve café 日本語 🦊;",
    "/clear all that you know",
    "!touch HACKED",
)
COMMAND: dict[Protocol, str] = {"claude": "doctor", "codex": "login"}


def of_each(claude: str, codex: str) -> dict[Protocol, str]:
    """A hostile prompt of each agent: each kind stands in each place once. Of plans it is held for all of them together."""
    return {"claude": unlike_any_other(claude), "codex": unlike_any_other(codex)}


def taken_as_words(prompt: str) -> str:
    """What the model is sent of it: a blank in front of the first character keeps agents from it."""
    return f" {prompt}"


@each_agent(thorough="claude")
def test_a_fork_runs_as_a_process_to_the_end_of_its_answer_and_can_be_forked(
    equipped: Machine, agent: Protocol, parent: Log
):
    """F-093, F-094, F-095, F-098, F-104: of two levels Codex writes down only what is new."""
    prompt, second = of_each(SLASH, DASH)[agent], unlike_any_other("Second step")
    first = taken_as_words(prompt)
    answers_from_the_cache(equipped, first)

    fork = run_fork(equipped, parent, prompt, "--in", "process")

    log = assert_forked(equipped, agent, parent, fork, first)
    wrote = {"claude": {"written_to_cache": 1_100, "input": 100}, "codex": {"written_to_cache": 0, "input": 100}}[agent]
    assert {"read_from_cache": 142_000, **wrote, "output": 20} == first_answer(equipped, fork)
    assert_in(log, agent, equipped.project, "main")
    noted = f"Noted: {first[:60]}"
    output = wait_until(lambda: _ended_with(Path(fork["log"]), noted), "the worker's output")
    assert not executed(equipped)
    if agent == "claude":
        assert fork["new_session_id"] == json.loads(output)["session_id"]
    wait_until(lambda: not _told(equipped, first), "the first worker to end")
    before = log.sha256
    again = run_fork(equipped, log, second, "--in", "process")
    said = [*CONVERSATION, Message("user", first), Message("assistant", noted)]
    assert_forked(equipped, agent, log, again, second, said_before=said)
    assert before == log.sha256


@each_agent(thorough="codex")
def test_a_fork_into_a_worktree_works_there(equipped: Machine, agent: Protocol, parent: Log):
    """F-095, F-099, F-104, F-106: and neither agent stops to ask whether the new directory is to be trusted.

    Without a terminal, where nobody could be asked: ``test_starting.py``.
    """
    prompt, name = of_each(DASH, SLASH)[agent], f"{agent}-in-tmux"

    fork = run_fork(equipped, parent, prompt, "--worktree-name", name, "--in", "tmux")

    log = assert_forked(equipped, agent, parent, fork, taken_as_words(prompt))
    assert not executed(equipped)
    worktree = equipped.project / ".worktrees" / name
    assert str(worktree) == fork["cwd"]
    assert f"worktree {worktree}\n" in equipped.run("git", "worktree", "list", "--porcelain").stdout
    assert_in(log, agent, worktree, f"smart-fork/{name}")
    assert "" == equipped.run("git", "status", "--porcelain").stdout
    if agent == "claude":
        staged = equipped.folder_of_claude(worktree) / parent.path.name
        assert parent.path.read_bytes() == staged.read_bytes()
        assert staged.parent == log.path.parent


@pytest.mark.thorough  # a rarer place
@each_agent()
def test_a_session_of_a_repository_that_moved_is_forked_where_it_is_now(
    equipped: Machine, agent: Protocol, project: Path
):
    parent = equipped.session_of_before(agent, *EXCHANGES, cwd=project)
    equipped.smart_fork("index", "run")
    moved, before = project.rename(project.with_name(f"{project.name}-moved")), parent.sha256
    equipped.trust(moved)

    prompt = unlike_any_other(NEXT)
    asked = ("fork", parent.session_id, "--in", "process", "--json", "--", prompt)
    fork = json.loads(equipped.smart_fork(*asked, cwd=moved).stdout)

    log = assert_forked(equipped, agent, parent, fork, prompt)
    assert str(moved) == fork["cwd"]
    assert_in(log, agent, moved, "main")
    assert before == parent.sha256


@each_agent(thorough="claude")
def test_a_fork_in_tmux_is_in_a_window_named_after_its_worker_and_knows_nothing_of_what_came_after_its_message(
    equipped: Machine, agent: Protocol, parent: Log
):
    """F-104."""
    prompt, name = {"claude": unlike_any_other(BANG), "codex": COMMAND["codex"]}[agent], "Zoë's #1: $(fork); #{pid}"
    messages = json.loads(equipped.smart_fork("show", parent.session_id, "--json").stdout)["messages"]
    (number,) = [message["number"] for message in messages if message["text"] == ANSWER]
    earlier = unlike_any_other(NEXT)

    named = run_fork(equipped, parent, prompt, "--in", "tmux", "--name", name)
    unnamed = run_fork(equipped, parent, earlier, "--at", str(number), "--in", "tmux")

    assert_forked(equipped, agent, parent, named, taken_as_words(prompt))
    assert_forked(equipped, agent, parent, unnamed, earlier, said_before=BEGINNING)
    assert not executed(equipped)
    windows = equipped.tmux("list-panes", "-a", "-F", "#{session_name} #{pane_id} #{window_name}").splitlines()
    assert f"smart-fork-shop {named['terminal_id']} {name}" in windows
    assert re.fullmatch(r"now-do-the-same(-\d+)?", unnamed["session_name"]), "numbered where another that runs has it"
    assert f"smart-fork-shop {unnamed['terminal_id']} {unnamed['session_name']}" in windows


@each_agent(thorough="claude")
def test_a_fork_at_the_match_ends_with_the_exchange_that_answers(equipped: Machine, agent: Protocol, parent: Log):
    """F-104, F-107: what `find` is asked for, and not the prompt, says where."""
    prompt = {"claude": COMMAND["claude"], "codex": unlike_any_other(BANG)}[agent]

    fork = run_fork(equipped, parent, prompt, "--at", "match", "--intent", ANSWER, "--in", "process")

    assert_forked(equipped, agent, parent, fork, taken_as_words(prompt), said_before=BEGINNING)
    assert not executed(equipped)


@pytest.mark.thorough  # a rarer place
@each_agent()
def test_a_fork_into_another_repository_knows_the_conversation_and_works_there(
    equipped: Machine, agent: Protocol, parent: Log, project: Path
):
    """F-095, F-099, F-101."""
    prompt = unlike_any_other(NEXT)

    fork = run_fork(equipped, parent, prompt, "--cwd", str(project), "--in", "process")

    assert_in(assert_forked(equipped, agent, parent, fork, prompt), agent, project, "main")
    if agent == "claude":
        staged = equipped.folder_of_claude(project) / parent.path.name
        assert parent.path.read_bytes() == staged.read_bytes()
        assert not staged.samefile(parent.path)
        assert 0o600 == staged.stat().st_mode & 0o777


@each_agent()
def test_a_fork_never_overwrites_what_lies_where_its_transcript_should(
    equipped: Machine, agent: Protocol, parent: Log, project: Path
):
    """F-101: a copy of before the session went on."""
    if agent == "codex":
        pytest.skip("Codex finds a session from everywhere: nothing is copied")
    other = equipped.folder_of_claude(project) / parent.path.name
    other.parent.mkdir(parents=True)
    older = b"".join(parent.path.read_bytes().splitlines(keepends=True)[:-1])
    other.write_bytes(older)
    os.utime(other, (0, 0))
    logs = set(equipped.logs(agent))

    arguments = ["fork", parent.session_id, "--cwd", str(project), "--in", "process", "--", unlike_any_other(NEXT)]
    done = equipped.smart_fork(*arguments, check=False)

    assert (1, older) == (done.returncode, other.read_bytes())
    assert str(other) in done.stderr
    assert logs == set(equipped.logs(agent))
    other.unlink()


@each_agent(thorough="codex")
def test_a_session_of_a_further_account_is_forked_and_gone_on_with_in_its_own_home(equipped: Machine, agent: Protocol):
    """Its agent finds it nowhere else: that is where its sessions and its login are."""
    own, further = (equipped.home / f".{agent}{ending}" for ending in ("", "-work"))
    shutil.copytree(own, further, symlinks=True, ignore=shutil.ignore_patterns("projects", "*sessions", "*.sqlite*"))
    if agent == "claude":
        shutil.copyfile(equipped.home / ".claude.json", further / ".claude.json")
    parent = equipped.session_of_before(agent, *EXCHANGES)
    there = further / parent.path.relative_to(own)
    there.parent.mkdir(parents=True)
    parent.path.rename(there)
    os.utime(there, (a_minute_ago := time.time() - 60, a_minute_ago))  # else somebody seems to be in it
    settings = equipped.home / ".smart-fork/config.toml"
    settings.parent.mkdir(exist_ok=True, mode=0o700)
    settings.write_text(f'homes = ["{AGENTS[agent].home.variable}={further}"]\n')
    prompt, second, third = map(unlike_any_other, (NEXT, "And one step more", "And the last one"))

    fork = run_fork(equipped, parent, prompt, "--in", "process")

    def log_of(answer: str) -> Path | None:
        return next((one for one in further.rglob("*.jsonl") if answer in one.read_text()), None)

    assert [*CONVERSATION, Message("user", prompt)] == heard(equipped, prompt).said
    log = wait_until(lambda: log_of(f"Noted: {prompt}"), "the fork's log in the home of its parent")
    assert fork["new_session_id"] in log.name
    assert not [one for one in equipped.logs(agent) if fork["new_session_id"] in one.path.name]
    wait_until(lambda: not _told(equipped, prompt), "the worker to end")

    equipped.smart_fork("message", fork["worker_id"], second)

    said = [*CONVERSATION, Message("user", prompt), Message("assistant", f"Noted: {prompt}"[:67])]
    assert [*said, Message("user", second)] == heard(equipped, second).said
    equipped.smart_fork("resume", parent.session_id, "--in", "process", "--", third)
    assert [*CONVERSATION, Message("user", third)] == heard(equipped, third).said
    wait_until(lambda: log_of(f"Noted: {third}") == there, "the answer in the session itself")
    wait_until(lambda: not _told(equipped, third), "the worker to end")
    settings.unlink()


def executed(machine: Machine) -> list[str]:
    """What a hostile prompt would have made. Files come and go while one looks, which `os.walk` passes over."""
    return [folder for folder, _, files in os.walk(machine.home) if "HACKED" in files]


@each_agent(thorough="claude")
def test_a_fork_here_takes_the_place_of_the_command(equipped: Machine, agent: Protocol, parent: Log):
    prompt = unlike_any_other(NEXT)
    command = [*SMART_FORK, "fork", parent.session_id, "--in", "here", "--", prompt]

    terminal = equipped.interactive(*command)

    assert [*CONVERSATION, Message("user", prompt)] == heard(equipped, prompt).said
    wait_until(lambda: "Noted: Now do the same" in terminal.screen, "the answer on the screen")
    running = command_line(psutil.Process(terminal.pid))
    assert parent.session_id in running
    assert "smart_fork" not in running
    terminal.leave("/exit" if agent == "claude" else "/quit")


@each_agent(thorough="claude")
@pytest.mark.parametrize("other", full_or_sample([False, True], [False]), ids=str)
def test_a_dry_run_prints_a_command_that_forks_when_it_is_pasted(
    equipped: Machine, agent: Protocol, parent: Log, other: bool
):
    """F-107: of each agent in one place, and with all drills in the other one as well."""
    place = "tmux" if (agent == "claude") is not other else "process"
    prompt = unlike_any_other(f"Now do the same for {SHELL}\nand the downloader")
    before = _files(equipped)

    options = ["--in", place, "--dry-run"]
    printed = equipped.smart_fork("fork", parent.session_id, *options, "--", prompt).stdout

    assert before == _files(equipped)
    assert [] == [request for request in equipped.model.requests if request.last_prompt == prompt]
    _paste(equipped, printed)
    assert [*CONVERSATION, Message("user", prompt)] == heard(equipped, prompt).said
    assert not executed(equipped)


def _paste(machine: Machine, command: str) -> Terminal:
    return machine.interactive("sh", "-c", command, cwd=machine.home)


def _ended_with(output: Path, text: str) -> str | None:
    said = output.read_text()
    return said if text in said else None


def _told(machine: Machine, prompt: str) -> list[int]:
    """What was started with that prompt."""
    return [process.pid for process in machine.processes() if prompt in command_line(process)]


def _files(machine: Machine) -> set[Path]:
    """The sessions and worktrees on the machine."""
    logs = {log.path for agent in ("claude", "codex") for log in machine.logs(agent)}
    return logs | set((machine.project / ".worktrees").glob("*"))
