"""Puts a transcript where its agent looks for it before a fork.

An agent may look for a session only in the folder of its working directory. A fork into another directory, such as a
worktree, then needs a copy there first. Existing files are never overwritten, a reader never sees half a file, and a
failure leaves nothing behind.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from indexer.files import remove, staging_of, write_new
from indexer.paths import private_dir
from indexer.shapes import dataclass
from indexer.transcripts.lines import open_regular
from smart_fork.errors import ForkRefused, NotFound

_PIECE = 1 << 20


@dataclass(frozen=True, slots=True)
class Staged:
    """A transcript's place for a fork, and the files created for it; none if it was there already."""

    path: Path
    created: tuple[Path, ...] = ()

    def undo(self) -> None:
        """Delete the created files, for a fork that was not started."""
        for path in self.created:
            remove(path)


def stage_transcript(source: Path, session_id: str, folder: Path) -> Staged:
    """Put a session's transcript `source`, and the folder of its name beside it, into `folder`.

    Raises:
        NotFound: The source is gone.
        ForkRefused: Another file of that name exists.
    """
    if not source.is_file():
        raise NotFound(f"The session's log is gone: {source}", "The agent may have deleted it.")
    target = folder / f"{session_id}{source.suffix}"
    if target.exists() and target.samefile(source):
        return Staged(target)
    private_dir(folder)
    created: list[Path] = []
    try:
        copy_folder(source.with_suffix(""), target.with_suffix(""), created)
        if copy_file(source, target):
            created.append(target)
    except BaseException:
        Staged(target, tuple(created)).undo()
        raise
    return Staged(target, tuple(created))


def copy_file(source: Path, target: Path) -> bool:
    """Copy to a new private file. Return `False` if the same content is there already.

    Raises:
        ForkRefused: Another file exists there.
    """
    try:
        with open_regular(source) as file:
            size = os.fstat(file.fileno()).st_size  # the agent may be writing on: what was there is copied
            write_new(target, _pieces(file, size))
    except FileExistsError:
        if not _same_file(source, target):
            raise ForkRefused(
                f"Another version of this session is already there: {target}",
                "Fork into another directory or a new worktree, or fork the session that is there.",
            ) from None
        return False
    return True


def second_name(log: Path, target: Path) -> bool:
    """Give the log a second name `target`, as a hard link if possible, else as a copy. Return `False` if it exists.

    Raises:
        ForkRefused: Another file exists there.
    """
    try:
        target.hardlink_to(log)
    except FileExistsError:
        if not target.samefile(log):
            raise ForkRefused(
                f"Another version of this session is already there: {target}", "Fork it instead."
            ) from None
        return False
    except OSError:
        return copy_file(log, target)
    return True


def copy_folder(source: Path, target: Path, created: list[Path]) -> None:
    """Copy a folder that may be there, and is not a link. If it was copied, it is added to `created`.

    Raises:
        OSError: It cannot be copied.
        ForkRefused: Another folder of that name exists.
    """
    if source.is_dir() and not source.is_symlink():
        private_dir(target.parent)
        if copy_tree(source, target):
            created.append(target)


def copy_tree(source: Path, target: Path) -> bool:
    """Copy a folder's regular files, without symbolic links. Return `False` if the same files are there."""
    if os.path.lexists(target):
        if target.is_symlink() or not target.is_dir() or not _same_tree(source, target):
            raise ForkRefused(f"Another version of this is already there: {target}", "Fork into another directory.")
        return False
    staging = staging_of(target)
    try:
        staging.mkdir(mode=0o700)
        for path in _regular_files(source):
            into = staging / path.relative_to(source)
            private_dir(into.parent)
            copy_file(path, into)
        staging.rename(target)
    except OSError as error:
        if error.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise ForkRefused(f"Another process made this folder: {target}", "Try again.") from error
        raise
    finally:
        remove(staging)
    return True


def is_part_of(one: Path, other: Path) -> bool:
    """Return whether the folder `other` has every regular file of `one`, with the same content."""
    return all(_same_file(path, other / path.relative_to(one)) for path in _regular_files(one))


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece


def _regular_files(folder: Path) -> list[Path]:
    """Return all files below `folder`, without following symbolic links."""
    found = []
    for root, _folders, names in os.walk(folder, followlinks=False):
        found += [path for name in sorted(names) if not (path := Path(root, name)).is_symlink() and path.is_file()]
    return found


def _same_file(one: Path, other: Path) -> bool:
    if not other.is_file() or one.stat().st_size != other.stat().st_size:
        return False
    with open_regular(one) as a, open_regular(other) as b:
        while True:
            piece = a.read(_PIECE)
            if piece != b.read(_PIECE):
                return False
            if not piece:
                return True


def _same_tree(one: Path, other: Path) -> bool:
    return len(_regular_files(one)) == len(_regular_files(other)) and is_part_of(one, other)
