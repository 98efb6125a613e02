"""What listing and cutting a long session costs: memory, and time as a ratio to decoding it with orjson.

    python benchmarks/excising.py [--megabytes N] [--json FILE]

The session is written for the purpose. The baseline, measured in the same run, is decoding every line of it with orjson
and keeping nothing. Memory is that of the whole command, as the system counts it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

RUNS = 3
LIMIT_MB = 300
SESSION = "60309e1e-0000-4000-8000-000000000001"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=100, help="how long the session is (100)")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        os.environ |= {"HOME": folder, "SMART_FORK_HOME": f"{folder}/state"}
        figures = measure(written(Path(folder), arguments.megabytes * 1_000_000))
    for name, value in figures.items():
        print(f"{name:<24} {value:.2f}" if isinstance(value, float) else f"{name:<24} {value}")
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")
    if figures["list_peak_mb"] > LIMIT_MB:
        sys.exit(f"listing needs more than {LIMIT_MB} MB")


def measure(path: Path) -> dict[str, Any]:
    """Time and memory of what is done with one session."""
    from smart_fork.excise import load_auto, plan

    decode = min(_seconds(lambda: _only_decode(path)) for _ in range(RUNS))
    load = min(_seconds(lambda: load_auto(path)) for _ in range(RUNS))
    session = load_auto(path)
    middle = [turn.id for turn in session.turns[len(session.turns) // 2 :][:40]]
    figures: dict[str, Any] = {
        "megabytes": path.stat().st_size / 1e6,
        "turns": len(session.turns),
        "orjson_seconds": decode,
        "load_seconds": load,
        "load_ratio": load / decode,
        "plan_seconds": _seconds(lambda: plan(session, middle)),
    }
    commands = {
        "list": ("list", str(path), "--json"),
        "cut": ("cut", "2000-2040", str(path), "-y", "--force", "--json"),
    }
    for name, words in commands.items():
        started = time.perf_counter()
        peak = _peak_of("excise", *words)
        seconds = time.perf_counter() - started
        figures |= {f"{name}_peak_mb": peak, f"{name}_seconds": seconds, f"{name}_ratio": seconds / decode}
    return figures


def written(folder: Path, size: int) -> Path:
    """A session of about `size` bytes: prompts, calls with outputs of many lengths, answers."""
    chance = random.Random(7)
    words = [f"word{number}" for number in range(5000)]
    path = folder / ".claude/projects/-bench" / f"{SESSION}.jsonl"
    path.parent.mkdir(parents=True)
    parent: str | None = None
    with path.open("wb") as file:
        while file.tell() < size:
            call = f"toolu_{uuid.UUID(int=chance.getrandbits(128)).hex}"
            for kind, content in (
                ("user", " ".join(chance.choices(words, k=30))),
                ("assistant", [{"type": "tool_use", "id": call, "name": "Bash", "input": {"command": "make check"}}]),
                ("user", [{"type": "tool_result", "tool_use_id": call, "content": _output(chance, words)}]),
                ("assistant", [{"type": "text", "text": " ".join(chance.choices(words, k=120))}]),
            ):
                parent = _write(file, chance, parent, kind, content)
    return path


def _output(chance: random.Random, words: list[str]) -> str:
    return " ".join(chance.choices(words, k=chance.choice((20, 200, 200, 2000))))


def _write(file: Any, chance: random.Random, parent: str | None, kind: str, content: object) -> str:
    identity = str(uuid.UUID(int=chance.getrandbits(128)))
    record = {
        "type": kind, "uuid": identity, "parentUuid": parent, "sessionId": SESSION, "isSidechain": False,
        "cwd": "/bench", "timestamp": "2026-01-01T00:00:00.000Z", "version": "2.1.197", "gitBranch": "main",
        "message": {"role": kind, "content": content},
    }  # fmt: skip
    file.write(orjson.dumps(record, option=orjson.OPT_APPEND_NEWLINE))
    return identity


def _only_decode(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def _peak_of(*words: str) -> float:
    """The memory that a command needs at most, in MB."""
    code = (
        "import resource, subprocess, sys\n"
        "subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, check=True)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    command = [sys.executable, "-c", code, sys.executable, "-m", "smart_fork", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(done.stdout) / (1e6 if sys.platform == "darwin" else 1e3)


if __name__ == "__main__":
    main()
