"""How long an agent waits for the list of our tools, beside a Python that does nothing; and what ten idle servers hold.

    python benchmarks/front.py [--runs N] [--json FILE]

The two are started by turns. Processor time is what counts on a machine that is busy.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import sys
import tempfile
import time
from pathlib import Path

from serving import Client

IDLE = 10
MEGABYTE = 1 << 20


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as home:
        environment = os.environ | {"HOME": home, "SMART_FORK_HOME": f"{home}/state"}
        figures = _starts(environment, arguments.runs) | _memory(environment)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _starts(environment: dict[str, str], runs: int) -> dict[str, float]:
    script = Path(sys.executable).with_name("smart-fork")
    ways = {"python -c pass": None, "smart-fork mcp": [str(script), "mcp"]}
    ways["python -m smart_fork mcp"] = [sys.executable, "-m", "smart_fork", "mcp"]
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, command in ways.items():
            taken[name].append(_nothing(environment) if command is None else _listed(command, environment))
    figures = {}
    for name, measured in taken.items():
        wall, processor = (1000 * statistics.median(column) for column in zip(*measured, strict=True))
        figures |= {f"{name}, ms": wall, f"{name}, ms of processor": processor}
        print(f"{name:28} {wall:6.1f} ms, {processor:6.1f} ms of processor")
    nothing = figures["python -c pass, ms of processor"]
    for name in list(ways)[1:]:
        ratio = figures[f"{name}, ms of processor"] / nothing
        figures[f"{name}, times nothing"] = ratio
        print(f"{name:28} {ratio:6.2f} times python -c pass")
    return figures


def _nothing(environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the wall and of the processor."""
    before, begun = _children(), time.perf_counter()
    os.waitpid(os.posix_spawn(sys.executable, [sys.executable, "-c", "pass"], environment), 0)
    return time.perf_counter() - begun, _children() - before


def _listed(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Seconds on the wall until the tools are there, and of the processor until it has ended."""
    before, begun = _children(), time.perf_counter()
    client = Client(command, environment)
    client.start()
    tools = client.request("tools/list")["tools"]
    passed = time.perf_counter() - begun
    client.close()
    assert len(tools) == 7
    return passed, _children() - before


def _children() -> float:
    told = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told.ru_utime + told.ru_stime


def _memory(environment: dict[str, str]) -> dict[str, float]:
    """Of ten servers whose agents have asked for their tools and for nothing else; shared pages are counted once."""
    clients = [Client([sys.executable, "-m", "smart_fork", "mcp"], environment) for _ in range(IDLE)]
    for client in clients:
        client.start()
        client.request("tools/list")
    held = sum(_proportional(client.process.pid) for client in clients)
    resident = sum(client.resident() for client in clients)
    for client in clients:
        client.close()
    print(
        f"{IDLE} idle servers              {held:6.1f} MB, {resident:.1f} MB where shared pages are counted each time"
    )
    return {"idle servers, MB": held, "idle servers, MB resident": resident}


def _proportional(pid: int) -> float:
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024 / MEGABYTE
    return 0.0


if __name__ == "__main__":
    main()
