"""Plays history in order: when a session asks, home and clone hold only what was there then."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from .clone import Clone
from .labels import Question
from .transcripts import Log, Transcript, log_of

_SEPARATE = ("SMART_FORK_", "CLAUDE", "CODEX_", "GEMINI_", "COPILOT_", "QWEN_", "OPENCODE_", "XDG_", "GIT_")


@dataclass(frozen=True)
class Moment:
    """A question, and what was there when it was asked: a home with the agents' logs, the repository, and which
    sessions have a log, with the time of its last change.
    """

    question: Question
    home: Path
    clone: Path
    present: Mapping[str, float]


class Stage:
    """A home and a repository in a folder, in which time only goes forward."""

    def __init__(self, source: Clone, known: Mapping[str, Transcript], folder: Path) -> None:
        self.source, self.known, self.folder = source, known, folder
        self.home, self.state, self.clone = folder / "home", folder / "state", folder / source.name
        self._lines: dict[str, int] = {}
        self._sizes: dict[Path, int] = {}

    def moments(self, questions: Sequence[Question]) -> Iterator[Moment]:
        """Yield each question's moment, in order, as long as it lasts."""
        for old in (self.home, self.state):  # what an earlier run left is later than the first question
            shutil.rmtree(old, ignore_errors=True)
        self.begin()
        for question in sorted(questions, key=lambda one: (one.time, one.id)):
            yield self.at(question)

    def end(self) -> Moment:
        """Bring home and repository to the end of the history."""
        if not self.home.exists():
            self.begin()
        last = max(one.lines[-1].time for one in self.known.values()) + 1
        head = self.source.head
        return self.at(Question("", "", "", "", self.source.branch, last, head, head, {}, {}, ()))

    def at(self, question: Question) -> Moment:
        """Bring home and repository to when a question was asked."""
        self.check_out(question)
        present = self.present(question)
        for session in present:
            lines = len(self.known[session].until(question.time))
            if self._lines.get(session) != lines and (
                log := log_of(self.known[session], question.time, self.home, self.clone)
            ):
                self._write(log)
                self._lines[session] = lines
        return Moment(question, self.home, self.clone, present)

    def present(self, question: Question) -> dict[str, float]:
        """Return the sessions that had a log when a question was asked, and when each was changed last."""
        before = (one for one in self.known.values() if one.prompts[0].time < question.time)
        return {one.session: one.until(question.time)[-1].time for one in before}

    def check_out(self, question: Question) -> None:
        """Put the repository on the question's branch, at its commit, with a clean working tree.

        Files whose blob is absent are left out, and git is told so.
        """
        main = self.source.branch
        branch = question.branch if self._git("check-ref-format", "--branch", question.branch) else main
        for name, commit in ((main, question.main), (branch, question.head)):
            if commit:
                self._git("update-ref", f"refs/heads/{name}", commit)
        self._git("symbolic-ref", "HEAD", f"refs/heads/{branch}")
        if question.head and not self._git("read-tree", "--reset", "-u", question.head):
            self._git("read-tree", "--reset", question.head)
            self._git("checkout-index", "--all", "--force", "--quiet")
            absent = Clone(self.clone).git("ls-files", "--deleted", "-z")
            Clone(self.clone).run("update-index", "--skip-worktree", "-z", "--stdin", given=absent)
        self._git("clean", "-ffdxq")

    def begin(self) -> None:
        """Make home and repository, if they are missing."""
        self.home.mkdir(parents=True, exist_ok=True)
        if not (self.clone / ".git").exists():
            self._git("init", "--quiet", str(self.clone), where=self.folder)
        objects = self.source.git("rev-parse", "--path-format=absolute", "--git-path", "objects")
        (self.clone / ".git/objects/info/alternates").write_bytes(objects)
        for setting in ("core.hooksPath=/dev/null", "core.symlinks=false", "gc.auto=0"):
            self._git("config", *setting.split("=", 1))

    def _git(self, *arguments: str, where: Path | None = None) -> bool:
        done = Clone(where or self.clone).run(*arguments)
        return done.returncode == 0

    def _write(self, log: Log) -> None:
        """Write what a log has more than before, as its agent did."""
        had = self._sizes.get(log.path, 0)
        if had == len(log.content):
            return
        if had and log.path.suffix == ".jsonl" and log.path.stat().st_nlink == 1:
            with log.path.open("ab") as file:
                file.write(log.content[had:])
            os.utime(log.path, (log.changed, log.changed))
        else:
            log.write()
        self._sizes[log.path] = len(log.content)


@contextmanager
def at_home(home: Path, state: Path) -> Iterator[None]:
    """Make a folder this process's home, and another the one of smart-fork's state; nothing else of it is inherited."""
    before = dict(os.environ)
    for name in [one for one in os.environ if one.startswith(_SEPARATE)]:
        del os.environ[name]
    own = {"SMART_FORK_HOME": str(state), "SMART_FORK_CHECKPOINTS": "false"}  # the answers are in the clone
    os.environ |= {"HOME": str(home), "GIT_NO_LAZY_FETCH": "1"} | own
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def keep(stage: Stage, question: Question) -> Path:
    """Keep home and index as they are now, and return the folder. The logs are links: the index knows their inodes."""
    folder = stage.folder / "kept" / question.session
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(stage.home, folder / stage.home.name, copy_function=os.link)
    shutil.copytree(stage.state, folder / stage.state.name)
    return folder


@contextmanager
def again(stage: Stage, question: Question) -> Iterator[Moment]:
    """Put a kept home and index back in their place, as long as it lasts: paths in the index stay true."""
    folder, moved = stage.folder / "kept" / question.session, []
    stage.check_out(question)
    for part in (stage.home, stage.state):
        aside = part.with_name(f"{part.name}-aside")
        part.rename(aside)
        (folder / part.name).rename(part)
        moved.append((part, aside))
    try:
        yield Moment(question, stage.home, stage.clone, stage.present(question))
    finally:
        for part, aside in moved:
            part.rename(folder / part.name)
            aside.rename(part)
