"""Putting a transcript where the agent looks for it."""

from __future__ import annotations

import errno
import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from indexer.safe_files import write_new
from smart_fork.agents import storage
from smart_fork.agents.claude.log_files import ClaudeAdapter, folder_of
from smart_fork.agents.storage import Storage
from smart_fork.errors import ForkRefused, NotFound
from tests.smart_fork.forks import SESSION, snapshot


@pytest.fixture
def elsewhere(home: Path) -> Path:
    folder = home / "elsewhere ü"
    folder.mkdir()
    return folder


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_transcript_is_copied_into_the_targets_folder_and_its_source_is_not_touched(claude_session, elsewhere):
    """F-095, F-099, F-101."""
    before = snapshot(claude_session.parent)

    staged = Storage.stage(claude_session, SESSION, folder_of(elsewhere))

    assert folder_of(elsewhere) / f"{SESSION}.jsonl" == staged.path
    assert claude_session.read_bytes() == staged.path.read_bytes()
    assert (0o600, 0o700) == (mode(staged.path), mode(staged.path.parent))
    assert [staged.path] == list(staged.path.parent.iterdir())
    assert before == snapshot(claude_session.parent)


def test_a_transcript_that_is_there_is_left_alone(claude_session, repo):
    staged = Storage.stage(claude_session, SESSION, folder_of(repo))

    assert (claude_session, ()) == (staged.path, staged.created)


def test_an_identical_copy_is_fine(claude_session, elsewhere):
    """F-101."""
    first = Storage.stage(claude_session, SESSION, folder_of(elsewhere))

    assert ((first.path,), ()) == (
        first.created,
        Storage.stage(claude_session, SESSION, folder_of(elsewhere)).created,
    )


@pytest.mark.parametrize(
    "change",
    [lambda old: old + b"{}\n", lambda old: old[:-9], lambda old: old.replace(b"retry", b"RETRY")],
    ids=["longer", "shorter", "other"],
)
def test_a_different_copy_is_never_overwritten(claude_session, elsewhere, change):
    """F-101: even if the different copy is a continuation."""
    path = Storage.stage(claude_session, SESSION, folder_of(elsewhere)).path
    path.write_bytes(change(path.read_bytes()))
    before = snapshot(path.parent)

    with pytest.raises(ForkRefused, match="already there") as caught:
        Storage.stage(claude_session, SESSION, folder_of(elsewhere))

    assert before == snapshot(path.parent)
    assert "worktree" in caught.value.hint


def test_a_link_in_the_targets_place_is_neither_followed_nor_replaced(claude_session, elsewhere, tmp_path):
    """X-002."""
    victim = tmp_path / "victim"
    victim.write_text("mine")
    folder_of(elsewhere).mkdir(parents=True)
    (folder_of(elsewhere) / f"{SESSION}.jsonl").symlink_to(victim)

    with pytest.raises(ForkRefused):
        Storage.stage(claude_session, SESSION, folder_of(elsewhere))

    assert "mine" == victim.read_text()


def test_a_source_that_is_gone_is_an_error_before_anything_is_made(home, elsewhere):
    """F-102."""
    with pytest.raises(NotFound, match="gone"):
        Storage.stage(home / "no.jsonl", SESSION, folder_of(elsewhere))

    assert not folder_of(elsewhere).exists()


def test_the_folder_beside_the_transcript_comes_along_without_its_links(claude_session, elsewhere, tmp_path):
    """F-101, B-075."""
    (tmp_path / "secret").write_text("secret")
    beside = claude_session.with_suffix("")
    (beside / "tool-results").mkdir(parents=True)
    (beside / "tool-results/1.txt").write_text("long")
    (beside / "tool-results/link.txt").symlink_to(tmp_path / "secret")
    (beside / "out").symlink_to(tmp_path, target_is_directory=True)
    os.mkfifo(beside / "fifo")

    staged = Storage.stage(claude_session, SESSION, folder_of(elsewhere))

    copy = staged.path.with_suffix("")
    assert {"tool-results/1.txt"} == set(snapshot(copy))
    assert (0o600, 0o700) == (mode(copy / "tool-results/1.txt"), mode(copy / "tool-results"))
    assert () == Storage.stage(claude_session, SESSION, folder_of(elsewhere)).created

    (copy / "tool-results/1.txt").write_text("other")
    with pytest.raises(ForkRefused):
        Storage.stage(claude_session, SESSION, folder_of(elsewhere))
    assert "other" == (copy / "tool-results/1.txt").read_text()


def test_what_was_staged_can_be_taken_away_again(claude_session, elsewhere):
    (claude_session.with_suffix("") / "subagents").mkdir(parents=True)
    (claude_session.with_suffix("") / "subagents/a.jsonl").write_text("{}\n")

    staged = Storage.stage(claude_session, SESSION, folder_of(elsewhere))
    staged.undo()

    assert [] == list(folder_of(elsewhere).iterdir())
    assert claude_session.is_file()


def test_a_full_disk_leaves_nothing(claude_session, elsewhere, monkeypatch):
    """B-073."""
    (claude_session.with_suffix("")).mkdir()
    (claude_session.with_suffix("") / "a").write_text("a")
    real, calls = os.fsync, []

    def full(descriptor):
        calls.append(descriptor)
        if len(calls) == 3:  # the folder's file and its folder were written; the transcript is not
            raise OSError(errno.ENOSPC, "No space left on device")
        real(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        Storage.stage(claude_session, SESSION, folder_of(elsewhere))

    assert [] == list(folder_of(elsewhere).iterdir())


def test_a_log_that_the_agent_is_writing_is_copied_as_it_was(claude_session, elsewhere, monkeypatch):
    size = claude_session.stat().st_size
    real = storage._pieces

    def growing(file, size):
        with claude_session.open("ab") as log:
            log.write(b"x" * 100)
        yield from real(file, size)

    monkeypatch.setattr(storage, "_pieces", growing)

    assert size == Storage.stage(claude_session, SESSION, folder_of(elsewhere)).path.stat().st_size


def test_a_file_appears_complete_or_not_at_all(tmp_path):
    """B-072."""
    target = tmp_path / "a.jsonl"

    def pieces():
        yield b"half"
        assert not target.exists()
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError):
        write_new(target, pieces())
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize("links", [True, False], ids=["with links", "without links"])
def test_of_many_writers_one_wins_and_the_others_change_nothing(tmp_path, monkeypatch, links):
    """B-024, B-072."""
    if not links:

        def no_links(self, target):
            raise OSError(errno.EPERM, "Operation not permitted")

        monkeypatch.setattr(Path, "hardlink_to", no_links)
    target = tmp_path / "a.jsonl"

    def write(number: int) -> bool:
        try:
            write_new(target, [b"%d" % number] * 1000)
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(write, range(8)))

    assert 1 == won.count(True)
    assert b"%d" % won.index(True) * 1000 == target.read_bytes()
    assert (0o600, [target]) == (mode(target), list(tmp_path.iterdir()))


def test_a_copy_is_the_same_session_for_the_reader(claude_session, elsewhere):
    """F-103."""
    staged = Storage.stage(claude_session, SESSION, folder_of(elsewhere))
    adapter = ClaudeAdapter()

    assert {claude_session, staged.path} == set(adapter.locate(SESSION))
    ids = {adapter.read(path).session.session_id for path in adapter.locate(SESSION)}
    assert {SESSION} == ids
