"""Retrieval quality where several agents worked: the labelled queries before and after others' sessions are added.

    python benchmarks/mixed_agents.py CORPUS [--home DIR] [--also FILE] [--sessions 100] [--seed 1] [--json FILE]

CORPUS, ``--home`` and ``--also`` as for ``retrieval.py``. So many sessions, chosen by chance, are told to the other
agents in turns, as ``fork --as`` does it, without starting any: beside each of them there is then a session of another
agent that says the same in other records. One whose program would be needed for that is left out. A hit is right as
in ``retrieval.py``: what a session was told from is of its family, and one result with it.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import sys
import uuid
from collections import Counter
from collections.abc import Iterator
from datetime import datetime
from itertools import cycle
from pathlib import Path
from typing import Any

from retrieval import RATES, home_of, measure, opened
from rich.console import Console
from rich.table import Table

#: How far a rate may be from what it was without the others.
GOAL = 0.01


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--home", type=Path, help="keep the index here (SMART_FORK_HOME)")
    parser.add_argument("--also", type=Path, help="further phrasings of the queries")
    parser.add_argument("--sessions", type=int, default=100, help="tell so many to another agent")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    asked = parser.parse_args()
    with home_of(asked.corpus, asked.home) as laid_out:
        before = measure(opened(laid_out, asked.also))["figures"]
        told = Counter(tell(asked.sessions, random.Random(asked.seed)))
        after = measure(opened(laid_out, asked.also))["figures"]
    show(before, after, told)
    if asked.json:
        asked.json.write_text(json.dumps({"told": told, "before": before, "after": after}, indent=1), encoding="utf-8")


def tell(count: int, chance: random.Random) -> Iterator[str]:
    """Write sessions as ones of other agents; to whom each was told."""
    from smart_fork.agents import READERS
    from smart_fork.agents.copier import NewSession
    from smart_fork.agents.facets import teller_of
    from smart_fork.errors import SmartForkError
    from smart_fork.forking.handover import handover
    from smart_fork.forking.told import write_told
    from smart_fork.processes import Machine, SystemProcesses

    machine = Machine(SystemProcesses(), os.environ)
    logs = sorted((str(log.path), reader) for reader in READERS for log in reader.discover())
    chance.shuffle(logs)
    others, left = cycle(READERS), count
    for path, reader in logs:
        session = reader.read(Path(path)).session
        if not left or not session.cwd or not any(turn.prompt for turn in session.turns):
            continue
        for other in (next(others) for _ in READERS.names):
            if other.name == reader.name:
                continue
            becomes = NewSession(str(uuid.UUID(int=chance.getrandbits(128), version=4)), Path(session.cwd), _now())
            try:
                teller_of(other.name)
                write_told(other, handover(session, len(session.turns) - 1, other.name), session, becomes, machine)
            except SmartForkError as error:
                print(f"not told to {other.name}: {error.message}"[:100], file=sys.stderr)
                continue
            left -= 1
            yield other.name
            break


def _now() -> datetime:
    return datetime.now()  # noqa: DTZ005 - files may be named by local time


def show(before: dict[str, Any], after: dict[str, Any], told: Counter[str]) -> None:
    """The rates of both, and how far they are from each other."""
    table = Table("", *RATES, *(f"{name} mixed" for name in RATES), "furthest")
    for way, kinds in before.items():
        rates = [kinds["all"][name] for name in RATES]
        mixed = [after[way]["all"][name] for name in RATES]
        furthest = max((one - other for one, other in zip(rates, mixed, strict=True)), key=abs)
        kept = "" if abs(furthest) <= GOAL else "  missed"
        table.add_row(way, *(f"{one:.3f}" for one in (*rates, *mixed)), f"{-furthest:+.3f}{kept}")
    Console(width=110).print(table)
    print(f"told to: {', '.join(f'{name} {number}' for name, number in told.most_common())}; goal: within {GOAL}")


if __name__ == "__main__":
    main()
