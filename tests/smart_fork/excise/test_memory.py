"""The memory that a cut of a long session needs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.smart_fork.forks import SESSION, said, text
from tests.support.exhaustive import full_or_sample

ROOT = Path(__file__).resolve().parents[3]
#: A session of 100 MB, and a smaller one as long as not all is tried that takes long.
BYTES = full_or_sample(100_000_000, 12_000_000)

#: Runs the command of its arguments, and prints the peak of memory in KB.
MEASURE = """
import os, runpy, sys
os._exit = sys.exit  # which would leave no time to measure
sys.argv = ["smart-fork", *sys.argv[1:]]
try:
    runpy.run_module("smart_fork", run_name="__main__")
finally:
    peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
    print(peak, file=sys.stderr)
"""


@pytest.mark.thorough
def test_a_cut_of_a_long_session_is_planned_within_three_times_its_size_beside_what_a_short_one_takes(tmp_path):
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not tell the peak of memory")

    tokens, long = planned(tmp_path, BYTES)
    _, short = planned(tmp_path, 1)

    assert tokens > BYTES / 8
    assert long - short < 3 * BYTES


def planned(folder: Path, least: int) -> tuple[int, int]:
    """Return the tokens of a session of at least this size, and the peak memory of the command that plans a cut."""
    path = folder / f"{SESSION}.jsonl"
    piece = b"".join(
        json.dumps(record).encode() + b"\n"
        for number in range(125)
        for record in (
            said(f"u{number}", f"a{number - 1}", "user", f"step {number} " * 20),
            said(
                f"c{number}",
                f"u{number}",
                "assistant",
                [{"type": "tool_use", "id": f"t{number}", "name": "Bash", "input": {}}],
            ),
            said(
                f"r{number}",
                f"c{number}",
                "user",
                [{"type": "tool_result", "tool_use_id": f"t{number}", "content": "line\n" * 800}],
            ),
            said(f"a{number}", f"r{number}", "assistant", text(f"done {number} " * 80)),
        )
    )
    path.write_bytes(piece * -(-least // len(piece)))
    command = [sys.executable, "-c", MEASURE, "excise", "cut", "0", str(path), "--dry-run", "--force", "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)["tokens_before"], int(done.stderr.split()[-1]) * 1024
