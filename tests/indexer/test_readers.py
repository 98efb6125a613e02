"""Logs that children read give the same index as those that are read here; what goes wrong in a child is done here."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from indexer import readers
from indexer.freshness import complete
from indexer.paths import index_db
from indexer.pipeline import Report, changed_logs, read_logs
from indexer.store.sqlite import SqliteStore
from indexer.transcripts.agents import AGENTS
from tests.indexer.written import append, claude_log, claude_records, codex_log, content, lines

LOGS = 12


@pytest.fixture
def children(monkeypatch):
    monkeypatch.setattr(readers, "WORTH_BYTES", 1)
    monkeypatch.setattr(readers, "MOST", 2)
    cores(monkeypatch, 3)


def cores(monkeypatch, number: int, busy: float = 0.0) -> None:
    monkeypatch.setattr(readers.os, "sched_getaffinity", lambda _: set(range(number)), raising=False)
    monkeypatch.setattr(readers.os, "getloadavg", lambda: (busy, 0.0, 0.0))


def identity(number: int) -> str:
    return f"{number:08}-1111-4111-8111-111111111111"


def write_logs() -> list[Path]:
    paths = []
    for number in range(LOGS):
        told = identity(number), f"/work/{number % 2}", f"question {number}", "answer"
        paths.append(codex_log(*told) if number % 3 else claude_log(*told, tail=b'broken\n{"torn'))
    return paths


def index(folder: Path, monkeypatch) -> dict:
    monkeypatch.setenv("SMART_FORK_HOME", str(folder))
    store = SqliteStore(index_db())
    report = complete(store, AGENTS, None, patience=0)
    assert (LOGS, LOGS, 4, {}) == (report.read, report.sessions, report.broken_lines, report.failed)
    store.close()
    return content(index_db())


def asked_of_children(monkeypatch) -> list[object]:
    answers = []
    real = readers._Child.answer
    monkeypatch.setattr(readers._Child, "answer", lambda child: answers.append(real(child)) or answers[-1])
    return answers


def test_children_read_the_same(children, tmp_path, monkeypatch):
    write_logs()
    with monkeypatch.context() as patch:
        patch.setattr(readers, "WORTH_BYTES", sys.maxsize)
        expected = index(tmp_path / "here", patch)
    answers = asked_of_children(monkeypatch)

    assert expected == index(tmp_path / "by children", monkeypatch)
    assert LOGS == len(answers)
    assert None not in answers


@pytest.mark.parametrize("code", ["raise SystemExit", "import sys; sys.stdin.buffer.read(9)", "print('no pickle')"])
def test_what_a_child_leaves_undone_is_done_here(children, tmp_path, monkeypatch, code):
    write_logs()
    expected = index(tmp_path / "good", monkeypatch)
    monkeypatch.setattr(readers, "_CODE", code)
    answers = asked_of_children(monkeypatch)

    assert expected == index(tmp_path / "bad", monkeypatch)
    assert {None} == set(answers)


def test_where_no_child_can_be_started_everything_is_read_here(children, tmp_path, monkeypatch):
    write_logs()
    expected = index(tmp_path / "good", monkeypatch)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "missing"))

    assert expected == index(tmp_path / "bad", monkeypatch)


def test_a_log_that_no_child_can_read_is_reported_with_its_reason(children):
    paths = write_logs()
    store = SqliteStore(index_db())
    report = Report()
    files = changed_logs(store, AGENTS, report)
    paths[0].unlink()
    read_logs(store, files, report)

    assert LOGS - 1 == report.sessions
    assert "No such file" in report.failed[str(paths[0])]
    store.close()


def test_a_session_of_a_removed_worktree_stays_in_its_repository(children, tmp_path):
    repo, worktree = tmp_path / "repo", tmp_path / "tree"
    (repo / ".git/worktrees/tree").mkdir(parents=True)
    (repo / ".git/worktrees/tree/commondir").write_text("../..\n")
    worktree.mkdir()
    (worktree / ".git").write_text(f"gitdir: {repo}/.git/worktrees/tree\n")
    path = claude_log(identity(0), str(worktree), "first")
    store = SqliteStore(index_db())
    complete(store, AGENTS, None, patience=0)
    (worktree / ".git").unlink()
    worktree.rmdir()
    append(path, lines(claude_records(identity(0), str(worktree), ["second"], first=1)))
    complete(store, AGENTS, None, patience=0)

    assert str(repo) == store.session("claude", identity(0)).repo_root
    assert f"Repo Root: {repo}" in (index_db().parent / f"index/claude/{identity(0)}.md").read_text()
    store.close()


def test_no_child_outlives_the_reading(children, monkeypatch):
    started = []
    real = readers.subprocess.Popen
    monkeypatch.setattr(
        readers.subprocess, "Popen", lambda *given, **named: started.append(real(*given, **named)) or started[-1]
    )
    write_logs()
    store = SqliteStore(index_db())
    files = changed_logs(store, AGENTS, Report())

    assert 1 == read_logs(store, files, Report(), deadline=0.0)
    assert 2 == len(started)
    assert all(child.returncode is not None for child in started)
    store.close()


def test_a_child_ends_when_its_input_does():
    child = readers._Child("indexer.pipeline", "serve")
    child.ask("nonsense")
    assert child.answer() is None  # it met an error and goes on
    child._process.stdin.close()

    assert 0 == child._process.wait(60)
    child._process.stdout.close()


@pytest.mark.parametrize(
    ("number", "busy", "expected"), [(1, 0.0, 0), (2, 0.1, 2), (2, 1.0, 0), (4, 1.2, 3), (64, 0.0, 3), (4, 9.0, 0)]
)
def test_children_take_the_idle_cores(monkeypatch, number, busy, expected):
    cores(monkeypatch, number, busy)

    assert expected == readers.children_for(readers.WORTH_BYTES)
    assert readers.children_for(readers.WORTH_BYTES - 1) == 0
