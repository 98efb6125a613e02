"""The service: how soon it answers, and what it takes; and what MCP servers take with a preloader and without it.

    python benchmarks/bench.py service [CORPUS] [--runs N] [--servers N] [--json FILE]

Without CORPUS (see benchmarks/retrieval.py) the sessions are the demo's. Memory is the proportional set size (PSS): of
what processes share each has its part. Linux only.
"""

from __future__ import annotations

import shutil
import socket
import statistics
import subprocess
import sys
import time
import urllib.error
import urllib.request
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psutil
from _frame import Part, Table, takes_corpus
from _served import StdioClient
from serving import BARE, machine

from smart_fork.cli.preload.server import WAITING

SECONDS = 120.0
#: What is imported and allocated when a process has just begun to answer settles.
SETTLED_SECONDS = 5.0


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    takes_corpus(parser, needed=False)
    parser.add_argument("--runs", type=int, default=5, help="starts of the service")
    parser.add_argument("--servers", type=int, default=10, help="MCP servers, 2 or more")


def measure(asked: Namespace, folder: Path) -> dict[str, float]:
    """Start the service and servers, and ask."""
    environment, intent, project = machine(asked, folder)
    question = {"intent": intent, "project_path": project, "agent_type": "both"}
    with socket.create_server(("127.0.0.1", 0)) as free:
        environment |= {"SMART_FORK_PORT": str(free.getsockname()[1]), "SMART_FORK_INDEXING": "true"}
    return _starts(environment, asked.runs) | _memory(environment, question, asked.servers, folder)


