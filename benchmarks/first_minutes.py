"""From nothing to the first right hit, as somebody new has it: what it takes in seconds and megabytes, light and full.

    python benchmarks/first_minutes.py [CORPUS] [--only light|full] [--checkout FOLDER] [--complete] [--json FILE]

Each install begins with a clone of this checkout, an empty home and an empty cache of pip, and is made again beside it
with pip's cache filled, which tells installing from downloading. With --checkout, one that has its .venv is measured.
Without CORPUS (see benchmarks/retrieval.py) only the demo is asked; --complete waits for all vectors, too. Memory is
the proportional set size (PSS). Linux only.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from retrieval import lay_out
from service import SETTLED_SECONDS, answered, pss
from serving import Client

ROOT = Path(__file__).resolve().parent.parent
#: The commands of the README, and what they are called.
INSTALLS = {"light": ("make run",), "full": ("make install", "make run")}
SIZES = (40, 350)
IDLE = 10
MEGABYTE = 1 << 20


class Taken(NamedTuple):
    """What a command took: on the wall, and of the processors."""

    seconds: float
    processor: float
    printed: str

    def __str__(self) -> str:
        return f"{self.seconds:.1f} s ({self.processor:.1f} s of processor)"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path, nargs="?")
    parser.add_argument("--only", choices=list(INSTALLS))
    parser.add_argument("--checkout", type=Path, help="do not install; measure this one, with --only")
    parser.add_argument("--complete", action="store_true", help="say also when all can be found by meaning")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    figures: dict[str, Any] = {"processors": os.cpu_count(), "load": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        corpus = lay_out(arguments.corpus.resolve(), Path(folder)) if arguments.corpus else None
        for name in [arguments.only] if arguments.only else INSTALLS:
            print(f"== {name}")
            machine = Machine(Path(folder) / name, arguments.checkout)
            figures[name] = {} if arguments.checkout else machine.install(INSTALLS[name])
            for size in SIZES if corpus else ():
                figures[name][f"{size} sessions"] = machine.ask(corpus, size, complete=arguments.complete)
            figures[name] |= machine.listed() | machine.held()
            shutil.rmtree(machine.folder)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


class Machine:
    """A home in which nothing has been done yet, and a checkout in it."""

    def __init__(self, folder: Path, checkout: Path | None) -> None:
        self.folder = folder
        self.home = folder / "home"
        self.home.mkdir(parents=True)
        self.checkout = checkout.resolve() if checkout else folder / "smart-fork"
        left_out = ("SMART_FORK_", "CLAUDE", "CODEX_", "VIRTUAL_ENV", "PYTHON", "MAKE", "XDG_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(left_out)}
        self.environment = kept | {"HOME": str(self.home), "PIP_CACHE_DIR": str(folder / "pip")}

    @property
    def program(self) -> str:
        """What has been installed."""
        return str(self.checkout / ".venv/bin/smart-fork")

    def install(self, commands: tuple[str, ...]) -> dict[str, Any]:
        """From an empty clone to the first right hit: with an empty cache, and again with what that has left in it."""
        figures: dict[str, Any] = {}
        for which in ("nothing cached", "downloads cached"):
            shutil.rmtree(self.checkout, ignore_errors=True)
            steps = [self.run("git", "clone", "--quiet", str(ROOT), str(self.checkout))]
            steps += [self.run(*command.split(), cwd=self.checkout) for command in commands]
            assert "retry" in steps[-1].printed.lower(), steps[-1].printed
            total = Taken(sum(step.seconds for step in steps), sum(step.processor for step in steps), "")
            figures[which] = {"seconds": total.seconds, "processor": total.processor}
            print(f"git clone, {', '.join(commands)}, {which}: {total}")
        again = self.run("make", "run", cwd=self.checkout)
        figures["make run again"] = {"seconds": again.seconds, "processor": again.processor}
        figures["MB"] = _size(self.checkout / ".venv")
        print(f"make run again: {again}; installed: {figures['MB']:.0f} MB")
        return figures

    def ask(self, corpus: Path, size: int, *, complete: bool) -> dict[str, Any]:
        """The first answer over so many sessions, and the next one; and when all of them can be found by meaning."""
        query, home = _home_of(corpus, size, self.folder / f"home-{size}")
        told = self.environment | {"HOME": str(home), "SMART_FORK_HOME": str(self.folder / f"state-{size}")}
        question = (self.program, "find", "--json", "--project", query["project"], "--", query["query"])
        figures: dict[str, Any] = {}
        for which in ("first", "next"):
            taken = self.run(*question, env=told)
            place = _place(json.loads(taken.printed), query)
            figures[which] = {"seconds": taken.seconds, "processor": taken.processor, "place": place}
            print(f"{size} sessions, the {which} answer: {taken}, the right session is number {place}")
        if complete:
            rest = self.run(self.program, "index", "run", "--json", env=told)
            figures["all"] = {"seconds": figures["first"]["seconds"] + rest.seconds}
            print(f"{size} sessions, until all can be found by meaning: {figures['all']['seconds']:.1f} s")
        _end_background(told["SMART_FORK_HOME"])
        return figures

    def listed(self) -> dict[str, int]:
        """Bytes of `tools/list`: as the agent is sent them, and what of that its model reads."""
        figures = {}
        for which in ("few", "all"):
            client = Client([self.program, "mcp", "--tools", which], self.environment)
            client.start()
            tools = client.request("tools/list")["tools"]
            client.close()
            read = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in tools]
            figures |= {f"tools/list, {which}": _bytes(tools), f"tools/list, {which}, read by the model": _bytes(read)}
            print(f"tools/list, {which}: {len(tools)} tools, {_bytes(tools)} bytes, the model reads {_bytes(read)}")
        return figures

    def held(self) -> dict[str, float]:
        """Memory of ten servers that have listed their tools, and of the service around its first question."""
        clients = [Client([self.program, "mcp"], self.environment) for _ in range(IDLE)]
        for client in clients:
            client.start()
            client.request("tools/list")
        figures = {f"{IDLE} idle servers, MB": sum(pss(client.process.pid) for client in clients)}
        for client in clients:
            client.close()
        with socket.create_server(("127.0.0.1", 0)) as free:
            told = self.environment | {"SMART_FORK_PORT": str(free.getsockname()[1]), "SMART_FORK_INDEXING": "true"}
        with subprocess.Popen([self.program, "serve"], env=told, stdout=subprocess.DEVNULL) as service:
            answered(told, "/healthz")
            time.sleep(SETTLED_SECONDS)
            figures["service, MB"] = pss(service.pid)
            answered(told, "/healthz")
            figures["service after a question, MB"] = pss(service.pid)
            service.terminate()
        for what, value in figures.items():
            print(f"{what.removesuffix(', MB')}: {value:.0f} MB")
        return figures

    def run(self, *command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> Taken:
        """Run it to its end, which must be a good one."""
        before, begun = _children(), time.perf_counter()
        done = subprocess.run(
            command, cwd=cwd or self.home, env=env or self.environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return Taken(time.perf_counter() - begun, _children() - before, done.stdout)


def _end_background(state: str) -> None:
    """End what goes on indexing there, so that nothing is measured beside it."""
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.environ().get("SMART_FORK_HOME") == state:
                process.terminate()


def _home_of(corpus: Path, size: int, home: Path) -> tuple[dict[str, Any], Path]:
    """A labelled question, and a home with so many sessions: its answer, then those of its project, then others."""
    query = json.loads((corpus / "queries.jsonl").read_text(encoding="utf-8").splitlines()[0])
    wanted = {answer["session_id"] for answer in query["gold"]}
    here = query["project"].replace("/", "-").replace("+", "-")
    logs = sorted(
        (corpus / "home").rglob("*.jsonl"),
        key=lambda log: (not any(one in log.name for one in wanted), here not in str(log), str(log)),
    )
    for log in logs[:size]:
        copy = home / log.relative_to(corpus / "home")
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(log, copy)
    return query, home


def _place(answer: dict[str, Any], query: dict[str, Any]) -> int | None:
    """Where the right session stands in an answer, from 1."""
    wanted = {one["session_id"] for one in query["gold"]}
    places = [place for place, result in enumerate(answer["results"], 1) if result["session_id"] in wanted]
    return places[0] if places else None


def _bytes(value: Any) -> int:
    return len(json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode())


def _size(folder: Path) -> float:
    """What it takes on the disk, in MB."""
    files = {(at.st_dev, at.st_ino): at.st_blocks * 512 for path in folder.rglob("*") if (at := path.lstat())}
    return sum(files.values()) / MEGABYTE


def _children() -> float:
    told = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told.ru_utime + told.ru_stime


if __name__ == "__main__":
    main()
