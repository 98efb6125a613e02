"""A long log is read within bounded memory."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.indexer.transcripts.records import assistant as answer
from tests.indexer.transcripts.records import (
    chained,
    codex_path,
    enveloped,
    id_of,
    item,
    message,
    meta,
    result,
    use,
    user,
)
from tests.support.exhaustive import full_or_sample

ROOT = Path(__file__).resolve().parents[3]
#: 500 MB within 300 MB, and as much of both as says the same sooner: what is kept grows with the log, beside 45 MB.
MEGABYTES, LIMIT = full_or_sample((500, 300), (20, 57))
NUMBER, BEFORE = "0000000000", "9999999999"

#: Prints the peak of memory in KB, the number of turns and of bytes.
READ = """
import sys
from pathlib import Path
from smart_fork.agents.log_readers import READERS
reader, path = READERS[sys.argv[1]], Path(sys.argv[2])
first = reader.read(path)
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(peak, len(first.session.turns), first.bytes_read)
"""


def numbered(identity: str) -> str:
    """An id with a place for a number that has as many digits as the agent's own ids."""
    return f"{identity}{NUMBER}".rjust(36, "0")


def text_of(size: int) -> str:
    words = "alpha beta_gamma getUserById def return self import error path/to/file.py MAX_RETRY value = 1\n"
    return (words * (size // len(words) + 1))[:size]


def claude_round() -> list[object]:
    records = [user(numbered("u"), numbered("end").replace(NUMBER, BEFORE), f"step {NUMBER}")]
    parent = numbered("u")
    for i in range(8):
        call, output, seen, shown = (numbered(f"{name}{i}") for name in ("call", "out", "b", "c"))
        records += [
            answer(
                call,
                parent,
                use(numbered(f"tool{i}"), "Bash", command=f"pytest tests/{NUMBER}"),
                message=numbered(f"m{i}"),
            ),
            chained("progress", seen, call, data={"fullOutput": text_of(1200)}),
            chained("progress", shown, seen, data={"fullOutput": text_of(1200)}),
            result(output, shown, numbered(f"tool{i}"), text_of(1600)),
        ]
        parent = output
    return [*records, answer(numbered("end"), parent, text_of(300))]


def codex_round() -> list[object]:
    calls = [
        record
        for i in range(10, 16)
        for record in (
            item(
                "function_call",
                call_id=f"call_{i}_{NUMBER}",
                name="exec_command",
                arguments=json.dumps({"cmd": f"ls {NUMBER}"}),
            ),
            item("function_call_output", call_id=f"call_{i}_{NUMBER}", output=text_of(1600)),
        )
    ]
    return [
        message("user", f"step {NUMBER}"),
        *calls,
        enveloped("world_state", state=text_of(1600)),
        message("assistant", text_of(300)),
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("agent", ["claude", "codex"])
def test_a_long_log_is_read_within_bounded_memory(home, agent):
    if not Path("/proc/self/status").exists():
        pytest.skip("the system does not tell the peak of a process's memory")
    if agent == "claude":
        path, first, records = home / f".claude/projects/-srv-shop/{id_of(1)}.jsonl", [], claude_round()
        big = result(numbered("big"), numbered("u"), numbered("tool0"), text_of(100_000))
    else:
        path, first, records = codex_path(home, id_of(1)), [meta(id_of(1))], codex_round()
        big = item("function_call_output", call_id=f"call_{NUMBER}", output=text_of(100_000))
    plain = "".join(json.dumps(record) + "\n" for record in records)
    with_big = plain + json.dumps(big) + "\n"
    path.parent.mkdir(parents=True)
    with path.open("w") as file:
        size = file.write("".join(json.dumps(record) + "\n" for record in first))
        number = 0
        while size < MEGABYTES * 1_000_000:
            number += 1
            text = plain if number % 10 else with_big
            size += file.write(text.replace(NUMBER, f"{number:010}").replace(BEFORE, f"{number - 1:010}"))

    run = subprocess.run(
        [sys.executable, "-c", READ, agent, str(path)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    path.unlink()

    peak, turns, read = map(int, run.stdout.split())
    assert read == size
    assert turns > 200 * MEGABYTES
    assert peak < LIMIT * 1024
