"""Whose fault it is when the index fails, and what is said about it."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections import namedtuple
from pathlib import Path

import apsw
import pytest

from indexer.failures import is_full, next_step, unwritable
from indexer.paths import state_home

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


def test_an_error_of_a_read_only_file_system_names_what_cannot_be_written():
    said = OSError(errno.EROFS, "Read-only file system", "/home/me/.claude/x")

    assert "/home/me/.claude/x cannot be written: Read-only file system" == unwritable(said)
    assert "" == unwritable(OSError(errno.EROFS, "no name")) == unwritable(OSError(errno.ENOENT, "gone", "/x"))
