"""The trial of a registered server: it is started as its agent starts it, and asked for the newest session."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from smart_fork.agents import AGENTS
from smart_fork.cli.setup.server_trial import try_server

CLAUDE, CODEX = AGENTS.registration_of("claude"), AGENTS.registration_of("codex")
#: A server that knows one session, whatever is asked; what it was started with is in its only hit.
SERVER = """
import json, os, sys
for line in sys.stdin:
    said = json.loads(line)
    if "id" not in said:
        continue
    print(json.dumps({"jsonrpc": "2.0", "method": "notifications/message", "params": {}}))
    title = json.dumps({"secret": os.environ.get("SECRET"), "asked": said["params"].get("arguments")})
    hit = {"session_id": "x", "title": title, "score": 0.9}
    result = {"initialize": {}, "tools/list": {"tools": [{}] * 7}, "tools/call": {"structuredContent": {"results": [hit]}}}
    print(json.dumps({"jsonrpc": "2.0", "id": said["id"], "result": result[said["method"]]}), flush=True)
"""


def register(way, tmp_path, script):
    path = tmp_path / "server.py"
    path.write_text(script)
    text = way.put(None, {"command": sys.executable, "args": [str(path)]})
    way.path().parent.mkdir(exist_ok=True)
    way.path().write_text(text)


def test_the_newest_session_is_asked_for_by_its_title(world, shop, tmp_path):
    world.claude(shop, "add retry", "done")
    world.claude(shop, "mend the parser", "done")
    register(CLAUDE, tmp_path, SERVER)

    trial = try_server(CLAUDE)

    assert (True, 7, "mend the parser", 0.9) == (trial.ok, trial.tools, trial.asked, trial.score)
    asked = {"intent": "mend the parser", "agent_type": "claude", "project_path": str(shop), "limit": 5}
    assert asked == json.loads(trial.found)["asked"]


def test_a_session_of_the_root_directory_is_found_where_it_ran(world, tmp_path):
    """A server that starts in the root directory has no project of its own."""
    world.claude(Path("/"), "add retry", "done")
    register(CLAUDE, tmp_path, SERVER)

    assert "/" == json.loads(try_server(CLAUDE).found)["asked"]["project_path"]


@pytest.mark.parametrize(("way", "given"), [(CLAUDE, "x"), (CODEX, None)], ids=["claude", "codex"])
def test_a_server_is_given_what_the_agent_would_give_it(world, tmp_path, monkeypatch, way, given):
    monkeypatch.setenv("SECRET", "x")
    world.claude(tmp_path, "add retry", "done")
    register(way, tmp_path, SERVER)

    assert given == json.loads(try_server(way).found)["secret"]


def test_without_sessions_the_tools_are_enough(world, tmp_path):
    register(CODEX, tmp_path, SERVER)

    trial = try_server(CODEX)

    assert (True, 7, "") == (trial.ok, trial.tools, trial.asked)


@pytest.mark.parametrize(
    ("script", "error"),
    [
        ("", "it ended"),
        ("input(); print('Welcome!')", "not MCP"),
        ("import json; n = json.loads(input())['id']; print(json.dumps({'id': n, 'error': {'message': 'no'}}))", "no"),
    ],
)
def test_a_server_that_does_not_answer_has_failed(world, tmp_path, script, error):
    register(CLAUDE, tmp_path, script)

    trial = try_server(CLAUDE)

    assert not trial.ok
    assert error in trial.error


def test_a_command_that_is_gone_has_failed(world, tmp_path):
    CLAUDE.path().write_text(CLAUDE.put(None, {"command": str(tmp_path / "gone"), "args": []}))

    assert "gone is not installed" in try_server(CLAUDE).error


def test_where_nothing_is_registered_the_trial_has_failed(world):
    assert "no smart-fork server" in try_server(CLAUDE).error
