"""The MCP tool `spawn_workers`, as a client sees it."""

from __future__ import annotations

import json

import pytest

from tests.smart_fork.mcp_client import answer, call, refusal


@pytest.fixture
def order(shop, scripted, monkeypatch):
    monkeypatch.chdir(shop)

    def say(**more: object) -> dict:
        return {"project_path": str(shop), "prompt": "fix the race", "run_in": "process"} | more

    return say


def test_workers_are_started_for_the_caller(world, order, scripted, shop, monkeypatch):
    """F-110, F-118."""
    monkeypatch.setenv("CLAUDE_CODE_SESSION_ID", "caller")

    told = answer(world, "spawn_workers", workers=[order(name="one"), order(agent_type="codex")])

    assert (2, 0, [0, 1]) == (told["started"], told["failed"], [one["index"] for one in told["workers"]])
    assert ["claude", "codex"] == [one["agent_type"] for one in told["workers"]]
    for one in told["workers"]:
        assert one["session_id"]
        assert str(shop / ".worktrees") in one["cwd"]
        assert "fix the race" == scripted.call(one["worker_id"])[1][-1]


def test_what_is_left_out_is_the_callers(world, order, scripted, shop):
    """Its agent, and the directory that a relative one is in."""
    (shop / "src").mkdir()
    (one,) = answer(
        world, "spawn_workers", client="codex-mcp-client", workers=[order(project_path="src", worktree=False)]
    )["workers"]

    assert ("codex", str(shop / "src")) == (one["agent_type"], one["cwd"])


@pytest.mark.parametrize(
    ("workers", "text"),
    [
        ([], "At least one worker is required"),
        ([{}] * 5, "Maximum 4 workers per spawn"),
        ([{"prompt": "x"}], "Worker 0 missing required 'project_path'"),
        (["x"], "Worker 0 must be an object"),
        ([{"project_path": ".", "force": True}], "Worker 0: unknown key 'force'. Known: project_path"),
        ([{"project_path": 7}], "Worker 0: 'project_path' must be a string"),
        ([{"project_path": "..", "agent_type": "nobody"}], "Unknown adapter: nobody"),
    ],
)
def test_a_mistake_is_an_error_with_its_text(world, order, scripted, workers, text):
    """F-113 to F-118."""
    assert text in refusal(world, "spawn_workers", workers=workers)
    assert {} == scripted.ran()


def test_one_that_fails_is_told_beside_the_others(world, order, scripted, monkeypatch):
    monkeypatch.setenv("SMART_FORK_MAX_WORKERS", "1")

    told = answer(world, "spawn_workers", workers=[order(), order()])

    assert (1, 1) == (told["started"], told["failed"])
    failed = told["workers"][1]
    assert {"index": 1, "error": "worker_limit"}.items() <= failed.items()
    assert "SMART_FORK_MAX_WORKERS" in failed["message"]
    assert failed["hint"]


def test_secrets_and_control_characters_are_taken_out_of_what_is_told(world, order, programs):
    secret = "ghp_" + "a1B2c3D4e5F6" * 3
    (programs / "claude").write_text(f"#!/bin/sh\nprintf 'no: {secret} \\033[31m'\nexit 1\n")

    result = call(world, "spawn_workers", workers=[order(prompt=f"use {secret} there")])

    text = json.dumps(result.structured_content) + result.content[0].text
    assert "claude ended before it took its prompt (exit status 1): no: " in text
    assert secret not in text
    assert "\\u001b" not in text


def test_a_worker_of_a_worker_of_a_worker_starts_none(world, order, scripted, monkeypatch):
    monkeypatch.setenv("SMART_FORK_DEPTH", "3")

    assert "Worker 0: This is already a worker of a worker, 3 deep" in refusal(
        world, "spawn_workers", workers=[order()]
    )
