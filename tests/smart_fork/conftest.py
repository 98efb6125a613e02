"""Sessions, repositories, programs and places for the tests of finding and forking."""

from __future__ import annotations

import os
import shutil
import subprocess
import uuid
from pathlib import Path
from shutil import which

import pytest

from indexer.environment import WORKER_ID
from smart_fork.agents.claude.log_files import folder_of
from smart_fork.forking.request import ForkRequest
from smart_fork.forking.results import Forked
from tests.smart_fork.answers import a_fork
from tests.smart_fork.fake_agents import scripted
from tests.smart_fork.finding.scripted_qmd import any_engine, qmd
from tests.smart_fork.forks import SESSION, HastyClock, codex_path, codex_records, said, text, told, write_log
from tests.smart_fork.repositories import INIT, make_repository
from tests.smart_fork.world import shop, world
from tests.support.cases import thorough_except_first
from tests.support.executables import fail_or_skip

__all__ = ["any_engine", "qmd", "scripted", "shop", "world"]  # fixtures, defined beside what they are made of


@pytest.fixture
def repo(home: Path) -> Path:
    """A git repository with one commit."""
    folder = home / "shop"
    folder.mkdir()
    make_repository(folder, INIT, ("add", "."), ("commit", "-q", "-m", "First"), readme="# shop\n")
    return folder


@pytest.fixture
def claude_session(home: Path, repo: Path) -> Path:
    """A session of Claude Code in `repo`: two exchanges, the first with a tool call, beside attachments and an abandoned turn."""
    records = [
        {"type": "mode", "mode": "normal", "sessionId": SESSION},
        said("u1", None, "user", "add retry", cwd=str(repo)),
        {
            "type": "attachment",
            "uuid": "x1",
            "parentUuid": "u1",
            "attachment": {"type": "skill_listing"},
            "sessionId": SESSION,
        },
        said("a1", "x1", "assistant", [{"type": "thinking", "thinking": "hm", "signature": "sig=="}], cwd=str(repo)),
        said("a2", "a1", "assistant", text("I look"), cwd=str(repo)),
        said("a3", "a2", "assistant", [{"type": "tool_use", "id": "t1", "name": "Read", "input": {}}], cwd=str(repo)),
        said("s1", None, "user", "sub-agent", isSidechain=True),
        said("r1", "a3", "user", [{"type": "tool_result", "tool_use_id": "t1", "content": "ok"}], cwd=str(repo)),
        said("a4", "r1", "assistant", text("Retry is there"), cwd=str(repo)),
        said("dead", "a4", "user", "abandoned", cwd=str(repo)),
        said("u2", "a4", "user", "and the docs", cwd=str(repo)),
        said("a5", "u2", "assistant", text("Docs are there"), cwd=str(repo)),
    ]
    return write_log(folder_of(repo) / f"{SESSION}.jsonl", records)


@pytest.fixture
def codex_session(home: Path, repo: Path) -> Path:
    """A session of Codex in `repo`: two finished turns."""
    return write_log(codex_path(home, SESSION), codex_records(SESSION, repo, ["add retry", "and the docs"]))


@pytest.fixture(params=thorough_except_first(["claude", "codex"]))
def any_session(request) -> tuple[str, Path]:
    """An agent, and its session in `repo`."""
    return request.param, request.getfixturevalue(f"{request.param}_session")


@pytest.fixture
def programs(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files named claude and codex, which is PATH's first."""
    folder = home / "bin"
    folder.mkdir(exist_ok=True)
    for name in ("claude", "codex"):
        (folder / name).write_text("#!/bin/sh\nexit 1\n")
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture
def launched(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """What would have been forked."""
    calls: list[tuple] = []

    def fork_session(request: ForkRequest, _engine: object = None) -> Forked:
        calls.append(told(request))
        return a_fork(request.session, new_session_id="new", command="claude", cwd=request.cwd)

    for importer in ("forking.plan", "public"):
        monkeypatch.setattr(f"smart_fork.{importer}.fork_session", fork_session)
    return calls


@pytest.fixture
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """For agents that are only played: they never say that they have taken their prompt."""
    monkeypatch.setattr("smart_fork.system.processes.Clock", HastyClock)


@pytest.fixture
def private_tmux(monkeypatch: pytest.MonkeyPatch):
    """A tmux server of this test's own, ended with it. Call it to run a tmux command."""
    if not which("tmux"):
        fail_or_skip("tmux is not installed")
    socket = f"smart-fork-test-{uuid.uuid4().hex[:12]}"
    monkeypatch.setenv("SMART_FORK_TMUX_SOCKET", socket)
    monkeypatch.delenv("TMUX_TMPDIR")  # a home may be too far down for the name of a socket
    # Its first session keeps it alive, and reads no settings of whoever runs the suite.
    command = ["tmux", "-L", socket, "-f", os.devnull]
    subprocess.run([*command, "new-session", "-d", "-s", "first", "sleep 600"], check=True, capture_output=True)

    def tmux(*words: str) -> str:
        return subprocess.run([*command, *words], check=True, capture_output=True, text=True).stdout

    yield tmux
    subprocess.run([*command, "kill-server"], check=False, capture_output=True)


@pytest.fixture
def marked():
    """Starts a process that bears a worker's mark, and gives its number; they end with the test."""
    started = []

    def start(worker_id: str) -> int:
        started.append(subprocess.Popen(["sleep", "600"], env={**os.environ, WORKER_ID: worker_id}))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture
def posing():
    """Starts a process that is called like an agent's program, and gives its number; they end with the test."""
    started = []

    def start(name: str, cwd: Path | None = None) -> int:
        started.append(subprocess.Popen([name, "600"], executable=shutil.which("sleep"), cwd=cwd))
        return started[-1].pid

    yield start
    for process in started:
        process.kill()
        process.wait()


@pytest.fixture(autouse=True)
def _at_home(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The home of a test is also the one where it has logged in."""
    monkeypatch.setattr("smart_fork.cli.service.unit_settings.login_home", lambda: home)
