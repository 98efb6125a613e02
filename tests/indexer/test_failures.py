"""Whose fault it is when the index fails, and what is said about it."""

from __future__ import annotations

import errno
import shutil
from collections import namedtuple

import apsw
import pytest

from indexer.failures import is_full, next_step

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
