"""Time commands with and without a preloader, beside a Python that does nothing.

    python benchmarks/preload.py [CORPUS] [--runs N] [--json FILE]

CORPUS is a folder with labelled logs, laid out and indexed as for `benchmarks/retrieval.py`; without it, the demo's
sessions are searched. The ways are measured by turns: wall time until the command has ended, and processor time of the
command and of the process that ran it.
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
from contextlib import suppress
from pathlib import Path

import psutil

QUESTION = "lock files that show up as untracked"
SERVER = (sys.executable, "-P", "-m", "smart_fork.cli.preload.server")
STARTED_SECONDS = 120.0
WAITING = 2


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", type=Path, help="home of the sessions, with their index")
    parser.add_argument("--project", type=Path, default=Path.cwd(), help="a repository of the corpus")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as empty:
        environment = os.environ | {"HOME": str(arguments.corpus or empty), "SMART_FORK_BACKGROUND": "0"}
        environment.pop("SMART_FORK_HOME", None)
        figures = _measured(environment, arguments.project, arguments.runs)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def _measured(environment: dict[str, str], project: Path, runs: int) -> dict[str, float]:
    program = str(Path(sys.executable).with_name("smart-fork"))
    alone = environment | {"SMART_FORK_PRELOAD": "off"}
    listed = subprocess.check_output([program, "list", "--limit", "1", "--json"], env=alone, cwd=project)
    session = json.loads(listed)["sessions"][0]["session_id"]
    commands = {
        "find": ["find", QUESTION],
        "list": ["list"],
        "status": ["status"],
        "show": ["show", session],
        "fork --dry-run": ["fork", session, "--dry-run", "--", QUESTION],
        "statusline": ["statusline"],
    }
    ways: dict[str, tuple[list[str], dict[str, str]]] = {"python -c pass": ([sys.executable, "-c", "pass"], alone)}
    for name, words in commands.items():
        ways[f"{name}, alone"] = ([program, *words], alone)
        ways[f"{name}, preloaded"] = ([program, *words], environment)
    taken: dict[str, list[float]] = {name: [] for name in ways}
    server = _started(environment)
    try:
        for _ in range(runs):
            for name, (command, env) in ways.items():
                begun = time.perf_counter()
                subprocess.run(command, env=env, cwd=project, capture_output=True, check=False, input=b"{}")
                taken[name].append(time.perf_counter() - begun)
        memory = _own_memory(server) / (1 << 20)
    finally:
        server.kill()
    figures = {name: 1000 * statistics.median(seconds) for name, seconds in taken.items()}
    nothing = figures["python -c pass"]
    for name, wall in figures.items():
        print(f"{name:20} {wall:7.1f} ms, {wall / nothing:5.1f} times python -c pass")
    print(f"{'the preloader':20} {memory:7.1f} MB of its own")
    return figures | {"memory, MB": memory}


def _own_memory(server: psutil.Popen) -> float:
    """Return the bytes that the preloader and its two waiting forks do not share."""
    while True:
        with suppress(psutil.NoSuchProcess):  # a fork that has just run a command
            waiting = server.children()
            if len(waiting) == WAITING:
                return float(sum(one.memory_full_info().uss for one in (server, *waiting)))
        time.sleep(0.05)


def _started(environment: dict[str, str]) -> psutil.Popen:
    state = Path(environment["HOME"], ".smart-fork")
    state.mkdir(mode=0o700, exist_ok=True)
    server = psutil.Popen(SERVER, env=environment, stderr=subprocess.DEVNULL)
    until = time.monotonic() + STARTED_SECONDS
    while not server.children():
        if time.monotonic() > until or server.poll() is not None:
            raise SystemExit("no preloader could be started")
        time.sleep(0.05)
    return server


if __name__ == "__main__":
    main()
