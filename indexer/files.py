"""Files written completely or not at all: whoever reads one sees the old or the new one, also after a loss of power.

They are private, unless the file that they replace was not.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from indexer.disk import DISK, Disk

#: What a writer that was killed has left for so long has lost its writer for certain.
STALE_SECONDS = 3600
#: What is written first is named after so much of the file's name.
NAMED = 50
_STAGING = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
#: What `link` answers where a file system has no hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.ENOSYS, errno.EMLINK)
_PIECE = 1 << 20


def replace_file(
    target: Path, pieces: Iterable[bytes], *, like_before: bool = False, durable: bool = True,
    ready: Callable[[], None] | None = None, disk: Disk = DISK,
) -> None:  # fmt: skip
    """Write a file again.

    `like_before` keeps mode and owner of the one that is there; `ready` is called just before the new one takes its
    place, and may raise. Without `durable` the disk is not waited for: for what can be made again.

    Raises:
        OSError: it is as it was.
    """

    def publish(staging: Path) -> None:
        if ready is not None:
            ready()
        disk.replace(staging, target)

    with _staged(target, publish, disk, durable=durable) as descriptor:
        for piece in _gathered(pieces):
            disk.write(descriptor, piece)
        if like_before and (model := disk.look(target)) is not None:
            disk.like(descriptor, model)


def write_new(target: Path, pieces: Iterable[bytes]) -> None:
    """Write a file that is not there yet.

    Raises:
        FileExistsError: it is there already, and untouched.
    """
    with new_file(target) as file:
        file.writelines(pieces)


@contextlib.contextmanager
def new_file(target: Path, *, disk: Disk = DISK) -> Iterator[IO[bytes]]:
    """A new file to write to, which appears under its name when all is done; an error leaves nothing.

    Raises:
        FileExistsError: it is there already, and untouched.
    """
    sweep(target.parent)
    with (
        _staged(target, lambda staging: _publish(staging, target, disk), disk) as descriptor,
        os.fdopen(descriptor, "wb", closefd=False) as file,
    ):
        yield file


def remove(path: Path) -> None:
    """Remove one of our own files or folders, if it is there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def staging_of(target: Path) -> Path:
    """A name beside `target` for what is to become it; `sweep` knows it for ours."""
    return target.with_name(f".{target.name[:NAMED]}.{secrets.token_hex(8)}.tmp")


def sweep(folder: Path, seconds: float = STALE_SECONDS) -> None:
    """Remove what writers that were killed have left in `folder`: nobody has written to it for so long."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if _STAGING.fullmatch(path.name) and time.time() - path.lstat().st_mtime >= seconds:
                remove(path)


def sweep_beside(target: Path) -> None:
    """Remove at once what writers of `target` that were killed have left: whoever calls knows that none is at work."""
    for path in target.parent.glob(f".{glob.escape(target.name[:NAMED])}.*.tmp"):
        if _STAGING.fullmatch(path.name):
            with contextlib.suppress(OSError):
                remove(path)


@contextlib.contextmanager
def _staged(target: Path, publish: Callable[[Path], None], disk: Disk, *, durable: bool = True) -> Iterator[int]:
    """A private file beside `target`, which `publish` gives its name. Its bytes are on the disk before the name is, or
    a machine that loses its power would have the name alone.
    """
    staging = staging_of(target)
    try:
        descriptor = disk.create(staging)
        try:
            yield descriptor
            if durable:
                disk.sync(descriptor)
        finally:
            disk.close(descriptor)
        publish(staging)
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT) and error.filename is None:
            error.filename = str(target)  # whose disk is full, the system does not say of an open file
        raise
    finally:
        with contextlib.suppress(OSError):  # the first error is the one to tell
            disk.remove(staging)
    if durable:
        with contextlib.suppress(OSError):  # the name is as durable as the file system makes it
            disk.sync_folder(target.parent)


def _publish(staging: Path, target: Path, disk: Disk) -> None:
    try:
        disk.link(staging, target)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        disk.close(disk.create(target))  # whoever gets the name, has it
        disk.replace(staging, target)


def _gathered(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Fewer and larger pieces."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _PIECE:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)
