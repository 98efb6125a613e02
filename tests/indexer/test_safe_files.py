"""Files are written completely or not at all, whatever fails and whenever the machine stops."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from indexer import safe_files
from indexer.safe_files import Disk, new_file, replace_file, sweep, write_new

ROOT = Path(__file__).resolve().parents[2]
#: Names of those who write files that must not get lost.
WRITES = ("fsync", "O_EXCL", "O_TRUNC")


class Watched(Disk):
    """A disk that records its calls in order."""

    def __init__(self) -> None:
        self.done: list[str] = []


def _noting(name: str):
    def call(self, *arguments):
        self.done.append(name)
        return getattr(Disk, name)(self, *arguments)

    return call


for call_name in (name for name in vars(Disk) if not name.startswith("_")):
    setattr(Watched, call_name, _noting(call_name))


def test_the_bytes_are_on_the_disk_before_the_name_is_and_the_name_is_before_it_is_said(tmp_path):
    disk = Watched()
    replace_file(tmp_path / "a", [b"new"], disk=disk)

    assert ["create", "write", "sync", "close", "replace", "remove", "sync_folder"] == disk.done


def test_a_new_file_is_on_the_disk_before_it_has_its_name(tmp_path):
    disk = Watched()
    with new_file(tmp_path / "a", disk=disk) as file:
        file.write(b"new")

    assert ["create", "sync", "close", "link", "remove", "sync_folder"] == disk.done


def test_what_is_synced_is_all_that_was_written(tmp_path):
    sizes = []

    class Measuring(Disk):
        def sync(self, descriptor):
            sizes.append(Path(f"/proc/self/fd/{descriptor}").stat().st_size)

    if not Path("/proc/self/fd").is_dir():
        pytest.skip("no /proc")
    replace_file(tmp_path / "a", [b"12", b"34"], disk=Measuring())
    with new_file(tmp_path / "b", disk=Measuring()) as file:
        file.write(b"12345")

    assert [4, 5] == sizes


def test_what_can_be_made_again_does_not_wait_for_the_disk(tmp_path):
    disk = Watched()
    replace_file(tmp_path / "a", [b"new"], durable=False, disk=disk)

    assert ["create", "write", "close", "replace", "remove"] == disk.done


def test_a_file_is_private_unless_the_one_that_it_replaces_was_not(tmp_path):
    path = tmp_path / "a"
    replace_file(path, [b"new"])
    first = path.stat().st_mode & 0o777
    path.chmod(0o644)
    replace_file(path, [b"newer"], like_before=True)
    second = path.stat().st_mode & 0o777
    replace_file(path, [b"newest"])

    assert (0o600, 0o644, 0o600) == (first, second, path.stat().st_mode & 0o777)


@pytest.mark.parametrize("fails", ["create", "write", "sync", "close", "replace"])
def test_whatever_fails_the_old_file_is_there_and_nothing_beside_it(tmp_path, fails):
    class Broken(Disk):
        pass

    def no_space(self, *arguments):
        getattr(Disk, fails)(self, *arguments) if fails == "close" else None
        raise OSError(28, "No space left on device")

    setattr(Broken, fails, no_space)
    path = tmp_path / "a"
    path.write_bytes(b"old")
    with pytest.raises(OSError, match="No space"):
        replace_file(path, [b"new"], disk=Broken())

    assert (b"old", [path]) == (path.read_bytes(), list(tmp_path.iterdir()))


def test_a_name_as_long_as_a_name_can_be_is_written(tmp_path):
    path = tmp_path / ("ä" * 127)
    replace_file(path, [b"new"])
    replace_file(path, [b"newer"])

    assert b"newer" == path.read_bytes()


def test_what_a_killed_writer_left_is_swept_and_nothing_else(tmp_path):
    left, mine = safe_files.staging_of(tmp_path / "a"), tmp_path / ".mine.tmp"
    for path in (left, mine):
        path.touch()
    write_new(tmp_path / "b", [b""])
    assert left.exists()  # its writer may still be at work
    sweep(tmp_path, 0)

    assert {mine, tmp_path / "b"} == set(tmp_path.iterdir())


def test_files_are_written_in_one_place():
    """Other places would have to repeat the order in which files are flushed."""
    places = {
        path.relative_to(ROOT).as_posix()
        for folder in ("indexer", "smart_fork")
        for path in (ROOT / folder).rglob("*.py")
        if any(name in (source := path.read_text()) for name in WRITES)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute) and node.attr in WRITES
    }

    # What a hook notes it makes once, and what it imports each prompt waits for. SQLite writes the state, and a program of
    # PostgreSQL a backup.
    others = {"indexer/state_db.py", "smart_fork/hooks/hints.py", "smart_fork/team/server/backup.py"}
    assert {"indexer/safe_files.py", *others} == places
