"""From the command to the agent's first request: a fork, whole and distilled, beside the bare ``claude``.

    python benchmarks/bench.py forking [--rounds 7] [--exchanges 12] [--service] [--preload] [--json FILE]

The real Claude Code talks to a model on loopback, as in the end-to-end tests (its program is brought from npm once, see
``SMART_FORK_E2E_CACHE``). It is given a session of a repository, about 5,000 tokens an exchange. Then, in turns:
``claude --resume ID --fork-session -p``, ``smart-fork fork ID --in process``, the same without the note of changes, at
the message in the middle, and with ``--budget``. The clock runs from the start of the command until the model has the
request with the prompt. Times are medians of all rounds; the ratio to the bare program counts. With ``--service`` the
service runs meanwhile, as it does for those who have installed it; without it a command that forks is alone. With
``--preload`` a preloader runs the commands, as it does on Linux from a home's second command on.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
import uuid
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from _frame import Part, Table

from tests.e2e.agents import SMART_FORK, Machine
from tests.e2e.logs import Log
from tests.e2e.model_server import ModelServer
from tests.e2e.programs import CLAUDE_AND_CODEX, cache_folder, install
from tests.e2e.services import service_on
from tests.e2e.terminals import wait_until

WORDS = "The uploader retries with backoff, the queue drains in order, and the tests tell which part has failed. " * 100
SECONDS = 120


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--exchanges", type=int, default=12)
    parser.add_argument("--service", action="store_true", help="with the service running")
    parser.add_argument("--preload", action="store_true", help="with a preloader")


def measure(asked: Namespace, folder: Path) -> dict[str, Any]:
    """Fork in turns, each way in each round."""
    programs = install(cache_folder(), CLAUDE_AND_CODEX)
    with ModelServer() as model:
        machine = Machine(folder, programs, model)
        machine.env |= {"HF_HUB_OFFLINE": "1"}
        log = session(machine, asked.exchanges)
        with service_on(machine) if asked.service else nullcontext(), preloader(machine, wanted=asked.preload):
            return measured(machine, log, asked.rounds) | {"load": os.getloadavg()[1]}


@contextmanager
def preloader(machine: Machine, *, wanted: bool) -> Iterator[None]:
    """One that waits for this machine's commands, if `wanted`."""
    if not wanted:
        yield
        return
    del machine.env["SMART_FORK_PRELOAD"]
    command = [sys.executable, "-P", "-m", "smart_fork.cli.preload.server"]
    with subprocess.Popen(command, cwd="/", env=machine.env) as server:
        wait_until(lambda: any((machine.home / ".smart-fork/preload").glob("????????")), "the preloader to listen", 30)
        try:
            yield
        finally:
            server.terminate()


def session(machine: Machine, exchanges: int) -> Log:
    """A session of so many exchanges, which edits a file, and a commit since then."""
    machine.claude("-p", "--", f"Exchange 0. {WORDS}")
    (log,) = machine.logs("claude")
    for number in range(1, exchanges):
        machine.claude("-p", "--resume", log.session_id, "--", f"Exchange {number}. {WORDS}")
    machine.run("git", "switch", "-q", "-c", "later")  # something to say
    machine.smart_fork("index", "run")
    return log


def measured(machine: Machine, log: Log, rounds: int) -> dict[str, Any]:
    """Medians in seconds, all ways in each round, so that what else runs meets them alike."""
    bare = (str(machine.programs / "claude"), "--resume", log.session_id, "--fork-session", "-p", "--")
    fork = (*SMART_FORK, "fork", log.session_id, "--in", "process")
    middle = len([line for line in log.path.read_text().splitlines() if '"assistant"' in line])
    ways: dict[str, Sequence[str]] = {
        "claude --resume --fork-session": bare,
        "smart-fork fork": (*fork, "--"),
        "smart-fork fork --no-brief": (*fork, "--no-brief", "--"),
        "smart-fork fork --at": (*fork, "--at", str(middle), "--"),
    }
    if "--budget" in machine.smart_fork("fork", "--help", env={"COLUMNS": "200"}).stdout:
        ways["smart-fork fork --budget 10k"] = (*fork, "--budget", "10k", "--")
        ways["smart-fork fork --budget match"] = (*fork, "--budget", "match", "--")
    for command in ways.values():  # what is kept for later starts is there, and models are loaded
        seconds_to_the_request(machine, command)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, command in ways.items():
            times[name].append(seconds_to_the_request(machine, command))
    base = statistics.median(times["claude --resume --fork-session"])
    ratios = {name: _ratio(taken, times["claude --resume --fork-session"]) for name, taken in times.items()}
    return {
        "rounds": rounds,
        "bare_seconds": base,
        "ways": {
            name: {"seconds": statistics.median(taken), "least": min(taken), "ratio": ratios[name]}
            for name, taken in times.items()
        },
    }


def _ratio(taken: Sequence[float], bare: Sequence[float]) -> float:
    """The median of each round's own ratio."""
    return statistics.median(one / other for one, other in zip(taken, bare, strict=True))


def seconds_to_the_request(machine: Machine, command: Sequence[str]) -> float:
    """From the start of a command until the model has its prompt; the command and the agent end before this does."""
    marker = uuid.uuid4().hex
    began = time.perf_counter()
    process = subprocess.Popen(
        [*command, f"Does the uploader retry with backoff? {marker}"], cwd=machine.project, env=machine.env,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        machine.model.wait_for(lambda request: marker in request.last_prompt, SECONDS)
        taken = time.perf_counter() - began
    except AssertionError:
        process.kill()
        raise SystemExit(f"{command}: {process.communicate()[1][-2000:]}") from None
    process.communicate(timeout=SECONDS)
    machine.smart_fork("stop")
    return taken


def tables(figures: Mapping[str, Any]) -> Iterator[Part]:
    """Yield each way beside the bare program."""
    ways = figures["ways"].items()
    rows = [(name, f"{one['seconds']:.2f} s", f"{one['least']:.2f} s", f"{one['ratio']:.2f}") for name, one in ways]
    yield (
        f"From the command to the request with the prompt, medians of {figures['rounds']} rounds in turns;\n"
        "`python benchmarks/bench.py forking --rounds 7`. Ratios are per round.\n"
        f"The machine's load average was {figures['load']:.0f} on {os.cpu_count()} cores."
    )
    yield Table(("", "median", "least", "ratio"), rows)
