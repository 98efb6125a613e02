"""A long call is a task of Claude Code: its model works on, and is told the result."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from tests.e2e.agents import SERVER, Machine
from tests.e2e.model_server import Call, Hold, Say
from tests.e2e.programs import NEWEST
from tests.e2e.scenario import unlike_any_other
from tests.e2e.terminals import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.skipif(not NEWEST, reason="the pinned Claude Code knows no tasks")]


def test_who_waits_for_a_worker_in_a_terminal_works_on_and_is_told_when_it_is_done(equipped: Machine, project: Path):
    long, wait, meanwhile, done = map(unlike_any_other, ("take long", "wait for it", "Meanwhile", "It took long"))
    go_on = threading.Event()
    equipped.model.when(lambda text: text == long, Hold(go_on, Say(done)))
    worker = json.loads(equipped.smart_fork("new", "--in", "process", "--json", "--", long, cwd=project).stdout)
    call = Call(SERVER, "wait_workers", {"workers": [worker["worker_id"]], "timeout": 60}, Say(meanwhile))
    equipped.model.when(lambda text: text == wait, call)

    def told(text: str) -> bool:
        return any(
            text in json.dumps(request.items) for request in equipped.model.requests if wait in str(request.said)
        )

    equipped.agent_interactive("claude", "--allowedTools", f"mcp__{SERVER}", "--", wait, cwd=project)
    wait_until(lambda: told("moved to the background"), "the model to be told that it need not wait")
    assert not told(done)
    go_on.set()
    wait_until(lambda: told(done), "the model to be told the worker's last words")
