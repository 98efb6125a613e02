"""Detection of changes of logs as they happen."""

import logging
import os
import queue
import shutil
import threading
from pathlib import Path

import pytest

from indexer import run_triggers
from indexer.run_triggers import Watcher
from smart_fork.agents.log_readers import READERS
from tests.indexer.index_inputs import append, claude_log, codex_log

ONE = "00000001-1111-4111-8111-111111111111"
TWO = "00000002-1111-4111-8111-111111111111"
SECONDS = 90


class Watched:
    """A watcher in a thread, and its reports."""

    def __init__(self, **options) -> None:
        self.told: queue.Queue = queue.Queue()
        self.stop = threading.Event()
        self.thread = threading.Thread(target=Watcher(READERS, self.told.put, **options).run, args=(self.stop,))
        self.thread.start()
        assert self.told.get(timeout=SECONDS) is None  # once it watches, everything is looked at

    def until(self, wanted) -> list:
        """Return the reports up to `wanted`: a path, or None for everything."""
        told = []
        while True:
            now = self.told.get(timeout=SECONDS)
            told.append(now)
            if now is None if wanted is None else now is not None and str(wanted) in now:
                return told

    def end(self) -> None:
        self.stop.set()
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()


@pytest.fixture
def watched():
    started = []

    def start(**options):
        started.append(Watched(**options))
        return started[-1]

    yield start
    for one in started:
        one.end()


def test_a_log_that_comes_grows_and_goes_is_told(watched):
    log = claude_log(ONE, "/work/a", "question", "answer")
    codex = codex_log(TWO, "/work/a", "question")
    seen = watched()

    append(log, b"{}\n")
    seen.until(log)
    append(codex, b"{}\n")
    seen.until(codex)
    new = claude_log(TWO, "/work/a", "question")
    seen.until(new)
    new.unlink()
    seen.until(new)
    other = log.with_name("other.jsonl")
    log.rename(other)
    told = seen.until(other)
    assert any(str(log) in paths for paths in told)


def test_other_files_are_not_told(watched):
    log = claude_log(ONE, "/work/a", "question", "answer")
    seen = watched()
    (log.parent / "notes.txt").write_text("x")
    (log.parent / ONE / "subagents").mkdir(parents=True)
    (log.parent / ONE / "subagents/agent-1.jsonl").write_text("{}\n")
    append(log, b"{}\n")

    assert [{str(log)}] == seen.until(log)


def test_folders_that_do_not_exist_yet_are_noticed_when_they_appear(watched, home):
    seen = watched()
    (home / ".claude").mkdir()
    seen.until(None)
    log = claude_log(ONE, "/work/a", "question")
    seen.until(None)
    _told_of(seen, log)
    codex = codex_log(TWO, "/work/a", "question")
    seen.until(None)
    _told_of(seen, codex)


def test_a_folder_that_is_deleted_and_made_again_is_watched_again(watched):
    log = claude_log(ONE, "/work/a", "question")
    seen = watched()
    shutil.rmtree(log.parent)
    seen.until(None)
    log = claude_log(ONE, "/work/a", "question")
    seen.until(None)
    _told_of(seen, log)


def test_a_folder_that_is_made_again_at_once_with_the_same_inode_is_watched_again(watched):
    log = claude_log(ONE, "/work/a", "question")
    seen = watched()
    shutil.rmtree(log.parent)
    log = claude_log(ONE, "/work/a", "question")
    seen.until(None)
    _told_of(seen, log)


def _told_of(seen: Watched, log: Path) -> None:
    """A log's change is reported as soon as all folders that came with it are watched."""
    for _ in range(50):
        append(log, b"{}\n")
        try:
            if str(log) in (seen.told.get(timeout=2) or ()):
                return
        except queue.Empty:
            continue
    pytest.fail("not watched")


def test_a_fifo_and_folders_that_lead_in_circles_are_harmless(watched):
    log = claude_log(ONE, "/work/a", "question")
    (log.parent / "loop").symlink_to(log.parent.parent)
    (log.parent.parent / "loop").symlink_to("/")
    (log.parent.parent / "itself").symlink_to("itself")
    os.mkfifo(log.parent / "fifo.jsonl")
    (log.parent / "folder.jsonl").mkdir()
    watcher = Watcher(READERS, lambda _: None)

    folders = {folder.path for folder in watcher._folders()}
    assert {str(log.parent.parent), str(log.parent)} <= folders
    assert not any("loop" in folder or "itself" in folder for folder in folders)
    seen = watched()
    append(log, b"{}\n")
    seen.until(log)
    assert not any(agent.log_at(str(log.parent / name)) for agent in READERS for name in ("fifo.jsonl", "folder.jsonl"))


