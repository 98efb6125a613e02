"""Tests that background tasks keep a session from being branched while its agent runs."""

from __future__ import annotations

import os
from contextvars import copy_context
from pathlib import Path

import pytest

from smart_fork.agents.request_fields import Options
from smart_fork.errors import ForkRefused, speak_of_tools
from smart_fork.forking.session_use import SessionUse
from smart_fork.workers.registry import Registry
from tests.smart_fork.forking.test_branch import age, append, everything
from tests.smart_fork.forks import SESSION, said, text
from tests.smart_fork.session_family import branch

LATER = "2099-01-01T00:00:00.000Z"
STOP_FIRST = "Stop the current session's running background tasks before branching the conversation."


def in_the_background(agent: str, *, ended: bool = False, when: str = LATER) -> list[dict]:
    """Return a background command of the agent, and its last message about it."""
    if agent == "codex":
        returned = "Chunk ID: a1\nProcess running with session ID 42\nOutput:\n"
        told = {"type": "exec_command_end", "process_id": "42", "exit_code": 0}
        made: list[dict] = [
            {"type": "response_item", "payload": payload}
            for payload in (
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "serve it"}]},
                {"type": "function_call", "name": "exec_command", "call_id": "c9", "arguments": '{"cmd": "make serve"}'},
                {"type": "function_call_output", "call_id": "c9", "output": returned},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "It is served"}]},
            )
        ]  # fmt: skip
        made += [{"type": "event_msg", "payload": told}] * ended
        return [record | {"timestamp": when} for record in made]
    call = {
        "type": "tool_use",
        "id": "t9",
        "name": "Bash",
        "input": {"command": "make serve", "run_in_background": True},
    }
    result = [{"type": "tool_result", "tool_use_id": "t9", "content": "Command running in background with ID: 42"}]
    told = "<task-notification>\n<task-id>42</task-id>\n<status>completed</status>\n</task-notification>"
    records = [
        said("u8", "a5", "user", "serve it"),
        said("a8", "u8", "assistant", [call]),
        said("r8", "a8", "user", result, toolUseResult={"stdout": "", "backgroundTaskId": "42"}),
        said("a9", "r8", "assistant", text("It is served")),
        *[{"type": "queue-operation", "operation": "enqueue", "content": told}] * ended,
    ]
    return [record | {"timestamp": when} for record in records]


def named(agent: str, path: Path, **how: object) -> None:
    """Add a background task to a log, and make the log an hour old."""
    append(path, *in_the_background(agent, **how))
    age(path, 3600)


@pytest.fixture
def its_worker(any_session):
    """Register a living, idle worker of that session."""
    with Registry() as registry:
        worker = registry.add(any_session[0], source_session_id="x", session_id=SESSION, place="tmux", cwd=Path("/x"))
        registry.set_started(worker.id, command=["x"])
        yield lambda state: registry.set_state(worker.id, state)


def test_a_session_whose_worker_has_something_in_the_background_is_refused(any_session, its_worker, home):
    """B-057: said as it is, with what it is; an earlier message can be branched at; it ends with its agent."""
    agent, path = any_session
    named(agent, path)
    before = everything(home)

    for how in ({}, {"start": Options(place="process")}, {"title": "x"}):
        with pytest.raises(ForkRefused) as caught:
            branch(SESSION, **how)
        assert STOP_FIRST == caught.value.message
        assert "make serve (42)" in caught.value.hint
        assert "--at N" in caught.value.hint
    assert before == everything(home)
    assert branch(SESSION, at=0)
    its_worker("ended")
    assert branch(SESSION)


def test_what_has_ended_in_the_background_keeps_nobody_from_branching(any_session, its_worker):
    agent, path = any_session
    named(agent, path, ended=True)
    assert branch(SESSION)


def test_what_ran_before_its_worker_began_ended_with_the_agent_of_then(any_session, its_worker):
    agent, path = any_session
    named(agent, path, when="2026-01-02T00:00:00.000Z")
    assert branch(SESSION)


def test_the_background_of_a_session_counts_where_it_is_open_elsewhere(any_session, monkeypatch):
    """Evidence: a recent write, the caller's id, a process with the session in its command line, or one that works in
    it.
    """
    agent, path = any_session
    named(agent, path)
    assert branch(SESSION)  # nobody is there
    with pytest.raises(ForkRefused, match="background tasks"):
        branch(SESSION, caller_session_id=SESSION)
    assert branch(SESSION, caller_session_id="another")
    os.utime(path)
    with pytest.raises(ForkRefused, match="background tasks"):
        branch(SESSION)
    age(path, 3600)
    monkeypatch.setattr(SessionUse, "processes", [os.getpid()])
    with pytest.raises(ForkRefused, match="background tasks"):
        branch(SESSION)


def test_a_model_is_told_of_the_background_in_the_words_of_its_tools(any_session):
    agent, path = any_session
    named(agent, path)

    def refused() -> str:
        speak_of_tools()
        with pytest.raises(ForkRefused) as caught:
            branch(SESSION, caller_session_id=SESSION)
        return caught.value.hint

    hint = copy_context().run(refused)
    assert "read_session" in hint
    assert "--at" not in hint
