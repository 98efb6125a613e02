"""The real agents ask for the session that knows, over MCP, and a fork of it goes to work."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import psutil
import pytest

from tests.e2e.agents import SMART_FORK, Machine
from tests.e2e.logs import Json
from tests.e2e.model_server import Message, Protocol
from tests.e2e.scenario import (
    ANSWER,
    BEGINNING,
    CONVERSATION,
    EXCHANGES,
    INTENT,
    MORE,
    PROMPT,
    ask,
    assert_forked,
    assert_in,
    each_agent,
    heard,
    unlike_any_other,
)
from tests.e2e.terminals import wait_until
from tests.support.processes import command_line, working_directory

pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("machine")]


def preloaded(machine: Machine) -> list[psutil.Process]:
    """The preloader of a machine, and its forks."""
    return [one for one in machine.processes() if "smart_fork.cli.preload.server" in command_line(one)]


@pytest.mark.thorough
@each_agent()
def test_a_person_asks_in_a_terminal_and_a_fork_opens_in_a_window_of_its_own(
    equipped: Machine, agent: Protocol, project: Path
):
    """F-090, F-093, F-094, F-095, F-098, F-107: from a process that waited, and by the command that `find` prints."""
    parent = equipped.session_of_before(agent, *EXCHANGES, cwd=project)
    before, prompt, pasted = parent.sha256, *(unlike_any_other("Now do the same for the downloader") for _ in range(2))

    def found() -> list[Json]:
        words = ("find", INTENT, "--agent", agent, "--json")
        results: list[Json] = json.loads(equipped.run(*SMART_FORK, *words, cwd=project).stdout)["results"]
        return results

    (hit,) = found()
    wait_until(lambda: len(preloaded(equipped)) > 2, "the preloader and two forks")
    order = {"intent": INTENT, "agent_type": agent, "auto_fork": True, "prompt": prompt, "run_in": "tmux"}
    (answer,), caller = ask(equipped, agent, project, ("smart_fork", order), terminal=True)

    fork = answer["forked_session"]
    assert [one for one in preloaded(equipped) if working_directory(one) == project]
    assert_forked(equipped, agent, parent, fork, prompt)
    windows = equipped.tmux("list-panes", "-a", "-F", "#{pane_id} #{window_name}").splitlines()
    assert f"{fork['terminal_id']} {fork['session_name']}" in windows
    assert [parent.session_id] == [result["session_id"] for result in answer["results"]]
    assert caller.session_id not in [result["session_id"] for result in found()], "it has only asked"
    assert parent.session_id == hit["session_id"]
    equipped.interactive("sh", "-c", f"{hit['fork_command']} {shlex.quote(pasted)}", cwd=equipped.home)
    assert [*CONVERSATION, Message("user", pasted)] == heard(equipped, pasted).said
    assert before == parent.sha256


@pytest.mark.thorough  # as a person asks
@each_agent()
def test_a_script_asks_and_a_fork_works_in_the_background_and_who_has_only_asked_is_no_answer(
    equipped: Machine, agent: Protocol, project: Path
):
    """F-090, F-093, F-094, F-095, F-098, D1: without any terminal, and without saying whose sessions."""
    parent = equipped.session_of_before(agent, *EXCHANGES, cwd=project)
    before, prompt = parent.sha256, unlike_any_other("Now do the same for the downloader")
    others = set(equipped.servers())  # Codex keeps those of a terminal for a while
    question = f"Which session knows {INTENT}?"

    only, asker = ask(equipped, agent, project, ("smart_fork", {"intent": question}))
    everywhere = ("--agent", "both", "--include-automated", "--all-projects", "--limit", "50", "--json")
    found = json.loads(equipped.smart_fork("find", question, *everywhere, cwd=project).stdout)
    hits = {result["session_id"] for result in found["results"]}  # those of other tests' projects know it, too
    assert parent.session_id in hits, found
    assert asker.session_id not in hits, found
    forking = {"intent": INTENT, "auto_fork": True, "prompt": prompt, "run_in": "process"}
    more, caller = ask(equipped, agent, project, ("smart_fork", forking), ("smart_fork", {"intent": question}))

    fork = assert_forked(equipped, agent, parent, more[0]["forked_session"], prompt)
    answers = [*only, *more]
    assert [agent] * 3 == [answer["agent_type"] for answer in answers]
    for (
        answer
    ) in answers:  # not who has asked before, nor the caller, nor in the last one the worker that it has by now
        assert [parent.session_id] == [result["session_id"] for result in answer["results"]]
    assert len({parent.session_id, asker.session_id, caller.session_id, fork.session_id}) == 4
    assert before == parent.sha256
    wait_until(lambda: set(equipped.servers()) <= others, "our server to end with the agent that had started it")


@pytest.mark.thorough
@each_agent()
def test_an_agent_lists_and_reads_sessions_and_has_one_forked_at_an_earlier_message_into_a_worktree(
    equipped: Machine, agent: Protocol, project: Path
):
    """F-090, F-095, F-099, F-106: it asks what is indexed, too."""
    parent = equipped.session_of_before(agent, *EXCHANGES, cwd=project)
    newer = equipped.session_of_a_person(agent, ("Rename upload.py to send.py", "It is send.py now."), cwd=project)
    before, prompt = parent.sha256, unlike_any_other("Now do the same for the downloader")
    messages = json.loads(equipped.smart_fork("show", parent.session_id, "--json").stdout)["messages"]

    forking = {"intent": INTENT, "fork_session_id": parent.session_id, "prompt": prompt, "run_in": "process"}
    forking |= {"at": messages[1]["number"], "worktree": "downloader"}
    (listed, whole, rest, status, answer), _ = ask(
        equipped,
        agent,
        project,
        ("list_sessions", {"agent_type": agent}),
        ("read_session", {"session_id": parent.session_id[:13]}),
        ("read_session", {"session_id": parent.session_id, "at": messages[2]["number"], "context": 1}),
        ("index_status", {}),
        ("smart_fork", forking),
    )

    assert [newer.session_id, parent.session_id] == [session["session_id"] for session in listed["sessions"]]
    assert [(said.role, said.text) for said in CONVERSATION] == [(m["role"], m["text"]) for m in whole["messages"]]
    assert [ANSWER, MORE] == [message["text"] for message in rest["messages"]][:2]
    assert PROMPT not in json.dumps(rest["messages"])
    assert str(equipped.home / ".smart-fork" / "index.db") == status["index"]
    fork = assert_forked(equipped, agent, parent, answer["forked_session"], prompt, said_before=BEGINNING)
    branch = "smart-fork/downloader"
    assert_in(fork, agent, project / ".worktrees" / "downloader", branch if agent == "claude" else None)
    assert branch in equipped.run("git", "branch", "--list", branch, cwd=project).stdout
    assert before == parent.sha256
