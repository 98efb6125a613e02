"""The cost of a refresh with thousands of logs: with nothing changed, and with one that has grown."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _frame import live_at

LOGS = 5_000
PROJECTS = 50
#: Exchanges in the log that grows: about a megabyte, which is read anew.
LONG_LOG = 1_000
RUNS = 7


def measure(folder: Path) -> dict[str, Any]:
    """A home with `LOGS` small logs in `folder`, indexed, then refreshed again and again."""
    from indexer.refresh import complete
    from indexer.safe_files import index_db
    from indexer.store.sqlite import Store
    from smart_fork.agents.claude import HOME
    from smart_fork.agents.log_readers import READERS

    live_at(folder, folder / "state")
    projects = HOME.folder() / "projects"
    for number in range(LOGS):
        _append(projects, number, range(1))
    long = LOGS - 1
    _append(projects, long, range(1, LONG_LOG))
    store = Store(index_db())
    assert complete(store, READERS, None, patience=0.0).sessions == LOGS

    listing, unchanged = _by_turns(
        lambda: _scandir_and_stat(str(projects)), lambda: complete(store, READERS, None, patience=0.0)
    )
    scope = store.scope(None, ["claude"], automated=True)
    grown = []
    for run in range(RUNS):
        _append(projects, long, range(LONG_LOG + run, LONG_LOG + run + 1))
        started = time.perf_counter()
        complete(store, READERS, None, patience=0.0)
        found = store.match_words("chunks", [f'"answer{LONG_LOG + run}"'], scope, 1)
        grown.append(time.perf_counter() - started)
        assert found
    store.close()
    return {
        "many_logs": LOGS,
        "listing_seconds": listing,
        "unchanged_many_seconds": unchanged,
        "grown_log_megabytes": _log(projects, long).stat().st_size / 1e6,
        "grown_seconds": min(grown),
    }


def _by_turns(one: Callable[[], object], other: Callable[[], object]) -> tuple[float, float]:
    """The shortest time of each, measured in turns: whatever else the machine does meets both."""
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(RUNS):
        for work, seconds in zip((one, other), times, strict=True):
            started = time.perf_counter()
            work()
            seconds.append(time.perf_counter() - started)
    return min(times[0]), min(times[1])


def _scandir_and_stat(folder: str) -> int:
    """List a folder, as any program that looks for changes must."""
    count = 0
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                count += _scandir_and_stat(entry.path)
            else:
                entry.stat()
                count += 1
    return count


def _log(projects: Path, number: int) -> Path:
    return projects / f"-work-{number % PROJECTS}" / f"{number:08x}-1111-4111-8111-111111111111.jsonl"


def _append(projects: Path, number: int, exchanges: range) -> None:
    path = _log(projects, number)
    path.parent.mkdir(parents=True, exist_ok=True)
    about = {"sessionId": path.stem, "cwd": f"/work/{number % PROJECTS}", "timestamp": "2026-01-01T00:00:00.000Z"}
    with path.open("a", encoding="utf-8") as file:
        for i in exchanges:
            parent = f"{path.stem}-a{i - 1}" if i else None
            asked = {"role": "user", "content": f"question{i} about retries, backoff and the uploader of log {number}"}
            said = {"role": "assistant", "id": f"m{i}", "content": [{"type": "text", "text": f"answer{i} " * 20}]}
            for kind, id_, above, message in (
                ("user", f"u{i}", parent, asked),
                ("assistant", f"a{i}", f"{path.stem}-u{i}", said),
            ):
                record = {"type": kind, "uuid": f"{path.stem}-{id_}", "parentUuid": above, "message": message}
                file.write(json.dumps(record | about) + "\n")
