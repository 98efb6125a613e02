"""A command finds out whether a person at a terminal or an agent runs it."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator

import pytest

from smart_fork.agents import AGENTS
from smart_fork.system.call_context import calling
from tests.smart_fork.world import World


@pytest.fixture(autouse=True)
def _afterwards_nobody_asks() -> Iterator[None]:
    yield
    calling.set(None)


@pytest.mark.parametrize("at_a_terminal", [True, False])
@pytest.mark.usefixtures("shop")
def test_a_person_at_a_terminal_has_the_names_of_variables_noted(run, monkeypatch, at_a_terminal):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a-secret")
    for stream in (sys.stdin, sys.stderr):
        monkeypatch.setattr(stream, "isatty", lambda: at_a_terminal, raising=False)

    assert 0 == run("list").code
    assert (("ANTHROPIC_API_KEY",) if at_a_terminal else ()) == AGENTS.login_of("claude").noted()


@pytest.mark.parametrize(("mark", "named"), [("CODEX_THREAD_ID", True), ("CLAUDECODE", False), ("NO_AGENT", False)])
def test_an_agent_is_told_that_a_fork_starts_another_one(run, world: World, monkeypatch, mark, named):
    knows = world.claude(world.home / "shop", "retry the upload", "done")
    monkeypatch.setenv(mark, "1")

    done = run("fork", knows, "go on", "--in", "process", "--dry-run")

    assert named == ("note: This starts Claude Code, not Codex: the session is one of Claude Code" in done.err)


def test_a_dry_run_puts_the_ways_to_fork_a_session_side_by_side(run, world: World):
    said = [word for number in range(6) for word in (f"Step {number}: {'paint the wall ' * 60}", "painted")]
    said[6:8] = "When the upload breaks off, try again and wait longer each time", "It retries with backoff now"
    knows = world.claude(world.home / "shop", *said)
    assert 0 == run("index", "run").code

    def compared(*words: str) -> dict[str, int]:
        done = run("fork", knows, "retry uploads with backoff", "--in", "process", "--dry-run", "--json", *words)
        return {way["option"]: way["tokens"] for way in json.loads(done.out)["ways"]}

    ways = compared()
    assert ["", "--at match", "--budget match", "--budget 30000"] == [*ways]
    assert ways["--budget match"] < ways[""] > ways["--at match"]
    assert (
        ways["--at match"]
        == json.loads(
            run(
                "fork",
                knows,
                "--intent",
                "retry uploads with backoff",
                "--at",
                "match",
                "--in",
                "tmux",
                "--dry-run",
                "--json",
            ).out
        )["price"]["tokens"]
    )
    assert ["", "--at 1", "--at match", "--budget match", "--budget 200"] == [*compared("--at", "1", "--budget", "200")]
