"""How often a line of code leads to the session that wrote it, on histories whose commits name their sessions.

    python -m benchmarks.authorship REPOSITORY... [--lines N] [--seed N] [--json FILE]

It needs folders with git repositories that have a branch ``entire/checkpoints/v1``; it downloads nothing and only reads
them. Each session is put into a home as its agent keeps it, and indexed. Then lines of the last commit are drawn and
asked about one by one, *without* the trailers:

- lines whose commit names a session that edited the file: how many are answered, and how many of these rightly;
- the same lines while the sessions that wrote them are not there: any answer is wrong;
- lines by bots, and by people none of whose commits names a session: any answer is wrong;
- the time of a question, beside `git blame -w -M -C` of the same line.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from smart_fork.repository.git import Repository

from .which_session.clone import Clone
from .which_session.play import at_home
from .which_session.transcripts import log_of, transcripts

_BLAMED = re.compile(r"([0-9a-f]{40}) \d+ (\d+)(?: \d+)?$")


class Drawn(NamedTuple):
    """A line of a file, and the sessions that its commit names for that file."""

    name: str
    number: int
    sessions: frozenset[str]


class Labels(NamedTuple):
    """Lines whose session is known, and lines of people and bots without sessions."""

    known: Sequence[Drawn]
    others: Sequence[Drawn]


def labels(clone: Clone, sessions: frozenset[str]) -> Labels:
    """Blame every file of the last commit. Files that git cannot blame are left out."""
    parts = defaultdict(list)
    for part in clone.parts:
        parts[part.checkpoint].append(part)
    commits = {one.id: one for one in clone.commits}
    who = dict(line.split(" ", 1) for line in clone.lines("log", "--format=%H %ae", "HEAD"))
    names_sessions = {who[one] for one in commits if one in who}
    known, others = [], []
    for name in clone.git("ls-tree", "-r", "-z", "--name-only", "HEAD").decode().split("\0")[:-1]:
        path = ""
        said = clone.git("blame", "-w", "-M", "-C", "--line-porcelain", "HEAD", "--", name)
        for line in said.decode("utf-8", "replace").split("\n"):
            if found := _BLAMED.match(line):
                commit, number = found[1], int(found[2])
            elif line.startswith("filename "):
                path = line[9:]
            elif line.startswith("\t"):
                named = commits[commit].checkpoints if commit in commits else ()
                of = frozenset(one.session for key in named for one in parts[key] if path in one.files) & sessions
                if of:
                    known.append(Drawn(name, number, of))
                elif commit not in commits and who.get(commit) not in names_sessions:
                    others.append(Drawn(name, number, of))
    return Labels(known, others)


class Asking:
    """An index of a clone's sessions, and the questions to it."""

    def __init__(self, folder: Path) -> None:
        from indexer.changes import Report, changed_logs
        from indexer.files import index_db, private_dir, state_home
        from indexer.pipeline import read_logs
        from indexer.project import project_of
        from indexer.store.sqlite import SqliteStore
        from smart_fork.agents.readers import READERS
        from smart_fork.system.processes import Processes

        private_dir(state_home())
        self.store, report = SqliteStore(index_db()), Report()
        read_logs(self.store, READERS, changed_logs(self.store, READERS, report), report)
        self.there = Repository.open(folder, Processes())
        self.scope = self.store.scope(project_of(folder), READERS.names, automated=True)

    def ask(self, line: Drawn) -> str:
        """Return the id of the session that wrote a line; empty if none is known."""
        from smart_fork.finding.authorship import Range, blamed
        from smart_fork.finding.by_code import writers_of

        lines = blamed(self.there, Range(line.name, line.number, line.number), "HEAD")
        found = writers_of(lines, self.store, self.scope, self.there, trailers=False)
        writer = next(writer for one, writer in zip(lines, found, strict=True) if one.asked)
        return self.store.sessions([writer.session])[writer.session].session_id if writer else ""

    def blame(self, line: Drawn) -> None:
        """Let git blame the line alone."""
        where = f"-L{line.number},{line.number}"
        self.there.git("blame", "-w", "-M", "-C", "--porcelain", where, "HEAD", "--", line.name)

    def without(self, sessions: frozenset[str]) -> Asking:
        """Return the same without these sessions."""
        other: Asking = object.__new__(Asking)
        other.there, other.scope, other.store = self.there, self.scope, _Without(self.store, sessions)
        return other


