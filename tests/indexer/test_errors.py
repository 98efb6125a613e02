"""The cause of an index failure, and the advice on it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import namedtuple
from pathlib import Path

import apsw
import pytest

from indexer.errors import is_full, next_step, what_failed
from indexer.safe_files import private_dir, staging_of, state_home

Usage = namedtuple("Usage", "free")  # noqa: PYI024 - as the system's own


@pytest.mark.parametrize("error", [apsw.IOError("disk I/O error"), apsw.CantOpenError("unable to open database file")])
@pytest.mark.parametrize(("free", "step"), [(0, "Make room"), (1 << 30, "")])
def test_what_sqlite_calls_otherwise_is_a_full_disk_where_there_is_no_room(error, free, step, home, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(free))

    assert bool(step) == is_full(error)
    assert next_step(error).startswith(step)
    assert bool(step) == ("Make room" in next_step(error))


def test_a_disk_that_cannot_be_asked_is_not_called_full(home, monkeypatch):
    def gone(_):
        raise FileNotFoundError(errno.ENOENT, "no such folder")

    monkeypatch.setattr(shutil, "disk_usage", gone)

    assert not is_full(apsw.IOError("disk I/O error"))
    assert is_full(OSError(errno.ENOSPC, "No space left on device"))


def test_the_disk_that_is_full_is_named_where_the_error_names_no_file(home, monkeypatch):
    full = {Path(tempfile.gettempdir())}
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: Usage(0 if folder in full else 1 << 40))
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    assert next_step(error).startswith(f"Make room on the disk of {tempfile.gettempdir()};")

    full.add(state_home())
    assert next_step(error).startswith(f"Make room on the disk of {state_home()};")


def test_who_does_not_index_is_told_to_try_again_and_of_the_file_that_it_is_about(home):
    def told(number: int, file: object = None, **how: bool) -> str:
        return next_step(OSError(number, os.strerror(number), file), **how)

    ours = state_home()
    assert told(errno.ENOSPC) == f"Make room on the disk of {ours}; then try again."
    assert told(errno.ENOSPC, "/agent/log.jsonl") == "Make room on the disk of /agent/log.jsonl; then try again."
    assert told(errno.ENOSPC, indexing=True).endswith(f"{ours}; indexing then continues by itself.")
    assert told(errno.EACCES, "/agent/log.jsonl") == "Make /agent/log.jsonl readable and writable for you."
    assert told(errno.EROFS, str(ours / "workers.db")).startswith(f"Make {ours} writable")


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOSPC, errno.EDQUOT, errno.ENOENT])
def test_an_error_of_the_system_is_told_by_its_file_and_without_a_class_or_a_number(number, tmp_path):
    said = os.strerror(number)
    name = f"{'x' * 60}.jsonl"

    assert f"{tmp_path}/x: {said}" == what_failed(OSError(number, said, str(tmp_path / "x")))
    assert f"{tmp_path}/y: {said}" == what_failed(OSError(number, said, str(tmp_path / "x"), None, str(tmp_path / "y")))
    assert f"{tmp_path}/x: {said}" == what_failed(OSError(number, said, staging_of(tmp_path / "x")))
    assert f"{tmp_path}: {said}" == what_failed(OSError(number, said, str(staging_of(tmp_path / name))))
    assert said == what_failed(OSError(number, said)) == what_failed(OSError(number, said, 3))


def test_an_error_of_another_kind_is_told_by_what_it_says():
    assert ("odd", "ValueError", "x") == tuple(map(what_failed, (ValueError("odd"), ValueError(), OSError("x"))))


def test_of_what_is_to_be_written_the_folder_is_to_be_made_writable(home, tmp_path):
    def told(path: Path) -> str:
        return next_step(PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path)))

    (tmp_path / "there").touch()
    assert f"Make {tmp_path / 'there'} readable and writable for you." == told(tmp_path / "there")
    assert f"Make {tmp_path} readable and writable for you." == told(tmp_path / "new")


def test_a_home_that_is_a_file_is_named_as_one_and_not_to_be_made_writable(home):
    state_home().write_text("a file")

    for indexing in (False, True):
        with pytest.raises(OSError, match="File exists") as caught:
            private_dir(state_home())
        told = next_step(caught.value, indexing=indexing)
        assert f"{state_home()} is no folder. Move it away, or set SMART_FORK_HOME to a folder." == told
