"""Other tools that a script can ask, as further rows: each in a home of its own, with a copy of the same logs."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from benchmarks._peers import (
    ANSWER_SECONDS,
    INDEX_SECONDS,
    OURS_HYBRID,
    OURS_WORDS,
    PATIENCE,
    PEERS,
    Peer,
    PeerFailed,
    Place,
    Question,
    installed,
    run,
)

from .asked import Tool
from .play import Moment

#: Tools that are rows of their own already.
HERE = frozenset({OURS_WORDS.name, OURS_HYBRID.name, "ripgrep, most words", "SQLite FTS5, raw logs"})
#: Tools that are compared elsewhere and cannot be had by the clients of PyPI, npm or Debian.
ABSENT: Mapping[str, str] = {
    "cass": "a Rust program: source for a nightly compiler, binaries outside these registries",
    "deja": "a Go program: its npm package was not found, binaries are outside these registries",
    "aichat": "its search is a Rust program of its own, outside these registries",
}


class Asker:
    """A tool in a home of its own, empty at first. It is given up once it has failed a few times in a row."""

    def __init__(self, peer: Peer, program: str, folder: Path) -> None:
        self._peer, self._program = peer, program
        shutil.rmtree(folder, ignore_errors=True)  # what an earlier run left is later than the first question
        self._place = Place(folder / "home", folder / "state")
        self._place.state.mkdir(parents=True, exist_ok=True)
        self._failed = 0

    @property
    def given_up(self) -> bool:
        """Say whether it is not asked any more."""
        return self._failed >= PATIENCE

    def ask(self, moment: Moment) -> list[str]:
        """Return the candidates that it names, best first; none where it fails."""
        if self.given_up:
            return []
        try:
            found = self._found(moment)
        except PeerFailed as error:
            self._failed += 1
            print(f"{self._peer.name}: {error}", file=sys.stderr)
            return []
        self._failed = 0
        return found

    def stop(self) -> None:
        """End what it leaves running."""
        if self._peer.stop:
            with suppress(PeerFailed):
                self._run(list(self._peer.stop), ANSWER_SECONDS)

    def _found(self, moment: Moment) -> list[str]:
        copy(moment.home, self._place.home)
        if self._peer.index:
            self._run(self._peer.index(self._place), INDEX_SECONDS)
        question = Question(moment.question.text, str(moment.clone) if self._peer.scoped else None)
        shown = self._peer.read(self._run(self._peer.ask(question, self._place), ANSWER_SECONDS))
        whole = (next((one for one in moment.present if one.startswith(name)), "") for name in shown if name)
        return list(dict.fromkeys(one for one in whole if one))

    def _run(self, arguments: list[str], seconds: float) -> str:
        kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "TMPDIR")}
        environment = kept | {"HOME": str(self._place.home), "PYTHONUTF8": "1"}
        return run([self._program, *arguments], environment, self._place.state, seconds)


@contextmanager
def peers(programs: Path | None, folder: Path, *, install: bool = False) -> Iterator[tuple[list[Tool], dict[str, str]]]:
    """Yield the tools that are in `programs`, and why others are not asked; the latter is complete at the end."""
    tools: list[Tool] = []
    absent: dict[str, str] = {}
    if programs is None:
        yield tools, absent
        return
    absent |= ABSENT
    askers = {}
    for peer in (one for one in PEERS if one.name not in HERE):
        try:
            program = installed(peer, programs.resolve(), missing=install)
        except PeerFailed as error:
            print(f"{peer.name}: {error}", file=sys.stderr)
            program = None
        if program is None:
            absent[peer.name] = f"not installed ({peer.package})"
            continue
        askers[peer.name] = Asker(peer, program, folder / peer.program)
        tools.append(Tool(peer.name, askers[peer.name].ask))
    try:
        yield tools, absent
    finally:
        for name, asker in askers.items():
            asker.stop()
            if asker.given_up:
                absent[name] = f"failed {PATIENCE} times in a row"


def copy(home: Path, into: Path) -> None:
    """Bring a copy of the logs up to date; what a tool writes beside them stays."""
    for log in home.rglob("*"):
        if not log.is_file():
            continue
        there, known = into / log.relative_to(home), log.stat()
        if not there.exists() or (there.stat().st_size, there.stat().st_mtime) != (known.st_size, known.st_mtime):
            there.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(log, there)
