"""Tests of agents that end right after their start, and of the cleanup."""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from shutil import which
from unittest.mock import Mock

import pytest

from indexer.masking import mask
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.errors import ProgramFailed
from smart_fork.forking.confirmation import Confirmation
from smart_fork.system.processes import Clock, Processes
from smart_fork.workers.registry import Registry
from tests.smart_fork.forking.conftest import SystemThatHelps, playing, source_of
from tests.smart_fork.forks import NEW, SESSION, FakeProcesses, codex_path, codex_records, said, snapshot, write_log
from tests.support.cases import thorough_except_first

agents = pytest.mark.parametrize("agent", thorough_except_first(["claude", "codex"]))


@agents
@pytest.mark.parametrize(
    ("status", "how"), [(0, " (exit status 0)"), (3, " (exit status 3)"), (-9, " (killed by SIGKILL)"), (None, "")]
)
def test_an_agent_that_ends_before_it_has_taken_the_prompt_is_an_error(launch, source, clock, status, how):
    processes = FakeProcesses()
    processes.living = False
    processes.exit_status = lambda _pid: status

    with pytest.raises(ProgramFailed) as caught:
        launch(source, processes)

    assert f"{source.agent} ended before it took its prompt{how}: Something went wrong" == caught.value.message
    assert str(processes.started[0]["log"]) in caught.value.hint
    assert 0 == clock.slept
    with Registry() as registry:
        assert ["failed"] == [worker.state for worker in registry.workers()]


def test_of_the_last_words_of_an_agent_that_ended_a_thousand_characters_are_repeated():
    seen = Confirmation(None, taken=False, last_words=mask("word " * 1000))

    error = seen.as_error(Mock(agent="claude", prompt="do"), Mock(log="out.log"))

    assert 1000 == len(error.message.removeprefix("claude ended before it took its prompt: "))


@agents
@pytest.mark.slow
def test_what_was_made_for_an_agent_that_ended_at_once_goes_again(launch, source, agent, repo, home):
    """The worktree, its branch and the copy are removed, unless the agent left work in the worktree."""
    before = snapshot(home / f".{agent}")
    processes = FakeProcesses()
    processes.living = False

    with pytest.raises(ProgramFailed, match="ended before"):
        launch(source, processes, worktree="retry")
    with pytest.raises(ProgramFailed, match="ended before"):
        launch(source, processes, at="a4" if agent == "claude" else "6")

    assert not (repo / ".worktrees/retry").exists()
    assert "" == Processes().run(["git", "-C", str(repo), "branch", "--list", "smart-fork/*"], timeout=30).text
    assert before == snapshot(home / f".{agent}")
    processes.on_start = lambda call: (call["cwd"] / "found.txt").write_text("what it found out")
    with pytest.raises(ProgramFailed, match="ended before"):
        launch(source, processes, worktree="retry")
    assert (repo / ".worktrees/retry/found.txt").exists()


@agents
def test_a_log_that_only_begins_is_no_prompt_taken(launch, source, agent, clock, home):
    """The start fails if the agent then ends, and is reported as unconfirmed if it stays."""
    processes = FakeProcesses()

    def begin(call: dict) -> None:
        if agent == "claude":
            new = call["argv"][call["argv"].index("--session-id") + 1]
            write_log(folder_of(call["cwd"]) / f"{new}.jsonl", [{"type": "mode", "sessionId": new}])
        else:
            moment = datetime.fromtimestamp(clock.now(), UTC).isoformat()
            header = codex_records(NEW, call["cwd"], [], forked_from_id=SESSION, timestamp=moment)
            write_log(codex_path(home, NEW), header)

    processes.on_start = begin
    forked = launch(source, processes)
    processes.living = False

    assert not forked.confirmed
    assert "Not confirmed" in forked.warnings[0]
    with pytest.raises(ProgramFailed, match="ended before"):
        launch(source, processes)


@agents
def test_one_that_has_answered_when_it_is_looked_at_may_have_ended(launch, source, played, agent):
    play = played.on_start

    def answer(call: dict) -> None:
        play(call)
        played.living = False

    played.on_start = answer
    forked = launch(source, played)

    assert (True, ()) == (forked.confirmed, forked.warnings)
    with Registry() as registry:
        assert "ended" == registry.get(forked.worker_id).state


def test_one_that_could_not_reach_its_model_has_taken_nothing(launch, claude_session, repo, clock):
    """Claude Code writes the prompt and its own error into the log, and ends."""
    processes = playing("claude", clock, repo)
    play = processes.on_start

    def refuse(call: dict) -> None:
        play(call)
        (log,) = (path for path in folder_of(call["cwd"]).glob("*.jsonl") if path != claude_session)
        moment = datetime.fromtimestamp(clock.now(), UTC).isoformat()
        words = [{"type": "text", "text": "Not logged in"}]
        failed = said("a9", "u9", "assistant", words, isApiErrorMessage=True, timestamp=moment)
        failed["message"] |= {"model": "<synthetic>", "stop_reason": "stop_sequence"}
        with log.open("a") as file:
            file.write(json.dumps(failed) + "\n")
        processes.living = False

    processes.on_start = refuse

    with pytest.raises(ProgramFailed, match="ended before it took its prompt"):
        launch(source_of("claude", claude_session, repo), processes)


ENDINGS = {
    "exit 0": ("go on", "it took its prompt", " (exit status 0)"),
    "sleep 1; exit 3": (None, "it was ready", " (exit status 3)"),
    "kill -9 $$": ("go on", "it took its prompt", " (killed by SIGKILL)"),
}


@pytest.mark.parametrize("script", thorough_except_first(ENDINGS))
def test_a_window_whose_agent_ends_is_an_error(launch, claude_session, private_tmux, programs, script):
    (programs / "claude").write_text(f"#!/bin/sh\n{script}\n")
    source = source_of("claude", claude_session, programs)
    prompt, before, how = ENDINGS[script]

    with pytest.raises(ProgramFailed) as caught:
        launch(source, SystemThatHelps(), prompt=prompt, place="tmux", clock=Clock())

    said = caught.value.message.partition(":")[0]
    assert said in {f"claude ended before {before}{one}" for one in (how, "")}, "tmux does not always know how"
    assert "Its window is still there: tmux" in caught.value.hint


def test_an_agent_whose_window_is_closed_at_once_names_no_window(launch, claude_session, private_tmux, programs):
    socket = os.environ["SMART_FORK_TMUX_SOCKET"]
    (programs / "claude").write_text(
        f'#!/bin/sh\n{which("tmux")} -L {socket} kill-pane -t "$TMUX_PANE"\nexec sleep 600\n'
    )
    source = source_of("claude", claude_session, programs)

    with pytest.raises(ProgramFailed, match="Its window was closed") as caught:
        launch(source, SystemThatHelps(), prompt="go on", place="tmux", clock=Clock())

    assert caught.value.hint == ""
