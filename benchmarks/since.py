"""Time of a change summary of a session in a large repository, beside a bare ``git``.

    python benchmarks/bench.py since [--files 50000] [--commits 100000] [--rounds 15] [--json FILE]

It makes a repository of so many files and commits with ``git fast-import``, checks it out, and asks in it what is new
since a session that read 40 files: told by git's own record, by the commit in its log, and by its branch's history; a
little back and far back; with files that were renamed; in a worktree to be made; and with no change at all. Beside it,
in the same rounds, what git takes by itself for ``git status``, ``git status --untracked-files=no`` and
``git diff HEAD``. Times are medians; on a machine that does other things as well the processor's time says more, and
is given in parts of that of ``git status``.
"""

from __future__ import annotations

import os
import resource
import statistics
import subprocess
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from _frame import Part, Table

from smart_fork.forking.changes_since import ChangesSince, SessionKnowledge, find_changes
from smart_fork.system.processes import Processes

START, APART = 1_600_000_000, 100
KNOWN = 40
WHO = "A <a@example.org>"
PROCESSES = Processes()


def options(parser: ArgumentParser) -> None:
    """Add the options."""
    parser.add_argument("--files", type=int, default=50_000)
    parser.add_argument("--commits", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=15)


def measure(asked: Namespace, folder: Path) -> dict[str, Any]:
    """Make the repository, and ask in it."""
    os.environ |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    figures = measured(made(folder, asked.files, asked.commits), asked.commits, asked.rounds)
    return {"files": asked.files, "commits": asked.commits, "load": os.getloadavg()[1], **figures}


def name_of(number: int) -> str:
    """The name of a file; about fifty lie in a folder."""
    return f"d{number % 37}/e{number // 37 % 29}/f{number}.py"


def made(folder: Path, files: int, commits: int) -> Path:
    """The repository, checked out, with a record of what was checked out when."""
    top = folder / "repository"
    top.mkdir()
    git(top, "init", "-q", "-b", "main")
    subprocess.run(["git", "fast-import", "--quiet"], cwd=top, input=b"".join(history(files, commits)), check=True)
    git(top, "reset", "-q", "--hard")
    names = git(top, "rev-list", "--reverse", "main").split()
    git(top, "gc", "--quiet")
    lines = (
        f"{before} {after} {WHO} {START + number * APART} +0000\tcommit: x\n"
        for number, (before, after) in enumerate(zip(["0" * 40, *names], names, strict=False))
    )
    (top / ".git/logs/HEAD").write_text("".join(lines))
    for number in range(0, KNOWN, 8):
        with (top / name_of(number)).open("a") as file:
            file.write("uncommitted\n")
    return top


def history(files: int, commits: int) -> Iterator[bytes]:
    """The stream of ``git fast-import``: all files, then a change of one in each commit, and now and then a rename."""
    for number in range(commits):
        yield f"commit refs/heads/main\ncommitter {WHO} {START + number * APART} +0000\ndata 1\nx\n".encode()
        changed = range(files) if number == 0 else [number * 7 % files]
        for one in changed:
            text = f"# {one}\n" + "line\n" * 30 + f"# {number}\n"
            yield f"M 100644 inline {name_of(one)}\ndata {len(text)}\n{text}\n".encode()
        if number == commits - 100:
            yield f"R {name_of(5)} moved/f5.py\n".encode()


def git(top: Path, *words: str) -> str:
    """Run git, and return its output."""
    return subprocess.run(["git", *words], cwd=top, check=True, capture_output=True, text=True).stdout


def processor_seconds() -> float:
    """Return the processor time of this process and of the programs that it has run."""
    return sum(sum(resource.getrusage(who)[:2]) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))


def measured(top: Path, commits: int, rounds: int) -> dict[str, Any]:
    """Medians in milliseconds, all ways in each round, so that what else runs meets them alike."""
    names = git(top, "rev-list", "--reverse", "main").split()

    def since(back: int, how: str, *, first: int = 0, committed: bool = False) -> Callable[[], ChangesSince | None]:
        moment = float(START + (commits - back) * APART - 50)
        edits = {str(top / name_of(number)): 1 for number in range(first, first + KNOWN)}
        where = {"commit": names[commits - back - 1]} if how == "log" else {}
        then = SessionKnowledge(edits, moment, moment - 10, str(top), branch="main", here=how == "record", **where)
        return lambda: find_changes(top, then, PROCESSES, committed=committed)

    far = commits // 2
    ways: dict[str, Callable[[], object]] = {
        "by the record, 1,000 commits back": since(1000, "record"),
        "by the record, half of all commits back": since(far, "record"),
        "by the record, nothing renamed": since(1000, "record", first=6),
        "by the record, in a worktree to be made": since(1000, "record", committed=True),
        "by the record, nothing has changed": since(1, "record", first=KNOWN),
        "by the log, 1,000 commits back": since(1000, "log"),
        "by the log, half of all commits back": since(far, "log"),
        "by its branch, 1,000 commits back": since(1000, "branch"),
        "by its branch, half of all commits back": since(far, "branch"),
        "git status": lambda: git(top, "status", "--porcelain"),
        "git status --untracked-files=no": lambda: git(top, "status", "--porcelain", "--untracked-files=no"),
        "git diff HEAD": lambda: git(top, "diff", "HEAD"),
    }
    times: dict[str, list[float]] = {name: [] for name in ways}
    worked: dict[str, list[float]] = {name: [] for name in ways}
    told = {}
    for _ in range(rounds):
        for name, way in ways.items():
            began, before = time.perf_counter(), processor_seconds()
            found = way()
            times[name].append((time.perf_counter() - began) * 1000)
            worked[name].append((processor_seconds() - before) * 1000)
            told[name] = len(found.files) if isinstance(found, ChangesSince) else 0
    base = statistics.median(worked["git status"])
    return {
        "ways": {
            name: {
                "ms": statistics.median(taken), "least_ms": min(taken), "cpu_ms": statistics.median(worked[name]),
                "of_git_status": statistics.median(worked[name]) / base, "files_told": told[name],
            }
            for name, taken in times.items()
        }
    }  # fmt: skip


def tables(figures: dict[str, Any]) -> Iterator[Part]:
    """Yield the note of what has changed, beside git itself."""
    ways = figures["ways"].items()
    rows = [(name, f"{one['cpu_ms']:.0f} ms", f"{one['of_git_status']:.2f}") for name, one in ways]
    yield (
        f"{figures['files']:,} files, {figures['commits']:,} commits, a session that knows {KNOWN} files;"
        " processor time;\n"
        "`python benchmarks/bench.py since`.\n"
        f"The machine's load average was {figures['load']:.0f} on {os.cpu_count()} cores."
    )
    yield Table(("", "processor", "of `git status`"), rows)
