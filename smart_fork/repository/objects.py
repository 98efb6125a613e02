"""The contents of git's objects, in a store that nobody vouches for."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from smart_fork.errors import ProgramFailed
from smart_fork.repository.git import GIT_SECONDS, bare_environment
from smart_fork.system.processes import Processes

#: About so much is read at a time; a larger object by itself.
_BATCH_BYTES = 1 << 24


def contents(store: Path, processes: Processes) -> Iterator[bytes]:
    """The contents of all objects in a store that nobody vouches for, packed or not, several at a time.

    Its configuration, its hooks and what it borrows from other repositories do not count.

    Raises:
        ProgramMissing: git is not installed.
        ProgramFailed: git cannot read all of them.
    """
    with tempfile.TemporaryDirectory() as folder:
        own = _around(store, Path(folder))
        listed = _git(own, processes, b"", "--batch-all-objects", "--batch-check=%(objectname) %(objectsize)")
        for names in _batches(listed):
            yield _git(own, processes, b"\n".join(names), "--batch")


def _around(store: Path, own: Path) -> Path:
    """A repository with the objects of another one, and nothing else of it."""
    for name in ("refs", "objects"):
        (own / name).mkdir()
    (own / "HEAD").write_text("ref: refs/heads/main\n")
    for entry in os.scandir(store):
        if entry.is_dir(follow_symlinks=False) and (len(entry.name) == 2 or entry.name == "pack"):
            (own / "objects" / entry.name).symlink_to(Path(entry.path).resolve())
    return own


def _batches(listed: bytes) -> Iterator[list[bytes]]:
    names: list[bytes] = []
    size = 0
    for line in listed.splitlines():
        name, _, length = line.partition(b" ")
        if not length.isdigit():
            raise ProgramFailed(f"git cannot read the objects: {line.decode()}")
        if names and size + int(length) > _BATCH_BYTES:
            yield names
            names, size = [], 0
        names.append(name)
        size += int(length)
    if names:
        yield names


def _git(own: Path, processes: Processes, given: bytes, *options: str) -> bytes:
    done = processes.run(
        ["git", "cat-file", *options], env=bare_environment(own), timeout=GIT_SECONDS, input=given, cwd=own
    )
    if not done.ok:
        raise ProgramFailed(f"git cannot read the objects: {done.complaint}")
    return done.stdout