@contextmanager
def serving(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """The service, from its start to its end."""
    with subprocess.Popen([sys.executable, "-m", "smart_fork", "serve"], env=environment) as process:
        yield process
        process.terminate()


def answered(environment: dict[str, str], path: str) -> None:
    """Wait until that is answered with 200."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{environment['SMART_FORK_PORT']}{path}", timeout=SECONDS):
                return
        except urllib.error.HTTPError as error:
            error.close()
            time.sleep(0.1)
        except OSError:
            time.sleep(0.01)
    sys.exit(f"{path} was not answered")


def pss(pid: int) -> float:
    """Memory of a process in MB, what it shares with others in parts."""
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="ascii").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


def _all_of(clients: Sequence[StdioClient], preloader: subprocess.Popen[bytes] | None = None) -> float:
    """Memory of MCP servers, with that of a preloader and of the processes that serve in their place."""
    pids = [client.process.pid for client in clients]
    if preloader is not None:
        pids += [preloader.pid, *(child.pid for child in psutil.Process(preloader.pid).children())]
    return sum(map(pss, pids))


@contextmanager
def _preloading(environment: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A preloader of that home, which has two processes waiting."""
    command = [sys.executable, "-P", "-m", "smart_fork.cli.preload.server"]
    with subprocess.Popen(command, env=environment) as process:
        while len(psutil.Process(process.pid).children()) < WAITING:
            time.sleep(0.05)
        yield process
        process.kill()


def _starts(environment: dict[str, str], runs: int) -> dict[str, float]:
    times = []
    for _ in range(runs + 1):  # the first one warms the caches
        started = time.perf_counter()
        with serving(environment):
            answered(environment, "/healthz")
            times.append(time.perf_counter() - started)
    return {"health_seconds": statistics.median(times[1:])}


def _memory(environment: dict[str, str], question: dict[str, Any], number: int, folder: Path) -> dict[str, float]:
    figures = {"servers": float(number)}
    with serving(environment) as service:
        answered(environment, "/healthz")
        time.sleep(SETTLED_SECONDS)
        figures["idle_mb"] = pss(service.pid)
        started = time.perf_counter()
        answered(environment, "/healthz")
        figures["first_query_seconds"] = time.perf_counter() - started
        figures["after_query_mb"] = pss(service.pid)
    with _preloading(environment) as preloader:
        clients, times = zip(*(_asked(environment, question) for _ in range(number)), strict=True)
        figures["preloaded_mb"] = _all_of(clients, preloader)
        figures["preloaded_seconds"] = statistics.median(times)
        _close(clients)
    alone = environment | {"SMART_FORK_PRELOAD": "false"}
    first, _ = _asked(alone, question)
    figures["alone_mb"] = _all_of([first])
    others, times = zip(*(_asked(alone, question) for _ in range(number - 1)), strict=True)
    figures["all_alone_mb"] = _all_of([first, *others])
    figures["alone_seconds"] = statistics.median(times)
    _close([first, *others])
    clients = [StdioClient([sys.executable, "-c", BARE], alone) for _ in range(number)]
    for client in clients:
        client.start()
        client.request("tools/list")
    figures["bare_mb"] = _all_of(clients)
    _close(clients)
    framed, _ = _asked(_with_frameworks(alone, folder), question)
    figures["frameworks_mb"] = _all_of([framed])
    _close([framed])
    return figures


def _with_frameworks(environment: dict[str, str], folder: Path) -> dict[str, str]:
    """An environment in which the same model is loaded as any other: with sentence-transformers, over an own index."""
    from indexer.embedder import packaged_model

    own = folder / "frameworks"
    shutil.copytree(environment["SMART_FORK_HOME"], own, ignore=shutil.ignore_patterns("preload"))
    environment = environment | {"SMART_FORK_HOME": str(own), "SMART_FORK_MODEL": str(packaged_model())}
    subprocess.run([sys.executable, "-m", "smart_fork", "index", "run"], env=environment, check=True, stdout=sys.stderr)
    return environment


def _asked(environment: dict[str, str], question: dict[str, Any]) -> tuple[StdioClient, float]:
    """An MCP server that has answered a question by words and meaning; and how soon it has answered the first one."""
    client = StdioClient([sys.executable, "-m", "smart_fork", "mcp"], environment)
    client.start()
    client.request("tools/list")
    started = time.perf_counter()
    seconds, mode = 0.0, ""
    while mode != "hybrid":  # its model may still be being loaded
        answer = client.request("tools/call", name="smart_fork", arguments=question)
        seconds = seconds or time.perf_counter() - started
        mode = answer["structuredContent"]["search_mode"]
    return client, seconds


def _close(clients: Sequence[StdioClient]) -> None:
    for client in clients:
        client.close()


def _rows(figures: dict[str, float]) -> Iterator[tuple[str, str, str]]:
    """Yield label, figure, and its ratio to the one that it is compared with."""
    number, frameworks = int(figures["servers"]), figures["frameworks_mb"]
    preloaded, alone = figures["preloaded_seconds"], figures["alone_seconds"]
    yield "`serve`, start to a healthy answer", f"{figures['health_seconds']:.2f} s", ""
    yield "`serve`, its first question", f"{figures['first_query_seconds']:.2f} s", ""
    yield "`serve`, idle", f"{figures['idle_mb']:.0f} MB", ""
    yield "`serve`, after the first question", f"{figures['after_query_mb']:.0f} MB", ""
    yield "an MCP server's first answer to a question", f"{alone:.2f} s", ""
    yield "the same with a preloader", f"{preloaded:.2f} s", f"{preloaded / alone:.2f}"
    yield "an MCP server that loads the model with its frameworks", f"{frameworks:.0f} MB", ""
    for label, key in (
        (f"{number} MCP servers with a preloader, and the preloader", "preloaded_mb"),
        (f"{number} MCP servers without it", "all_alone_mb"),
        ("one of those", "alone_mb"),
        (f"{number} bare MCP servers, with one tool that does nothing", "bare_mb"),
    ):
        yield label, f"{figures[key]:.0f} MB", f"{figures[key] / frameworks:.2f}"


def tables(figures: dict[str, float]) -> Iterator[Part]:
    """Yield times and memory."""
    yield "Memory is PSS: of what processes share, each has its part."
    yield Table(("", "", "ratio"), _rows(figures))
