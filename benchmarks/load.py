"""Many clients that ask at once, first with nothing else to do, then while everything is indexed anew.

    python benchmarks/bench.py load [--clients 50] [--queries 200] [--logs 500] [--gigabytes 0.5] [--json FILE]

Each client is an MCP session over HTTP of a real ``smart-fork serve`` on a home of its own (`_big_home.py`), and asks
one question after the other. For the second round every log looks unread and every vector is gone, as after an upgrade
that reads differently; where that is done before the questions are, it is begun again.
"""

from __future__ import annotations

import random
import threading
import time
from argparse import ArgumentParser, Namespace
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import apsw
from _big_home import BigHome
from _frame import Part, Table, busy_machine, percentile
from _served import Served
from soak import index_all

from indexer.store.schema import load_vectors

LOOK_SECONDS = 0.5
#: What `files.version` never is.
UNREAD = "read again"


@dataclass(slots=True)
class Round:
    """The results of one round: the time and way of searching of each answer, and the errors."""

    seconds: list[float] = field(default_factory=list)
    modes: Counter[str] = field(default_factory=Counter)
    errors: list[str] = field(default_factory=list)
    took: float = 0.0
    cpu_seconds: float = 0.0
    rebuilds: int = 0

    def as_json(self) -> dict[str, Any]:
        """The figures."""
        return {
            "answers": len(self.seconds), "errors": len(self.errors), "first_errors": self.errors[:5],
            "p50": percentile(self.seconds, 0.5), "p99": percentile(self.seconds, 0.99),
            "max": max(self.seconds, default=0.0), "took": self.took, "modes": dict(self.modes),
            "cpu_share": self.cpu_seconds / self.took, "rebuilds": self.rebuilds,
        }  # fmt: skip


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--clients", type=int, default=50)
    parser.add_argument("--queries", type=int, default=200, help="questions a client and round (200)")
    parser.add_argument("--logs", type=int, default=500)
    parser.add_argument("--gigabytes", type=float, default=0.5)


def measure(arguments: Namespace, folder: Path) -> dict[str, Any]:
    """Both rounds, of the same questions."""
    folder = folder / "home"
    home = BigHome(folder)
    size = home.make(arguments.logs, arguments.gigabytes)
    figures: dict[str, Any] = {"logs": arguments.logs, "bytes": size, "clients": arguments.clients}
    figures |= {"queries": arguments.queries, "load_before": busy_machine()}
    with Served(folder) as served:
        figures |= index_all(served, arguments.logs)
        figures["before_mb"] = served.megabytes()
        idle = _round(served, home, arguments, rebuild=False)
        figures |= {"idle": idle.as_json(), "load_between": busy_machine(), "between_mb": served.megabytes()}
        busy = _round(served, home, arguments, rebuild=True)
        figures |= {"busy": busy.as_json(), "after_mb": served.megabytes()}
    return figures | {"load_after": busy_machine()}


def _round(served: Served, home: BigHome, arguments: Namespace, *, rebuild: bool) -> Round:
    done = Round()
    if rebuild:
        _read_all_again(served)
        done.rebuilds = 1
    clients = [
        threading.Thread(target=_ask, args=(served, home, arguments.queries, number, done))
        for number in range(arguments.clients)
    ]
    began, used = time.monotonic(), served.cpu_seconds()
    for client in clients:
        client.start()
    while any(client.is_alive() for client in clients):
        if rebuild and _all_read(served):
            _read_all_again(served)
            done.rebuilds += 1
        time.sleep(LOOK_SECONDS)
    done.took, done.cpu_seconds = time.monotonic() - began, served.cpu_seconds() - used
    return done


def _ask(served: Served, home: BigHome, queries: int, number: int, done: Round) -> None:
    rand = random.Random(number)
    try:
        with closing(served.client()) as client:
            for _ in range(queries):
                log = rand.choice(home.logs)
                asked = {"intent": " ".join(log.asked.split()[: rand.randint(4, 16)]), "project_path": str(log.project)}
                began = time.monotonic()
                try:
                    answer = client.call("smart_fork", agent_type="both", **asked)
                except (OSError, RuntimeError) as error:
                    done.errors.append(repr(error))
                    continue
                done.seconds.append(time.monotonic() - began)
                done.modes[answer.get("search_mode") or answer["error"]] += 1
                if "error" in answer or not answer["results"]:
                    done.errors.append(str(answer)[:500])
    except (OSError, RuntimeError) as error:
        done.errors.append(f"a client gave up: {error!r}")


def _read_all_again(served: Served) -> None:
    """Make the index one of a program that reads, cuts and embeds differently: the next question has it made anew."""
    with closing(apsw.Connection(str(served.state / "index.db"))) as index:
        index.set_busy_timeout(60_000)
        load_vectors(index)
        index.execute("BEGIN IMMEDIATE")
        index.execute("UPDATE files SET version = ?", (UNREAD,))
        index.execute("DELETE FROM vectors")
        index.execute("UPDATE chunks SET block = 0")
        index.execute("COMMIT")


def _all_read(served: Served) -> bool:
    """Return True if everything has been read and embedded again."""
    if served.status()["state"] != "idle":
        return False
    with closing(apsw.Connection(str(served.state / "index.db"), flags=apsw.SQLITE_OPEN_READONLY)) as index:
        index.set_busy_timeout(60_000)
        unread = index.execute("SELECT count(*) FROM files WHERE version = ?", (UNREAD,)).get
        return not unread and not index.execute("SELECT count(*) FROM chunks WHERE block = 0").get


def _rows(figures: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Yield label, figure with nothing else to do, and figure during a rebuild."""
    idle, busy = figures["idle"], figures["busy"]
    yield "answers", f"{idle['answers']:,}", f"{busy['answers']:,}"
    yield "errors", f"{idle['errors']}", f"{busy['errors']}"
    for key in ("p50", "p99", "max"):
        yield f"an answer, {key}", f"{idle[key]:.2f} s", f"{busy[key]:.2f} s ({busy[key] / idle[key]:.2f})"
    yield "answers a second", *(f"{one['answers'] / one['took']:.1f}" for one in (idle, busy))
    modes = [", ".join(f"{mode} {number:,}" for mode, number in one["modes"].items()) for one in (idle, busy)]
    yield "searched by", *modes
    yield "processor of the service", *(f"{one['cpu_share']:.0%} of a core" for one in (idle, busy))
    yield "times that indexing began", "", f"{busy['rebuilds']}"
    yield "memory after", f"{figures['between_mb']:,.0f} MB", f"{figures['after_mb']:,.0f} MB"
    yield "the machine after", figures["load_between"], figures["load_after"]


def tables(figures: dict[str, Any]) -> Iterator[Part]:
    """Yield both rounds."""
    yield (
        f"{figures['clients']} clients over MCP, {figures['queries']} questions each; {figures['logs']:,} logs,\n"
        f"{figures['passages']:,} passages."
    )
    yield Table(("", "nothing else to do", "during a full rebuild (ratio)"), _rows(figures))