def test_where_the_system_cannot_notify_the_logs_are_looked_at_again_and_again(watched, monkeypatch, caplog):
    def no_watches(folders):
        raise OSError("OS file watch limit reached")

    monkeypatch.setattr(run_triggers, "_watching", no_watches)
    claude_log(ONE, "/work/a", "question")
    seen = watched(poll_seconds=0.01)
    seen.until(None)

    assert ["WARNING"] == [record.levelname for record in caplog.records]
    assert "watch limit reached" in caplog.text
    assert "checked every 0.01 seconds" in caplog.text


def test_where_the_system_could_not_notify_it_is_asked_to_again(watched, monkeypatch, caplog):
    real, failing = run_triggers._watching, [OSError("OS file watch limit reached")] * 2

    def no_watches(folders):
        if failing:
            raise failing.pop()
        return real(folders)

    monkeypatch.setattr(run_triggers, "_watching", no_watches)
    monkeypatch.setattr(run_triggers, "POLLING_SECONDS", 0.0)
    log = claude_log(ONE, "/work/a", "question")
    seen = watched(poll_seconds=0.01)
    append(log, b"{}\n")
    seen.until(log)

    assert ["WARNING"] == [record.levelname for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_folder_that_goes_before_it_is_watched_does_not_end_the_watching(watched, monkeypatch, caplog):
    real, failing = run_triggers._watching, [FileNotFoundError("gone")]

    def vanished(folders):
        if failing:
            raise failing.pop()
        return real(folders)

    monkeypatch.setattr(run_triggers, "_watching", vanished)
    log = claude_log(ONE, "/work/a", "question")
    seen = watched()
    append(log, b"{}\n")
    seen.until(log)
    assert [] == [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_names_without_symbolic_links_are_those_of_the_logs(home, tmp_path):
    """Some systems notify with the resolved path."""
    (tmp_path / "elsewhere/projects/-work-a").mkdir(parents=True)
    (home / ".claude").symlink_to(tmp_path / "elsewhere")
    watcher = Watcher(READERS, lambda _: None)
    resolved = str((tmp_path / "elsewhere/projects/-work-a").resolve() / "x.jsonl")

    named = run_triggers._logs(
        {resolved, "/elsewhere/y.jsonl"}, run_triggers._names(set(watcher._folders())), watcher._endings
    )

    assert {str(home / ".claude/projects/-work-a/x.jsonl")} == named


@pytest.mark.parametrize(("name", "write"), [("claude", claude_log), ("codex", codex_log)])
def test_a_log_is_known_by_its_place_exactly_as_it_is_discovered(name, write, home):
    agent = READERS[name]
    log = write(ONE, "/work/a", "question")
    (log.parent / "link").symlink_to(log.parent)
    (log.parent.parent / "link").symlink_to(log.parent)
    beside = [log.with_name(name) for name in ("agent-1.jsonl", "x.txt", "rollout-1.jsonl", "s.jsonl")]
    deep = log.parent / "a/b/c/d/rollout-2.jsonl"
    top = agent.folders()[0][0] / "rollout-3.jsonl"
    deep.parent.mkdir(parents=True)
    for path in (*beside, deep, top):
        path.write_bytes(b"{}\n")
    (log.parent / "rollout-linked.jsonl").symlink_to(log)
    (log.parent / "rollout-nowhere.jsonl").symlink_to("nowhere")
    every = [
        *home.rglob("*.*"),
        log.parent / "link" / log.name,
        log.parent.parent / "link" / log.name,
        home / "x.jsonl",
    ]

    known = {file for path in every if (file := agent.log_at(str(path)))}

    assert known == set(agent.discover())
    assert log in {file.path for file in known}
    for odd in (
        "",
        "/",
        f"{log}/",
        f"{log.parent}/../{log.parent.name}/{log.name}",
        f"{log}\0",
        str(log) + "\udcff.jsonl",
    ):
        assert agent.log_at(odd) is None
