"""Start of the MCP server and time of an answer, beside a bare MCP server measured in the same run.

    python benchmarks/serving.py [CORPUS] [--runs N] [--json FILE]

Without CORPUS (see benchmarks/retrieval.py) the searches are timed on the demo's sessions.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from retrieval import lay_out

BARE = """
from mcp.server.mcpserver import MCPServer
server = MCPServer("bare")
@server.tool()
def nothing() -> str:
    "Does nothing."
    return ""
server.run("stdio")
"""
INITIALIZE = {
    "protocolVersion": "2025-06-18",
    "capabilities": {},
    "clientInfo": {"name": "benchmark", "version": "1"},
}


class Client:
    """A minimal MCP client over a process's stdin and stdout."""

    def __init__(self, argv: list[str], environment: dict[str, str]) -> None:
        self.process = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment
        )
        self._number = 0

    def request(self, method: str, **params: Any) -> dict[str, Any]:
        """The result of a request; notifications in between are passed over."""
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self.process.stdout is not None
        for line in self.process.stdout:
            message: dict[str, Any] = json.loads(line)
            if message.get("id") == self._number:
                result: dict[str, Any] = message["result"]
                return result
        sys.exit(f"no answer to {method}")

    def start(self) -> None:
        """The handshake."""
        self.request("initialize", **INITIALIZE)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})

    def resident(self) -> float:
        """Resident memory of the process in MB."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text(encoding="ascii").splitlines():
            if line.startswith("VmRSS"):
                return int(line.split()[1]) / 1024
        return 0.0

    def close(self) -> None:
        """Close its stdin and wait for its end."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        environment, intent, project = _machine(arguments.corpus, arguments.home, Path(folder))
        ours = [sys.executable, "-m", "smart_fork", "mcp"]
        figures = _starts(ours, environment, arguments.runs)
        figures |= _answers(ours, environment, intent, project, arguments.runs)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _machine(corpus: Path | None, state: Path | None, folder: Path) -> tuple[dict[str, str], str, str]:
    """The environment to run in, an intent and a project to ask from; everything indexed."""
    if corpus is not None:
        laid_out = lay_out(corpus.resolve(), folder)
        home = laid_out / "home"
        query = json.loads((laid_out / "queries.jsonl").read_text(encoding="utf-8").splitlines()[0])
        intent, project = query["query"], query["project"]
    else:
        from smart_fork.cli.demo import write_demo_home

        demo = write_demo_home(folder)
        home, intent, project = demo.home, demo.intent, str(demo.project)
    kept = {key: value for key, value in os.environ.items() if key in ("PATH", "LANG", "VIRTUAL_ENV")}
    where = str((state or folder / "state").resolve())
    environment = kept | {"HOME": str(home), "SMART_FORK_HOME": where, "SMART_FORK_BACKGROUND": "0"}
    subprocess.run([sys.executable, "-m", "smart_fork", "index", "run"], env=environment, check=True, stdout=sys.stderr)
    return environment, intent, project


def _starts(argv: list[str], environment: dict[str, str], runs: int) -> dict[str, float]:
    commands = {"smart-fork mcp": argv, "a bare MCP server": [sys.executable, "-c", BARE]}
    measured: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
    for _ in range(runs + 1):  # the first round warms the caches
        for name, command in commands.items():
            started = time.perf_counter()
            client = Client(command, environment)
            client.start()
            client.request("tools/list")
            measured[name].append((time.perf_counter() - started, client.resident()))
            client.close()
    ours, bare = (
        [statistics.median(values) for values in zip(*rounds[1:], strict=True)] for rounds in measured.values()
    )
    for number, what, unit in ((0, "start to tools/list", "s"), (1, "resident then", "MB")):
        ratio = ours[number] / bare[number]
        print(f"{what}: smart-fork {ours[number]:.2f} {unit}, a bare MCP server {bare[number]:.2f}, ratio {ratio:.2f}")
    return {"start_seconds": ours[0], "bare_start_seconds": bare[0], "start_mb": ours[1], "bare_start_mb": bare[1]}


def _answers(argv: list[str], environment: dict[str, str], intent: str, project: str, runs: int) -> dict[str, float]:
    command = [sys.executable, "-m", "smart_fork", "find", intent, "--project", project, "--json"]
    cold = _median(lambda: subprocess.run(command, env=environment, check=True, capture_output=True), 3)
    print(f"find, cold process: {cold:.2f} s")
    client = Client(argv, environment)
    client.start()
    arguments = {"intent": intent, "project_path": project, "agent_type": "both"}
    started = time.perf_counter()
    first = client.request("tools/call", name="smart_fork", arguments=arguments)["structuredContent"]["search_mode"]
    first_seconds = time.perf_counter() - started
    print(f"smart_fork over MCP, first call: {first_seconds:.2f} s ({first})")
    warm = _median(lambda: client.request("tools/call", name="smart_fork", arguments=arguments), runs)
    resident = client.resident()
    print(f"smart_fork over MCP, warm: {warm * 1000:.0f} ms; resident {resident:.0f} MB")
    client.close()
    return {"cold_seconds": cold, "first_seconds": first_seconds, "warm_seconds": warm, "resident_mb": resident}


def _median(work: Callable[[], Any], runs: int) -> float:
    times = []
    for _ in range(runs):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
