"""Disks of their own for the drills; only root may mount them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

import pytest

from indexer.safe_files import private_dir, state_home

#: What `mount` says where it is refused, as while a file is written there.
_BUSY = 32


@pytest.fixture
def disk() -> Iterator[Callable[..., Path]]:
    """Makes the state folder a small disk of its own; call it again to change its size, with "ro" and "rw" otherwise."""
    mounted: list[Path] = []

    def change(*words: str) -> None:
        done = subprocess.run(words, check=False, capture_output=True)
        pause = Event()
        while done.returncode == _BUSY:  # somebody has a file there open for writing just now
            pause.wait(0.05)
            done = subprocess.run(words, check=False, capture_output=True)
        done.check_returncode()

    def mount(options: str) -> Path:
        if options == "ro":  # the same disk once more above itself: what is open for writing stays so
            change("mount", "--bind", str(mounted[0]), str(mounted[0]))
            change("mount", "-o", "remount,bind,ro", str(mounted[0]))
            return mounted[0]
        if options == "rw":
            change("umount", "-l", str(mounted[0]))
            return mounted[0]
        if os.geteuid() != 0:
            pytest.skip("only root may mount a disk")
        folder = private_dir(state_home())
        words = (
            ["remount," + options, str(folder)] if mounted else ["mode=700," + options, "-t", "tmpfs", "tmpfs", folder]
        )
        done = subprocess.run(["mount", "-o", *words], capture_output=True, text=True, check=False)
        if done.returncode and not mounted:
            pytest.skip(f"no disk can be mounted here: {done.stderr}")
        assert not done.returncode, done.stderr
        mounted.append(folder)
        return folder

    yield mount
    while mounted and os.path.ismount(mounted[0]):
        change("umount", "-l", str(mounted[0]))
