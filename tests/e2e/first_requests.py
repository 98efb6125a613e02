"""The first thing that a real agent asks its model, with our server as it is set up: once, and ten times on a busy machine.

python -m tests.e2e.first_requests
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from tests.e2e.agents import SERVER, SMART_FORK, Machine, machine_in
from tests.e2e.programs import CHECKOUT, CLAUDE_AND_CODEX, cache_folder, install

#: How an agent is started, and how it calls one of our tools.
WAYS = {
    "claude -p, with tool search": "mcp__smart-fork__find_sessions",
    "claude -p, without": "mcp__smart-fork__find_sessions",
    "codex exec": "mcp__smart_fork/find_sessions",
}
RUNS = 10


def first_tools(machine: Machine, way: str) -> list[str]:
    """The tools that an agent's first request to its model offers."""
    prompt = f"Say hello {uuid.uuid4().hex}"
    env = {"PYTHONPATH": str(CHECKOUT), "SMART_FORK_HOME": str(machine.home / ".smart-fork")}
    server = {"command": SMART_FORK[0], "args": [*SMART_FORK[1:], "mcp"]}
    if way == "codex exec":
        told = ", ".join(f"{name} = {json.dumps(value)}" for name, value in env.items())
        words = f"{{command = {json.dumps(server['command'])}, args = {json.dumps(server['args'])}, env = {{{told}}}}}"
        machine.codex("exec", "-c", f"mcp_servers.{SERVER}={words}", prompt)
    else:
        searches = way.endswith("with tool search")
        settings = {"mcpServers": {SERVER: server | {"env": env} | ({"alwaysLoad": True} if searches else {})}}
        told = {"ENABLE_TOOL_SEARCH": str(searches).lower()}
        machine.claude("--strict-mcp-config", "--mcp-config", json.dumps(settings), "-p", prompt, env=told)
    return machine.model.wait_for_prompt(prompt).tools


@contextmanager
def busy(cores: int) -> Iterator[None]:
    """So many processes that do nothing but reckon."""
    reckoning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in reckoning:
            process.kill()
            process.wait()


def main() -> None:
    """Print how many first requests had our tools, with every core busy."""
    programs = install(cache_folder(), CLAUDE_AND_CODEX)
    with machine_in(cache_folder(), programs) as machine, busy(os.cpu_count() or 1):
        for way, name in WAYS.items():
            had = sum(name in first_tools(machine, way) for _ in range(RUNS))
            print(f"{way}: {had} of {RUNS} first requests have the tools", flush=True)  # noqa: T201 - the figures


if __name__ == "__main__":
    main()