class _Without:
    """A store that does not have the lines of some sessions."""

    def __init__(self, store: Any, sessions: frozenset[str]) -> None:
        self._store, self._sessions = store, sessions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def authored(self, names: Any, scope: Any) -> Mapping[int, Any]:
        found = self._store.authored(names, scope)
        ids = {row: one.session_id for row, one in self._store.sessions(found).items()}
        return {row: edits for row, edits in found.items() if ids[row] not in self._sessions}


def measured(source: Path, folder: Path, lines: int, seed: int) -> dict[str, Any]:
    """The figures of one repository."""
    clone, here = Clone(source), folder / source.name.removesuffix(".git")
    known = transcripts(clone)
    if not known:
        return {"skipped": "no session's transcript is there"}
    given = ["git", "clone", "--quiet", "--no-checkout", str(source.resolve()), str(here)]
    subprocess.run(given, check=True, env=dict(clone.environment))
    home = folder / "home"
    for one in known.values():
        if (log := log_of(one, float("inf"), home, here)) is not None:
            log.path.parent.mkdir(parents=True, exist_ok=True)
            log.path.write_bytes(log.content)
            os.utime(log.path, (log.changed, log.changed))
    of = labels(clone, frozenset(known))
    draw = random.Random(seed)
    with at_home(home, folder / "state"):
        return _asked(Asking(here), of, lines, draw)


def _asked(asking: Asking, of: Labels, lines: int, draw: random.Random) -> dict[str, Any]:
    counts, times, ratios = Counter[str](), [0.0, 0.0], []
    drawn = draw.sample(of.known, min(lines, len(of.known)))
    for line in drawn:
        began = time.perf_counter()
        answer = asking.ask(line)
        asked = time.perf_counter()
        asking.blame(line)
        blamed = time.perf_counter()
        times[0] += asked - began
        times[1] += blamed - asked
        ratios.append((asked - began) / (blamed - asked))
        counts["answered"] += bool(answer)
        counts["right"] += answer in line.sessions
        counts["while away"] += bool(asking.without(line.sessions).ask(line))
    others = draw.sample(of.others, min(lines, len(of.others)))
    wrong = sum(bool(asking.ask(line)) for line in others)
    return {
        "lines with a session": len(of.known),
        "asked": len(drawn),
        "answered": _share(counts["answered"], len(drawn)),
        "right of answered": _share(counts["right"], counts["answered"]),
        "answered while its session is away": counts["while away"],
        "lines without a session asked": len(others),
        "lines without a session answered": wrong,
        "time / git blame": round(times[0] / times[1], 2) if times[1] else None,
        "time / git blame, median": round(statistics.median(ratios), 2) if ratios else None,
    }


def _share(part: int, whole: int) -> float | None:
    return round(part / whole, 3) if whole else None


def main() -> None:
    """Print the figures of each repository."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.authorship", description=__doc__.split("\n")[0])
    parser.add_argument("repositories", nargs="*", type=Path)
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not given.repositories:
        print("skipped: no repository was given")
    figures: dict[str, Any] = {}
    for source in given.repositories:
        if not Clone(source).checkpoints_ref:
            figures[source.name] = {"skipped": f"{source} is no repository with a branch of checkpoints"}
        else:
            folder = Path(tempfile.mkdtemp(prefix="authorship-"))
            try:
                figures[source.name] = measured(source, folder.resolve(), given.lines, given.seed)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        print(f"{source.name}:", file=sys.stderr)
        for name, figure in figures[source.name].items():
            print(f"  {name}: {figure}")
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
