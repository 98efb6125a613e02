"""Start of the MCP server and time of an answer, beside a bare MCP server measured in the same run.

    python benchmarks/bench.py serving [CORPUS] [--runs N] [--json FILE]

Without CORPUS (see benchmarks/retrieval.py) the searches are timed on the demo's sessions.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _frame import Table, environment_of, lay_out, queries_of, seconds, takes_corpus
from _served import StdioClient

BARE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("bare")
@server.tool()
def nothing() -> str:
    "Does nothing."
    return ""
server.run("stdio")
"""


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    takes_corpus(parser, needed=False)
    parser.add_argument("--runs", type=int, default=7)


def measure(asked: Namespace, folder: Path) -> dict[str, float]:
    """Start servers, and ask."""
    environment, intent, project = machine(asked, folder)
    ours = [sys.executable, "-m", "smart_fork", "mcp"]
    return _starts(ours, environment, asked.runs) | _answers(ours, environment, intent, project, asked.runs)


def machine(asked: Namespace, folder: Path) -> tuple[dict[str, str], str, str]:
    """Index the corpus or the demo, and return the environment to run in, an intent and a project to ask from."""
    if asked.corpus is not None:
        laid_out = lay_out(asked.corpus, folder)
        home, query = laid_out / "home", queries_of(laid_out)[0]
        intent, project = query["query"], query["project"]
    else:
        from smart_fork.cli.demo import write_demo_home

        demo = write_demo_home(folder)
        home, intent, project = demo.home, demo.intent, str(demo.project)
    environment = environment_of(home, (asked.home or folder / "state").resolve()) | {"SMART_FORK_BACKGROUND": "0"}
    subprocess.run([sys.executable, "-m", "smart_fork", "index", "run"], env=environment, check=True, stdout=sys.stderr)
    return environment, intent, project


def _starts(argv: list[str], environment: dict[str, str], runs: int) -> dict[str, float]:
    commands = {"smart-fork mcp": argv, "a bare MCP server": [sys.executable, "-c", BARE]}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(runs + 1):  # the first round warms the caches
        for name, command in commands.items():
            started = time.perf_counter()
            client = StdioClient(command, environment)
            client.start()
            client.request("tools/list")
            measured[name].append((time.perf_counter() - started, client.resident()))
            client.close()
    ours, bare = (
        [statistics.median(values) for values in zip(*rounds[1:], strict=True)] for rounds in measured.values()
    )
    return {"start_seconds": ours[0], "bare_start_seconds": bare[0], "start_mb": ours[1], "bare_start_mb": bare[1]}


def _answers(argv: list[str], environment: dict[str, str], intent: str, project: str, runs: int) -> dict[str, float]:
    command = [sys.executable, "-m", "smart_fork", "find", intent, "--project", project, "--json"]
    cold = _median(lambda: subprocess.run(command, env=environment, check=True, capture_output=True), 3)
    client = StdioClient(argv, environment)
    client.start()
    arguments = {"intent": intent, "project_path": project, "agent_type": "both"}
    first_seconds = seconds(lambda: client.request("tools/call", name="smart_fork", arguments=arguments))
    warm = _median(lambda: client.request("tools/call", name="smart_fork", arguments=arguments), runs)
    resident = client.resident()
    client.close()
    return {"cold_seconds": cold, "first_seconds": first_seconds, "warm_seconds": warm, "resident_mb": resident}


def _median(work: Callable[[], Any], runs: int) -> float:
    return statistics.median(seconds(work) for _ in range(runs))


def tables(figures: dict[str, float]) -> Iterator[Table]:
    """Yield the start, beside a bare server, and the answers."""
    rows = []
    for label, key, unit in (("start to tools/list", "start_seconds", "s"), ("resident then", "start_mb", "MB")):
        ours, bare = figures[key], figures[f"bare_{key}"]
        rows.append([f"MCP server, {label}", f"{ours:.2f} {unit}", f"{bare:.2f} {unit}", f"{ours / bare:.2f}"])
    rows += [
        ["`smart-fork find`, cold process", f"{figures['cold_seconds']:.2f} s", "", ""],
        ["MCP tool `smart_fork`, first call", f"{figures['first_seconds']:.2f} s", "", ""],
        ["MCP tool `smart_fork`, warm", f"{figures['warm_seconds'] * 1e3:.0f} ms", "", ""],
        ["resident after it", f"{figures['resident_mb']:.0f} MB", "", ""],
    ]
    yield Table(("", "smart-fork", "a bare MCP server", "ratio"), rows)
