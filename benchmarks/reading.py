"""Whether every log of a collection is still read, and what is counted in it, beside what its catalogue has counted.

    python benchmarks/reading.py CORPUS [--before FILE] [--misses] [--json FILE]

CORPUS is a folder with ``CATALOG.tsv`` and ``sessions.tar.xz``. The catalogue has a row for each file, with its
``agent``, its name in the archive (``file``), and, counted by whoever collected them, its prompts (``user_turns``),
``tool_calls`` and ``bad_lines``. Samples of many agents have the agent ``_fixtures``; whose each is, is the second
folder of its name. Each file is read by its agent's reader: it gives a session, or a reason why it is none, or an
error. Of what is a session it is said in how many files as much was counted, and how much in all; ``--misses`` prints
the files where it was not. With ``--before``, figures that ``--json`` wrote, each that has changed is printed.
"""

from __future__ import annotations

import argparse
import csv
import json
import sys
import tarfile
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SAMPLES = "_fixtures"
#: What we count, and what the catalogue calls it.
COUNTED = {"prompts": "user_turns", "calls": "tool_calls", "broken lines": "bad_lines"}


def main() -> None:
    """Read, count and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--before", type=Path, help="figures of an earlier version, as --json wrote them")
    parser.add_argument(
        "--misses", action="store_true", help="print each file in which the catalogue counted otherwise"
    )
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    arguments = parser.parse_args()
    figures = measure(arguments.corpus, misses=arguments.misses)
    show(figures)
    if arguments.before:
        for line in changes(json.loads(arguments.before.read_text(encoding="utf-8")), figures):
            print(line)
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1), encoding="utf-8")


def measure(corpus: Path, *, misses: bool = False) -> dict[str, dict[str, int]]:
    """What was counted, by agent; of samples apart."""
    archive = corpus / "sessions.tar.xz"
    if not archive.is_file():
        sys.exit(f"skipped: no {archive}; --help tells its form")
    figures: dict[str, Counter[str]] = defaultdict(Counter)
    with tempfile.TemporaryDirectory(prefix="smart-fork-bench-") as folder:
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
        for row in _rows(corpus / "CATALOG.tsv"):
            agent = row["file"].split("/")[2] if row["agent"] == SAMPLES else row["agent"]
            own = figures[f"{agent}, samples" if row["agent"] == SAMPLES else agent]
            counted = _read(agent, Path(folder) / row["file"])
            own.update(counted)
            told = {name: int(row[column]) for name, column in COUNTED.items() if (row[column] or "").isdigit()}
            for name, number in told.items() if counted.get("sessions") and row["agent"] != SAMPLES else ():
                own.update({f"{name} in the catalogue": number, f"as many {name}": counted[name] == number})
                if misses and counted[name] != number:
                    print(f"{row['file']}: {name} {counted[name]}, in the catalogue {number}")
    return {name: dict(own) for name, own in figures.items()}


def _rows(path: Path) -> Iterator[Mapping[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)


def _read(agent: str, path: Path) -> dict[str, int]:
    """What is counted in one file; an error as what it is."""
    from smart_fork.agents.readers import READERS

    if agent not in READERS.names:
        return {"files": 1, "of an agent that is not read": 1}
    try:
        result = READERS[agent].read(path)
    except Exception as error:  # noqa: BLE001 - whatever goes wrong with a log is a figure
        return {"files": 1, f"error: {type(error).__name__}": 1}
    if result.session is None:
        return {"files": 1, f"no session: {result.skipped}": 1}
    turns = result.session.turns
    calls = [call for turn in turns for call in turn.tool_calls]
    return {
        "files": 1,
        "sessions": 1,
        "prompts": sum(turn.prompt for turn in turns),
        "turns": len(turns),
        "calls": len(calls),
        "results": sum(len(turn.tool_results) for turn in turns),
        "files edited": sum(len(call.edits) for call in calls),
        "files read": sum(len(call.reads) for call in calls),
        "compactions": result.session.compactions,
        "broken lines": len(result.broken),
    }


def changes(before: Mapping[str, Mapping[str, int]], now: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    """A line for each figure that was another one before."""
    for agent in dict.fromkeys((*before, *now)):
        was, has = before.get(agent, {}), now.get(agent, {})
        for name in dict.fromkeys((*was, *has)):
            if was.get(name, 0) != has.get(name, 0):
                yield f"{agent}: {name} {was.get(name, 0):,} -> {has.get(name, 0):,}"


def show(figures: Mapping[str, Mapping[str, Any]]) -> None:
    """The figures as a table: an agent a column, those that are read first."""
    read = {agent: own for agent, own in figures.items() if "of an agent that is not read" not in own}
    table = Table(title="What is read")
    for heading in ("", *read):
        table.add_column(heading, justify="right" if heading else "left")
    for name in dict.fromkeys(name for own in read.values() for name in own):
        table.add_row(name, *(f"{own.get(name, 0):,}" for own in read.values()))
    Console(width=200).print(table)
    others = sum(own["files"] for own in figures.values()) - sum(own["files"] for own in read.values())
    print(f"{sum(own['files'] for own in figures.values()):,} files, {others} of them of agents that are not read")


if __name__ == "__main__":
    main()
