"""How often what ended an error is known when the error comes again, on histories played in order.

    python -m benchmarks.errors SOURCE... [--read FILE] [--json FILE]

A source is a repository with a branch ``entire/checkpoints/v1``, or a folder that a corpus was laid out in, with a
`home` below. Nothing is downloaded, and sources are only read. Each failed command of each session asks the index with
only those sessions that ended before its own began:

- a *repeated* error: an earlier session met at least half of its own lines; how many are answered unasked, and how many
  are right by the logs: the same line, and never again in that session after what is said to have ended it;
- *confirmed*: the session that asks later did one of the things that it would have been told;
- an error that never came before: any answer is wrong;
- the time of a question, alone and beside two busy loops.

`--read` writes each answer with the error for a person to judge. Other people's text: keep it out of the project.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import shutil
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from .which_session.clone import Clone
from .which_session.play import Stage, at_home
from .which_session.transcripts import transcripts

_DIGITS = re.compile(r"\d+")
_SHELLS = {"Bash", "shell", "shell_command", "exec_command", "local_shell", "container.exec"}


class Ran(NamedTuple):
    """A call in a session: what it did as the index has it, the command, what came back, if it failed, and the call as
    the log has it.
    """

    action: str
    command: str
    output: str
    failed: bool
    used: Any


class Case(NamedTuple):
    """A failed command: its session, and its place among the calls."""

    session: Any
    place: int
    lines: Sequence[str]


@contextmanager
def _watched(calls: list[tuple[Any, Any]]) -> Iterator[None]:
    """Note what readers read of calls and results."""
    from indexer.transcripts.doings import Doings

    made, given = Doings.call, Doings.result
    known: dict[str, Any] = {}

    def call(self: Any, one: Any, **how: Any) -> Any:
        known[one.id] = (one, done := made(self, one, **how))
        return done

    def result(self: Any, one: Any) -> Any:
        done = given(self, one)
        if one.id in known:
            calls.append((known[one.id], (one, done)))
        return done

    Doings.call, Doings.result = call, result  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        Doings.call, Doings.result = made, given  # type: ignore[method-assign]


def ran_calls() -> Iterator[tuple[Any, list[Ran]]]:
    """Each session with its calls."""
    from indexer.transcripts.actions import status_and_body, succeeded
    from indexer.transcripts.commands import command_of
    from indexer.transcripts.model import Proof
    from smart_fork.agents.readers import READERS

    for reader in READERS:
        not_run = getattr(getattr(reader, "tree", None), "not_run", ()) or ()
        for file in reader.discover():
            calls: list[tuple[Any, Any]] = []
            with _watched(calls):
                session = reader.read(file.path).session
            if session is None:
                continue
            ran = []
            for (used, call), (back, result) in calls:
                shell = used.name in _SHELLS and isinstance(used.given, dict) and not call.ours
                sure = succeeded(back.output, said=not back.failed, not_run=not_run) is not None
                failed = shell and ((back.failed and sure) or result.proof is Proof.FAILED)
                line = command_of(used.given) if shell else ""
                ran.append(Ran(call.action, line, status_and_body(back.output)[1], failed, used))
            yield session, ran


class Earlier:
    """A store that has only the errors of sessions that ended before a time, and not of one family."""

    def __init__(self, store: Any, until: str, root: str) -> None:
        self._store, self._until, self._root = store, until, root

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def errors(self, lines: Any, scope: Any) -> Any:
        found = self._store.errors(lines, scope)
        rows = self._store.sessions(found)
        return {
            row: errors
            for row, errors in found.items()
            if rows[row].last_activity < self._until and rows[row].root_id != self._root
        }


class Asking:
    """An index of the sessions of a home, and the questions to it."""

    def __init__(self) -> None:
        from indexer.changes import Report, changed_logs
        from indexer.files import index_db, private_dir, state_home
        from indexer.pipeline import read_logs
        from indexer.store.sqlite import SqliteStore
        from smart_fork.agents.readers import READERS

        private_dir(state_home())
        self.store, report = SqliteStore(index_db()), Report()
        read_logs(self.store, READERS, changed_logs(self.store, READERS, report), report)
        self.sessions = {(one.agent, one.session_id): (one, ran) for one, ran in ran_calls()}
        self.key = bytes.fromhex(self.store.meta("key"))

    def cases(self) -> Iterator[Case]:
        """The failed commands whose output has lines of its own, the oldest first."""
        from indexer.transcripts.error_lines import Commands, telling

        for session, ran in sorted(self.sessions.values(), key=lambda both: both[0].started):
            for place, one in enumerate(ran):
                if one.failed and Commands.of(one.command) and (lines := telling(one.output)):
                    yield Case(session, place, lines)

    def scope(self, case: Case) -> Any:
        from indexer.project import project_of
        from smart_fork.agents.readers import READERS

        row = self.store.session(case.session.agent, case.session.session_id)
        return row and self.store.scope(project_of(Path(row.resolved_cwd)), READERS.names, automated=True)

    def earlier(self, case: Case) -> Earlier:
        return Earlier(self.store, case.session.started, case.session.root_id)

    def answer(self, case: Case, output: str) -> Any:
        """What would be told; `None` if nothing."""
        from smart_fork.finding.errors import LEAST, endings
        from smart_fork.finding.query import Query
        from smart_fork.finding.request import DEFAULT_LIMIT

        query = Query("", self.scope(case), DEFAULT_LIMIT)
        found = endings(output, self.earlier(case), query).ended
        return found[0] if found and found[0].signs.chance() >= LEAST else None

    def met(self, case: Case) -> tuple[int, bool]:
        """How many of an error's own lines one earlier session met at most, in percent, and if one ended any."""
        from indexer.outcome import Fate
        from indexer.transcripts.error_lines import hashed

        found = self.earlier(case).errors(hashed(case.lines, self.key), self.scope(case)).values()
        harmless = {one.line for errors in found for one in errors if one.fate is Fate.HARMLESS}
        own = set(hashed(case.lines, self.key)) - harmless
        most = max((len({one.line for one in errors} & own) for errors in found), default=0)
        return (100 * most // len(own) if own else 0), any(one.by for errors in found for one in errors)

    def is_right(self, case: Case, answer: Any) -> bool:
        """Whether the answering session met one of the same lines, digits aside, and not again after what ended it."""
        _, theirs = self.sessions[answer.row.agent, answer.row.session_id]
        _, ours = self.sessions[case.session.agent, case.session.session_id]
        asked = set(map(_bare, ours[case.place].output.splitlines()))
        last = max((at for at, one in enumerate(theirs) if _did(one, answer)), default=-1)
        for at in range(last - 1, -1, -1):
            if theirs[at].failed and (same := _telling(theirs[at].output) & asked):
                return not any(one.failed and same & _telling(one.output) for one in theirs[last + 1 :])
        return False

    def is_confirmed(self, case: Case, answer: Any) -> bool:
        """Whether the session that asks did later what it would have been told."""
        _, ours = self.sessions[case.session.agent, case.session.session_id]
        return any(_did(one, answer) for one in ours[case.place + 1 :])


def _bare(line: str) -> str:
    return _DIGITS.sub("0", line.strip())


def _telling(output: str) -> set[str]:
    from indexer.transcripts.error_lines import telling

    return {_bare(line) for line in output.splitlines() if telling(line)}


def _did(one: Ran, answer: Any) -> bool:
    return any(one.action.endswith(action.partition(" ")[2]) for action in answer.by if action.partition(" ")[2])


def _laid_out(source: Path, folder: Path) -> Path:
    """The home with the sessions of a source."""
    if (source / "home").is_dir():
        return source / "home"
    clone = Clone(source)
    stage = Stage(clone, transcripts(clone), folder)
    stage.end()
    return stage.home


def measured(source: Path, folder: Path, read: list[str]) -> dict[str, Any]:
    """The figures of one source."""
    with at_home(_laid_out(source, folder), folder / "state"):
        asking = Asking()
        cases = [one for one in asking.cases() if asking.scope(one)]
        counts, questions = Counter[str](), list[Callable[[], Any]]()
        for case in cases:
            output = asking.sessions[case.session.agent, case.session.session_id][1][case.place].output
            answer, (part, ended) = asking.answer(case, output), asking.met(case)
            kind = "repeated" if part >= 50 else "partly met" if part else "new"
            counts[kind] += 1
            counts[f"{kind}, ended before"] += ended
            counts[f"{kind}, answered"] += answer is not None
            questions.append(partial(asking.answer, case, output))
            if answer is not None:
                counts[f"{kind}, right"] += (right := asking.is_right(case, answer))
                counts[f"{kind}, confirmed"] += asking.is_confirmed(case, answer)
                said = f"{answer.row.session_id[:8]} {answer.signs}: {'; '.join(answer.by)}"
                read.append(f"{kind} {right} {case.session.session_id[:8]}\n{output[-1500:]}\n=> {said}\n{'=' * 100}\n")
        return {
            "failed commands with lines of their own": len(cases),
            **dict(sorted(counts.items())),
            "milliseconds": _times(questions),
            "milliseconds beside two busy loops": _busy(questions),
        }


def _times(questions: Sequence[Callable[[], Any]]) -> dict[str, float]:
    wall, used = [], []
    for ask in questions:
        began = time.perf_counter(), time.process_time()
        ask()
        wall.append(1000 * (time.perf_counter() - began[0]))
        used.append(1000 * (time.process_time() - began[1]))
    return {
        f"{name}, {which}": round(of(sorted(figures)), 2)
        for name, figures in (("wall", wall), ("processor", used))
        for which, of in (("median", statistics.median), ("95th percentile", _ninety_fifth))
        if figures
    }


def _ninety_fifth(figures: Sequence[float]) -> float:
    return figures[len(figures) * 95 // 100]


def _busy(questions: Sequence[Callable[[], Any]]) -> dict[str, float]:
    loops = [multiprocessing.Process(target=_spin, daemon=True) for _ in range(2)]
    for one in loops:
        one.start()
    try:
        return _times(questions)
    finally:
        for one in loops:
            one.kill()


def _spin() -> None:
    while True:
        pass


def main() -> None:
    """Print the figures of each source."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.errors", description=__doc__.split("\n")[0])
    parser.add_argument("sources", nargs="*", type=Path)
    parser.add_argument("--read", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    if not given.sources:
        print("skipped: no source was given")
    figures: dict[str, Any] = {}
    read: list[str] = []
    for source in given.sources:
        if not (source / "home").is_dir() and not Clone(source).checkpoints_ref:
            figures[source.name] = {"skipped": f"{source} has neither a home nor a branch of checkpoints"}
        else:
            folder = Path(tempfile.mkdtemp(prefix="errors-"))
            try:
                figures[source.name] = measured(source, folder.resolve(), read)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
        print(f"{source.name}:")
        for name, figure in figures[source.name].items():
            print(f"  {name}: {figure}")
    if given.read:
        given.read.write_text("".join(read))
    if given.json:
        given.json.write_text(json.dumps(figures, indent=2) + "\n")


if __name__ == "__main__":
    main()
