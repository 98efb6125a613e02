"""How often a new session is told of a past one by its first prompt, how often rightly, and what the hook costs.

    python benchmarks/recall.py CORPUS [--home DIR] [--runs N] [--json FILE]

CORPUS and ``--home`` as for ``retrieval.py``. Each labelled query is asked as the first prompt of a new session, once
as it is, and once with the sessions that answer it taken away: whatever is said then is wrong. Last, the hook's process
is run by turns with one that does nothing. Prompts of other projects are asked by `benchmarks.which_session`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from retrieval import Labelled, home_of, opened

CHANCES = (0.7, 0.8, 0.9)
SECONDS = 60.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")
    parser.add_argument("--runs", type=int, default=30, help="of the hook")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    if not arguments.corpus.is_dir():
        sys.exit(f"skipped: no corpus at {arguments.corpus}")
    with home_of(arguments.corpus, arguments.home) as laid_out:
        labelled = opened(laid_out)
        figures = spoken(labelled) | costs(labelled, arguments.runs)
    for name, value in figures.items():
        print(f"{name:60} {value:8.3f}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def best(labelled: Labelled, text: str, vector: bytes, project: str, without: frozenset[str]) -> tuple[float, set[str]]:
    """The chance of the best session for a prompt, and the ids of its family."""
    from smart_fork.finding.query import Query
    from smart_fork.finding.search import search

    query = Query(text, labelled.scope(project), limit=1, hidden=without)
    hits = search(labelled.store, query, lambda _: [vector]).hits
    return (hits[0].score, {row.session_id for row in hits[0].family}) if hits else (0.0, set())


def spoken(labelled: Labelled) -> dict[str, float]:
    """Of the labelled queries."""
    there, away = [], []
    for query in labelled.queries:
        gold = {answer["session_id"] for answer in query["gold"]}
        vector = labelled.vectors[query["query"]]
        chance, family = best(labelled, query["query"], vector, query["project"], frozenset())
        there.append((chance, bool(gold & family)))
        kin = {row.session_id for one in gold for row in _family(labelled, one)}
        away.append(best(labelled, query["query"], vector, query["project"], frozenset(gold | kin))[0])
    figures: dict[str, float] = {"queries": len(there)}
    for least in CHANCES:
        said = [right for chance, right in there if chance >= least]
        figures |= {
            f"speaks, from {least:g} on": len(said) / len(there),
            f"is right of these, from {least:g} on": sum(said) / max(1, len(said)),
            f"speaks where no answer is, from {least:g} on": sum(one >= least for one in away) / len(away),
        }
    return figures


def _family(labelled: Labelled, session_id: str) -> list[Any]:
    return [
        row for one in labelled.store.find_sessions(session_id) for row in labelled.store.family(one.root_id) or [one]
    ]


def costs(labelled: Labelled, runs: int) -> dict[str, float]:
    """Milliseconds of the hook with a service that answers, without one, switched off, and of an empty Python."""
    from smart_fork.hooks import switch

    queries = labelled.queries
    asked = iter(range(10**6))

    def event() -> bytes:
        number = next(asked)
        query = queries[number % len(queries)]
        said = {"hook_event_name": "UserPromptSubmit", "session_id": f"{os.getpid()}-{number}", "cwd": query["project"]}
        return json.dumps(said | {"prompt": query["query"], "transcript_path": None}).encode()

    agent = queries[0]["gold"][0]["agent"]
    hook = [sys.executable, "-P", "-m", "smart_fork.hooks", agent]
    environment = dict(os.environ) | {"SMART_FORK_RECALL_MS": "150"}

    def told() -> bytes:
        return subprocess.run(hook, input=event(), env=environment, capture_output=True, check=True).stdout

    ways: dict[str, Callable[[], object]] = {
        "python -c pass": lambda: subprocess.run([sys.executable, "-c", "pass"], input=b"", check=True),
        "hook, the service answers": told,
    }
    switch.turn_on(agent)
    try:
        with _service():
            for _ in range(5):
                told()
            figures = _measured(ways, runs)
        without = _measured({"hook, no service": told}, runs)
    finally:
        switch.turn_off(agent)
    return figures | without | _measured({"hook, switched off": told}, runs)


def _measured(ways: dict[str, Callable[[], object]], runs: int) -> dict[str, float]:
    taken: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
    for _ in range(runs):
        for name, run in ways.items():
            before, begun = _children(), time.perf_counter()
            run()
            taken[name].append((time.perf_counter() - begun, _children() - before))
    figures = {}
    for name, measured in taken.items():
        wall, processor = (1000 * statistics.median(column) for column in zip(*measured, strict=True))
        figures |= {f"{name}, ms": wall, f"{name}, ms of processor": processor}
    return figures


def _children() -> float:
    told = resource.getrusage(resource.RUSAGE_CHILDREN)
    return told.ru_utime + told.ru_stime


@contextmanager
def _service() -> Iterator[None]:
    """The real one, which indexes nothing, from when its model is loaded."""
    from smart_fork.cli.service.client import find_service

    environment = dict(os.environ) | {"SMART_FORK_INDEXING": "false", "SMART_FORK_PORT": "0"}
    command = [sys.executable, "-m", "smart_fork", "serve", "--port", "18766"]
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        until = time.monotonic() + SECONDS
        while (service := find_service()) is None and time.monotonic() < until:
            time.sleep(0.2)
        if service is None:
            sys.exit("the service did not start")
        service.health()
        yield
        process.terminate()


if __name__ == "__main__":
    main()
