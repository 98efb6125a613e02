"""Hostile calls of a real service (`tests/attacks`)."""

from __future__ import annotations

import json
import subprocess
from types import SimpleNamespace
from typing import Any

import pytest

from tests.attacks import home, intruder, violations
from tests.attacks.client import Answer
from tests.attacks.home import Home
from tests.attacks.service import attack
from tests.support import forkserver
from tests.support.exhaustive import full_or_sample


def forked(argv: list[str], *, env: dict[str, str] | None = None, **how: Any) -> subprocess.CompletedProcess:
    """Run a program; smart-fork's own programs run as forks of this process, except for the service."""
    return forkserver.run(argv, env=None if env is None else forkserver.like(env), **how)


@pytest.fixture
def forks(monkeypatch):
    """Make smart-fork's own programs start as forks of this process."""
    for module in (home, intruder):
        monkeypatch.setattr(module, "subprocess", SimpleNamespace(**vars(subprocess) | {"run": forked}))


@pytest.mark.thorough  # of each door, and of each kind of hostile call, there are tests of its own
@pytest.mark.usefixtures("forks")
def test_hostile_calls_of_everything_break_tell_open_and_start_nothing(tmp_path):
    """X-002, F-008, F-104: the service and the files are real, and real programs stand in for the agents."""
    report = attack(tmp_path, calls=full_or_sample(2_000, 200), seed=8).as_json()

    assert {} == report["violations"]
    assert report["total"]["calls"] >= 200
    assert report["total"]["ok"] > 20, "hostile calls that all fail at the door say little"
    assert report["total"]["errors"] == 0
    assert len(report["by"]) > 30
    tried = {name for name in report["by"] if name.startswith("! ")}
    assert {
        "! rotate",
        "! flood: smart-fork status",
        "! what has ended",
        "! code",
    } <= tried


def test_what_must_not_happen_would_be_seen(tmp_path):
    """Here the checks of the attacks themselves are tested."""
    there = Home(tmp_path, tmp_path / "shop", token="s" * 64, canaries=["canary1"], bait=[tmp_path / "bait.txt"])
    for wrong in (
        Answer(500, "Internal Server Error"),
        Answer(200, "…canary1…"),
        Answer(200, f"token: {there.token}"),
        Answer(400, 'File "/x/y.py", line 3'),
        Answer(200, "", {"result": {"isError": True, "content": [{"text": "Error executing tool read_session"}]}}),
        Answer(200, "", {"result": {"isError": True, "content": [{"text": "a" * 5000}]}}),
        Answer(200, "", {"error": {"code": -32603}}),
    ):
        assert violations.of_answer(there, wrong, "", person=False), wrong
    assert not violations.of_answer(there, Answer(404, "Session not found"), "", person=False)

    before = violations.tree(there)
    (tmp_path / "made").touch()
    assert list(violations.of_files(there, before, set()))
    events = [
        ["open", str(there.bait[0]), "r", 0], ["open", "/etc/x", "w", 0], ["os.remove", "/etc/x"],
        ["subprocess.Popen", "sh", ["sh", "-c", "x"]], ["subprocess.Popen", "claude", ["claude", "--evil"]],
        ["os.system", "x"],
    ]  # fmt: skip
    (tmp_path / "events.jsonl").write_text("".join(f"{json.dumps(event)}\n" for event in events))
    assert len(events) == len(list(violations.of_events(there)))
