"""Logs that change while they are read, stand at odd times, or are none at all."""

from __future__ import annotations

import os
import socket
import tempfile
from contextlib import chdir, closing
from pathlib import Path

import pytest

from indexer import safe_files
from indexer.refresh import complete
from indexer.safe_files import index_db, state_home
from indexer.store.sqlite import Store
from indexer.transcripts import lines as reading
from smart_fork.agents.log_readers import READERS
from tests.drills.drill_home import Quick, differs, fresh, grow, session, smart_fork, untouched, write_logs
from tests.indexer.index_inputs import claude_log, codex_log, content

pytestmark = pytest.mark.thorough  # of the real processes; each module has kills of its own

MANY = 100_000


@pytest.fixture
def store():
    with closing(Store(index_db())) as opened:
        yield opened


def index(store):
    return complete(store, READERS, Quick(), patience=0)


def delete(path: Path) -> None:
    path.unlink()


def replace(path: Path) -> None:
    """By another log of the same size and time, as an editor or `mv` does it."""
    info, data = path.stat(), path.read_bytes()
    other = path.with_name("other")
    other.write_bytes(data.replace(b"question 1", b"quarrel 12"))
    os.utime(other, ns=(info.st_atime_ns, info.st_mtime_ns))
    other.rename(path)
    assert (info.st_size, info.st_mtime_ns) == (path.stat().st_size, path.stat().st_mtime_ns)


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def empty(path: Path) -> None:
    os.truncate(path, 0)


@pytest.mark.parametrize("before", [True, False], ids=["indexed before", "new"])
@pytest.mark.parametrize("harm", [delete, replace, truncate, empty])
def test_a_log_that_goes_or_changes_while_it_is_read_is_right_after_the_next_run(
    harm, before, store, tmp_path, monkeypatch
):
    every = write_logs()
    if before:
        index(store)
        grow(every[1], "question 1 again", "yes")
    opened, done = safe_files.open_regular, []

    def while_reading(path):
        file = opened(path)
        if path == every[1] and not done:
            done.append(file.read(100))
            file.seek(0)
            harm(path)
        return file

    with monkeypatch.context() as patch:
        patch.setattr(reading, "open_regular", while_reading)
        index(store)
        assert done
    with untouched():
        index(store)

    expected = fresh(tmp_path / "fresh")
    if harm in (delete, empty, truncate):  # what was indexed of it stays findable: that is what D17 asks for
        store.forget_files([str(every[1])])
        store.forget_session("claude", every[1].stem)
        (state_home() / "index/claude" / f"{every[1].stem}.md").unlink(missing_ok=True)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("SMART_FORK_HOME", str(tmp_path / "fresh"))
            with closing(Store(index_db())) as other:
                other.forget_files([str(every[1])])
                other.forget_session("claude", every[1].stem)
            (state_home() / "index/claude" / f"{every[1].stem}.md").unlink(missing_ok=True)
            expected = content(index_db())
    assert "" == differs(expected)


#: 1970, before that, far ahead, and further than 64 bits count nanoseconds.
TIMES = (0, -86_400, 4_102_444_800, 20_000_000_000, 253_402_300_800_000)


@pytest.mark.parametrize("seconds", TIMES)
def test_a_log_of_any_time_is_indexed_and_keeps_none_out(seconds, store, tmp_path, monkeypatch):
    """A clock that was wrong, or a file system that knows later times than the index can count."""
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    every = write_logs(3)
    try:
        os.utime(every[1], (seconds, seconds))
    except OverflowError:
        pytest.skip("this system has no such time")
    with untouched():
        assert (3, {}) == ((first := index(store)).sessions, first.failed)
        assert (0, {}) == ((again := index(store)).read, again.failed)


def test_what_is_no_log_is_passed_over_at_once(store, tmp_path):
    """F-149, F-159: pipes, sockets, devices, folders, loops, links out of the tree, names that are no text."""
    write_logs()
    folder = READERS["claude"].home() / "projects/-work-odd"
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.jsonl")
    with closing(socket.socket(socket.AF_UNIX)) as listening, chdir(folder):  # its name must be short
        listening.bind("socket.jsonl")
    if os.geteuid() == 0:
        os.mknod(folder / "device.jsonl", 0o600 | 0o020000, os.makedev(1, 5))
    (folder / "zero.jsonl").symlink_to("/dev/zero")
    (folder / "folder.jsonl").mkdir()
    (folder / "loop").symlink_to("..")
    (folder / "itself.jsonl").symlink_to("itself.jsonl")
    (folder / "outside.jsonl").symlink_to("/etc/hostname")
    (folder / "outside").symlink_to("/")
    expected = fresh(tmp_path / "fresh")
    record = claude_log(session(50), "/work/odd", "about lines").read_bytes()
    (folder / "two\nlines.jsonl").write_bytes(record.replace(session(50).encode(), session(51).encode()))
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff\xfe.jsonl")).write_bytes(record)

    with untouched():
        done = smart_fork("index", "run", "--no-vectors", "--json")
        assert 0 == done.returncode, done.stderr
        report = index(store)

    assert {} == report.failed
    names = {row[1] for row in content(index_db())["sessions"]}
    assert {row[1] for row in expected["sessions"]} | {session(50)} == names  # of names that no session has nothing


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody else")
def test_a_folder_that_cannot_be_read_keeps_out_only_what_is_in_it():
    """As nobody, because root reads everything."""
    write_logs(4)
    closed = claude_log(session(60), "/work/closed", "about harbour")
    closed.parent.chmod(0o000)
    for folder in (READERS["claude"].home(), *READERS["claude"].home().parents[:-2]):
        folder.chmod(folder.stat().st_mode | 0o011)
    os.seteuid(65534)
    try:
        seen = [file.path.stem for agent in READERS for file in agent.discover()]
    finally:
        os.seteuid(0)
    assert 4 == len(seen)
    assert session(60) not in seen


def test_a_folder_of_a_hundred_thousand_entries_keeps_nobody_out(store, tmp_path, monkeypatch):
    memory = Path("/dev/shm")  # noqa: S108 - to make so many takes a while on a disk
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else tmp_path) as folder:
        monkeypatch.setenv("CLAUDE_CONFIG_DIR", folder)
        write_logs(3)
        many = READERS["claude"].home() / "projects/-work-many"
        many.mkdir()
        number = os.open(many, os.O_RDONLY)
        for one in range(MANY):
            os.mknod(f"{one}.{'txt' if one else 'jsonl'}", dir_fd=number)
        os.close(number)
        assert (4, 3) == ((report := index(store)).files, report.sessions)


@pytest.mark.parametrize("claimed", ["../../../escaped", "/escaped", "a/b", "..", "-rf", "x\0y", "x\ny", "\udc80"])
def test_a_log_that_claims_to_be_elsewhere_leads_nowhere(claimed, store, home, tmp_path, monkeypatch):
    """F-159: its id, directory and name are what it says; files are only written below our own folders."""
    monkeypatch.setenv("SMART_FORK_KEEP_TRANSCRIPTS", "true")
    before = set(home.rglob("*"))
    log = claude_log(session(1), "/work/a", "about harbour", "yes")
    log.write_bytes(log.read_bytes().replace(session(1).encode(), repr(claimed)[1:-1].replace("\\x", "\\u00").encode()))
    codex = codex_log(session(2), claimed, "about harbour", "yes")
    with untouched():
        index(store)
    made = set(home.rglob("*")) - before - {log, codex, *log.parents, *codex.parents}
    assert made
    assert all(path.is_relative_to(state_home()) for path in made)
