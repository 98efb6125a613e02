"""Made-up sessions of both agents in a home of their own, to see the main job done without any history.

`script` says what a session is made of, `parcel` and `harbor` are the sessions about two repositories, and `claude_log`
and `codex_log` write them as the agents do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import orjson

from indexer.shapes import dataclass
from smart_fork.agents.claude.slugs import slug
from smart_fork.demo import harbor, parcel
from smart_fork.demo.claude_log import ClaudeLog, subagent_id
from smart_fork.demo.clock import DemoClock, ordered_id, random_id
from smart_fork.demo.codex_log import CodexLog, ParentMark
from smart_fork.demo.script import Scripted
from smart_fork.errors import ProgramFailed
from smart_fork.processes import SystemProcesses

__all__ = ["DemoHome", "write_demo_home"]

#: Runs git with these arguments in a directory and returns what it printed.
Git = Callable[[Sequence[str], Path], str]

INTENT = "let the downloader retry with backoff when the network is shaky"
ANSWER = parcel.RETRIES
GIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class DemoHome:
    """Where the sessions are, and a search in them: `expected_session_id` answers `intent`, asked in `project`."""

    home: Path
    repositories: tuple[Path, ...]
    intent: str
    expected_session_id: str
    project: Path


def run_git(arguments: Sequence[str], directory: Path) -> str:
    """Run the real git, deaf to the settings of whoever runs the demo.

    Raises:
        ProgramMissing: git is not installed.
        ProgramFailed: git failed.
    """
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    done = SystemProcesses().run(["git", *arguments], cwd=directory, env=environment, timeout=GIT_SECONDS)
    if not done.ok:
        raise ProgramFailed(f"git {arguments[0]} failed: {done.complaint}")
    return done.text


def write_demo_home(
    home: Path, *, now: datetime | None = None, git: Git = run_git, more: Sequence[Scripted] = ()
) -> DemoHome:
    """Write two repositories and the sessions about them below `home`, the last some days before `now`; then `more`.

    The ids are the same every time for Claude Code, and depend on `now` for Codex, whose ids are times.

    Raises:
        ProgramMissing: git is not installed.
        ProgramFailed: git failed.
        OSError: `home` cannot be written to.
    """
    writer = _Writer(home.resolve(), now or datetime.now(UTC), git)
    for content in (parcel, harbor):
        writer.write_repository(content.REPOSITORY)
        for scripted in content.SESSIONS:
            writer.write_session(scripted)
    for scripted in more:
        writer.write_session(scripted)
    return DemoHome(
        writer.home,
        tuple(repository for repository, _ in writer.repositories.values()),
        INTENT,
        writer.ids[ANSWER.name],
        writer.repositories[ANSWER.repository][0],
    )


@dataclass(slots=True)
class _Writer:
    """What has been written so far: repositories with their commits, and by session name the ids and records."""

    home: Path
    now: datetime
    git: Git
    repositories: dict[str, tuple[Path, str]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    tokens: dict[str, int] = field(default_factory=dict)

    def write_repository(self, name: str) -> None:
        folder = self.home / "repos" / name
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "README.md").write_text(f"# {name}\n", encoding="utf-8")
        self.git(["init", "--quiet", "--template="], folder)
        self.git(["symbolic-ref", "HEAD", "refs/heads/main"], folder)
        self.git(["add", "README.md"], folder)
        author = ["-c", "user.name=Demo", "-c", "user.email=demo@example.com"]
        self.git([*author, "commit", "--quiet", "--message", f"Start {name}"], folder)
        self.repositories[name] = (folder, self.git(["rev-parse", "HEAD"], folder))

    def write_session(self, scripted: Scripted) -> None:
        clock = DemoClock(self.now - timedelta(days=scripted.days_ago))
        if scripted.agent == "claude":
            self._write_claude(scripted, clock)
        else:
            self._write_codex(scripted, clock)

    def _write_claude(self, scripted: Scripted, clock: DemoClock) -> None:
        session_id = random_id("demo", scripted.name)
        cwd = str(self.repositories[scripted.repository][0])
        folder = self.home / ".claude" / "projects" / slug(cwd)
        if scripted.subagent:
            agent = subagent_id(scripted)
            records = ClaudeLog(scripted, session_id, cwd, DemoClock(clock.now)).write_subagent(agent)
            _save(folder / session_id / "subagents" / f"agent-{agent}.jsonl", records, clock.now)
        records = ClaudeLog(scripted, session_id, cwd, clock).write(self.records.get(scripted.fork_of, ()))
        _save(folder / f"{session_id}.jsonl", records, clock.now)
        self.ids[scripted.name], self.records[scripted.name] = session_id, records

    def _write_codex(self, scripted: Scripted, clock: DemoClock) -> None:
        start = clock.now
        session_id = ordered_id(start, "demo", scripted.name)
        folder, commit = self.repositories[scripted.repository]
        local = start.astimezone()
        base = None
        if scripted.fork_of:
            before = self.records[scripted.fork_of]
            base = ParentMark(
                self.ids[scripted.fork_of], len(before), len(_lines(before)), self.tokens[scripted.fork_of]
            )
        log = CodexLog(scripted, session_id, str(folder), clock, commit)
        records = log.write(paginated=scripted.name in _PAGINATED, base=base)
        day = self.home / ".codex" / "sessions" / local.strftime("%Y/%m/%d")
        _save(day / f"rollout-{local:%Y-%m-%dT%H-%M-%S}-{session_id}.jsonl", records, clock.now)
        self.ids[scripted.name], self.records[scripted.name] = session_id, records
        self.tokens[scripted.name] = log.tokens


#: Codex sessions that are a fork, or have one: only numbered records can be shared.
_PAGINATED = {
    name for scripted in parcel.SESSIONS if scripted.agent == "codex" for name in (scripted.name, scripted.fork_of)
}


def _lines(records: list[dict[str, Any]]) -> bytes:
    return b"".join(orjson.dumps(record) + b"\n" for record in records)


def _save(path: Path, records: list[dict[str, Any]], changed: datetime) -> None:
    """Write a log that only its owner can read, as the agents do, last changed when its last record was made."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    path.write_bytes(_lines(records))
    os.utime(path, (changed.timestamp(), changed.timestamp()))
