"""What a command knows of whoever runs it: a person at a terminal, or an agent."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from smart_fork.agents.known_variables import known_variables
from smart_fork.caller import speak_for
from tests.smart_fork.world import World


@pytest.fixture(autouse=True)
def _afterwards_nobody_asks() -> Iterator[None]:
    yield
    speak_for(None)


@pytest.mark.parametrize("at_a_terminal", [True, False])
@pytest.mark.usefixtures("shop")
def test_a_person_at_a_terminal_has_the_names_of_variables_noted(run, monkeypatch, at_a_terminal):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-secret")
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: at_a_terminal, raising=False)

    assert 0 == run("list").code
    assert (("ANTHROPIC_API_KEY",) if at_a_terminal else ()) == known_variables("claude")


@pytest.mark.parametrize(("mark", "named"), [("CODEX_THREAD_ID", True), ("CLAUDECODE", False), ("NO_AGENT", False)])
def test_an_agent_is_told_that_a_fork_starts_another_one(run, world: World, monkeypatch, mark, named):
    knows = world.claude(world.home / "shop", "retry the upload", "done")
    monkeypatch.setenv(mark, "1")

    done = run("fork", knows, "go on", "--in", "process", "--dry-run")

    assert named == ("note: This starts Claude Code, not Codex: the session is one of Claude Code" in done.err)
