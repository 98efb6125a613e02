"""Our tools are in the first request of a real agent, which waits for no server that takes its time."""

from __future__ import annotations

import json
import shlex
import sys
import uuid
from pathlib import Path

import pytest

from smart_fork.agents.fork_plan import ForkPlan
from smart_fork.agents.start_command import LaunchRequest
from smart_fork.server import FEW
from tests.e2e.agents import SERVER, Machine
from tests.e2e.first_requests import WAYS, first_tools
from tests.e2e.programs import CHECKOUT

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize(
    "way", [pytest.param(one, marks=[pytest.mark.thorough] if one == "claude -p, without" else []) for one in WAYS]
)
def test_the_first_request_of_an_agent_has_our_tools(machine: Machine, way: str):
    tools = first_tools(machine, way)
    prefix = WAYS[way].removesuffix("find_sessions")

    assert {f"{prefix}{name}" for name in FEW} == {name for name in tools if name.startswith(prefix)}


#: Longer than either agent waits by itself for a server.
SLOW = 7


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_the_first_request_of_a_worker_without_a_terminal_waits_for_our_tools(machine: Machine, agent: str):
    prompt = f"Say hello {uuid.uuid4().hex}"
    asked = LaunchRequest(
        agent, "", machine.project, str(machine.programs / agent), prompt=prompt, headless=True, form="new",
        has_tools=True, new_session_id=str(uuid.uuid4()),
    )  # fmt: skip
    plan = ForkPlan.of(asked)
    env = {"PYTHONPATH": str(CHECKOUT)}
    slow = ["-c", f"sleep {SLOW}; exec {shlex.quote(sys.executable)} -m smart_fork mcp"]
    server = {"command": "/bin/sh", "args": slow, "env": env}
    if agent == "claude":
        path = machine.home / ".claude.json"
        known = json.loads(path.read_text())
        path.write_text(json.dumps(known | {"mcpServers": {SERVER: server | {"alwaysLoad": True}}}))
    else:
        with Path(machine.home, ".codex/config.toml").open("a") as settings:
            settings.write(f"[mcp_servers.{SERVER}]\ncommand = '/bin/sh'\nargs = {json.dumps(slow)}\n")
            settings.write(f"startup_timeout_sec = 60\nenv = {{ PYTHONPATH = {json.dumps(str(CHECKOUT))} }}\n")

    machine.run(*plan.argv, env=plan.environment({"ENABLE_TOOL_SEARCH": "true"}))

    assert [name for name in machine.model.wait_for_prompt(prompt).tools if name.endswith("find_sessions")]
