"""Where an agent stores sessions, and how logs and the folders beside them are copied, linked and removed there."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, ClassVar

from indexer.lazy_compilation import dataclass
from indexer.safe_files import open_regular, private_dir, remove, staging_of, sweep_beside, write_new
from smart_fork.errors import ForkRefused, NotFound


@dataclass(frozen=True, slots=True)
class StagedTranscript:
    """A session's log at the path where its agent can fork it, and the files that were created for that."""

    path: Path
    created: tuple[Path, ...] = ()

    def undo(self) -> None:
        """Delete the files in `created`, because the fork was not started."""
        for path in self.created:
            remove(path)


class Storage:
    """The rules for where an agent stores sessions, and in which directories it can resume each; by default in all."""

    #: True if it can resume a session in every directory, since smart-fork gives the log a second path there.
    everywhere: ClassVar = False

    def folder(self, directory: Path) -> Path | None:
        """Return the only folder in which the agent, started in `directory`, finds sessions; `None` for all."""
        return None

    def finds(self, log: Path, cwd: str, directory: Path) -> bool:
        """Return True if the agent, started in `directory`, can resume the session of `log`, which worked in `cwd`."""
        return self.everywhere or self.folder(directory) in (None, log.parent)

    def restored(self, place: str, session_id: str) -> str:
        """Return the path for restoring a log that was at `place`. Both paths are relative to the agent's folder."""
        return place

    def second_path(self, log: Path, session_id: str, directory: Path) -> Path | None:
        """Return a second path that `log` needs so that the agent, started in `directory`, resumes its session.

        Return `None` if the agent finds the log at its present path.
        """
        return None

    @staticmethod
    def stage(log: Path, session_id: str, folder: Path) -> StagedTranscript:
        """Copy a session's log, and the folder beside it with the same name, into `folder` for a fork.

        Raises:
            NotFound: The log is gone.
            ForkRefused: Another file of that name exists.
        """
        if not log.is_file():
            raise NotFound(f"The session's log is gone: {log}", "The agent may have deleted it.")
        target = folder / f"{session_id}{log.suffix}"
        if target.exists() and target.samefile(log):
            return StagedTranscript(target)
        private_dir(folder)
        created: list[Path] = []
        with undone_on_failure(created):
            copy_folder(log.with_suffix(""), target.with_suffix(""), created)
            if copy_file(log, target):
                created.append(target)
        return StagedTranscript(target, tuple(created))

    @staticmethod
    def copy_folder_beside(log: Path, target: Path) -> None:
        """Copy the folder with the log's name, if there is one, to the same place beside `target`."""
        copy_folder(log.with_suffix(""), target.with_suffix(""), [])

    @staticmethod
    def add_path(log: Path, target: Path) -> None:
        """Give a log the second path `target`: as a hard link if possible, else as a copy.

        Raises:
            ForkRefused: Another file exists there.
        """
        try:
            target.hardlink_to(log)
        except OSError:
            copy_file(log, target)

    @staticmethod
    def has_more_beside(log: Path, other: Path) -> bool:
        """Return True if the folder beside `log` has a file that the folder beside `other` lacks, or has changed."""
        return log.with_suffix("").is_dir() and not _is_part_of(log.with_suffix(""), other.with_suffix(""))

    @staticmethod
    def remove_copy(path: Path, session_id: str) -> None:
        """Delete a copy of a session: its log, then the folders named after the session, and an empty parent folder."""
        sweep_beside(path)
        remove(path)
        for folder in (path.with_suffix(""), path.parent):
            if folder.name == session_id and not folder.is_symlink():
                remove(folder)
        with suppress(OSError):
            path.parent.rmdir()


@contextmanager
def undone_on_failure(created: list[Path]) -> Iterator[None]:
    """Within this context, delete the `created` files after a failure. The caller may still append to the list.

    Raises:
        ForkRefused: A file exists already (instead of `FileExistsError`).
    """
    try:
        yield
    except BaseException as error:
        for path in created:
            with suppress(OSError):
                remove(path)
        if isinstance(error, FileExistsError):
            raise ForkRefused(f"A session of this id already exists: {error.filename2 or error.filename}") from None
        raise


_PIECE = 1 << 20


def copy_file(source: Path, target: Path) -> bool:
    """Copy a file to a new private file. Return False if the target exists with the same content.

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


def copy_folder(source: Path, target: Path, created: list[Path]) -> None:
    """Copy the folder `source`, unless it is a link or missing, to `target`. Append a new `target` to `created`.

    Raises:
        OSError: The folder cannot be copied.
        ForkRefused: Another folder of that name exists.
    """
    if source.is_dir() and not source.is_symlink():
        private_dir(target.parent)
        if _copy_tree(source, target):
            created.append(target)


def _copy_tree(source: Path, target: Path) -> bool:
    """Copy a folder's regular files to the new folder `target`. Return False if it has the same files already."""
    if os.path.lexists(target):
        same = target.is_dir() and not target.is_symlink() and _is_part_of(source, target)
        if not same or len(_regular_files(source)) != len(_regular_files(target)):
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


def _is_part_of(one: Path, other: Path) -> bool:
    return all(_same_file(path, other / path.relative_to(one)) for path in _regular_files(one))


def _pieces(file: IO[bytes], size: int) -> Iterator[bytes]:
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        size -= len(piece)
        yield piece


def _regular_files(folder: Path) -> list[Path]:
    paths = (Path(root, name) for root, _, names in os.walk(folder, followlinks=False) for name in sorted(names))
    return [path for path in paths if not path.is_symlink() and path.is_file()]


def _same_file(one: Path, other: Path) -> bool:
    if not other.is_file() or (size := one.stat().st_size) != other.stat().st_size:
        return False
    with open_regular(one) as a, open_regular(other) as b:
        return all(piece == b.read(len(piece)) for piece in _pieces(a, size))
