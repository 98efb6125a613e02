"""Paths of smart-fork's state, atomic writes, and safe reading of files that other programs write.

A reader sees the old or the new file, also after a power failure. Files are private, unless the replaced file was not.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import io
import os
import re
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO, Any


class Disk:
    """The system calls that write a file, one method for each, so that tests can let each of them fail."""

    def create(self, path: Path) -> int:
        """Create a private file for writing, and return its file descriptor."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, data: bytes) -> None:
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def like(self, descriptor: int, model: os.stat_result) -> None:
        """Give the open file the mode of the replaced file `model`, and its owner if this process may do that."""
        info = os.fstat(descriptor)
        if (info.st_uid, info.st_gid) != (model.st_uid, model.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, model.st_uid, model.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(model.st_mode))

    def sync(self, descriptor: int) -> None:
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def look(self, path: Path) -> os.stat_result | None:
        try:
            return path.stat()
        except FileNotFoundError:
            return None

    def link(self, staging: Path, target: Path) -> None:
        """Give the new file at `staging` its final name `target`, which must not exist."""
        target.hardlink_to(staging)

    def replace(self, staging: Path, target: Path) -> None:
        staging.replace(target)

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """Flush the folder, so that the file's name is as durable as the file system allows."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


DISK = Disk()


#: Age from which a temporary file certainly has no writer any longer.
STALE_SECONDS = 3600
#: Number of characters of the target's name in the name of its temporary file.
STAGING_NAME_CHARACTERS = 50
_STAGING = re.compile(r"\..+\.[0-9a-f]{16}\.tmp")
#: Error numbers of `link` on file systems without hard links.
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EXDEV, errno.ENOSYS, errno.EMLINK)
_WRITE_BYTES = 1 << 20


def replace_file(
    target: Path, pieces: Iterable[bytes], *, like_before: bool = False, durable: bool = True,
    ready: Callable[[], None] | None = None, disk: Disk = DISK,
) -> None:  # fmt: skip
    """Write `pieces` of content to a file atomically, in place of an existing one.

    `like_before` keeps mode and owner of the existing file. `ready` is called just before the rename and may raise.
    With `durable` False, the disk is not flushed, for files that can be made again.

    Raises:
        OSError: the content cannot be written. The existing file is unchanged.
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
    """Write `pieces` of content to a file that does not exist yet.

    Raises:
        FileExistsError: the file exists, and is unchanged.
    """
    with new_file(target) as file:
        file.writelines(pieces)


@contextlib.contextmanager
def new_file(target: Path, *, disk: Disk = DISK) -> Iterator[IO[bytes]]:
    """Open a new file for writing. It gets the name `target` when the block ends without an error, else it is removed.

    Raises:
        FileExistsError: the file exists, and is unchanged.
    """
    sweep(target.parent)
    with (
        _staged(target, lambda staging: _publish(staging, target, disk), disk) as descriptor,
        os.fdopen(descriptor, "wb", closefd=False) as file,
    ):
        yield file


def remove(path: Path) -> None:
    """Remove one of smart-fork's own files or folders, if it exists."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def staging_of(target: Path) -> Path:
    """Return a path beside `target` for a temporary file, with a name that `sweep` recognizes."""
    return target.with_name(f".{target.name[:STAGING_NAME_CHARACTERS]}.{secrets.token_hex(8)}.tmp")


def sweep(folder: Path, seconds: float = STALE_SECONDS) -> None:
    """Remove temporary files of killed processes from `folder`: those to which nothing was written for `seconds`."""
    for path in folder.glob(".*.tmp"):
        with contextlib.suppress(OSError):
            if _STAGING.fullmatch(path.name) and time.time() - path.lstat().st_mtime >= seconds:
                remove(path)


def sweep_beside(target: Path) -> None:
    """Remove the temporary files that killed processes left beside `target`. No process may be writing `target` now."""
    for path in target.parent.glob(f".{glob.escape(target.name[:STAGING_NAME_CHARACTERS])}.*.tmp"):
        if _STAGING.fullmatch(path.name):
            with contextlib.suppress(OSError):
                remove(path)


@contextlib.contextmanager
def _staged(target: Path, publish: Callable[[Path], None], disk: Disk, *, durable: bool = True) -> Iterator[int]:
    """Create a private temporary file beside `target`, and yield its descriptor. `publish` then gives it its name.

    If `durable`, the content is flushed before: a power failure could otherwise leave a name without content.
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
    """Join small pieces of content into fewer and larger ones."""
    waiting = bytearray()
    for piece in pieces:
        waiting += piece
        if len(waiting) >= _WRITE_BYTES:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def state_home() -> Path:
    """Return the folder for everything that smart-fork writes: ``SMART_FORK_HOME`` or ``~/.smart-fork``."""
    return Path(os.environ.get("SMART_FORK_HOME") or Path.home() / ".smart-fork").expanduser()


def config_home() -> Path:
    """Return the folder of all programs' settings: ``XDG_CONFIG_HOME`` if absolute, else ``~/.config``."""
    said = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(said) if os.path.isabs(said) else Path.home() / ".config"  # noqa: PTH117 - of a string


def private_dir(path: Path) -> Path:
    """Create the folder `path` and its missing parents with mode 0700. Return `path`."""
    if not path.is_dir():
        private_dir(path.parent)  # `parents=True` would make them with the mode of any other folder
        path.mkdir(exist_ok=True, mode=0o700)
    return path


def file_name(session_id: str) -> str:
    """Return a file name for a session's data. Characters with which it could leave its folder are replaced."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", session_id).lstrip(".")[:120]
    if not safe or safe != session_id:  # no two sessions share a file
        safe += "-" + hashlib.blake2b(session_id.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return safe


def index_root() -> Path:
    """Return the folder of the Markdown exports, with one sub-folder for each agent."""
    return state_home() / "index"


def checkpoints_dir() -> Path:
    """Return the folder of cached lists of checkpoints (sessions kept in git branches), which can be made again."""
    return state_home() / "checkpoints"


def index_db() -> Path:
    """Return the path of the search index, which can always be rebuilt from the logs."""
    return state_home() / "index.db"


#: The ending of logs that their agent has compressed.
COMPRESSED = ".jsonl.zst"
#: Maximum size of an uncompressed log, and maximum memory for uncompressing it.
_MAX_UNPACKED_BYTES, _MAX_WINDOW_BYTES = 2 << 30, 64 << 20
#: Bytes that are uncompressed at once while skipping.
_PIECE_BYTES = 1 << 20


def open_regular(path: Path | str) -> io.BufferedReader:
    """Open `path` for reading, uncompressed. A FIFO, socket or directory raises `OSError` instead of blocking."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"not a regular file: {path}")
    compressed = str(path).endswith(COMPRESSED)
    return io.BufferedReader(_Unpacked(os.fdopen(descriptor, "rb")) if compressed else io.FileIO(descriptor), 1 << 16)


class _Unpacked(io.RawIOBase):
    """The uncompressed content of a compressed log. Seeking backwards reads again from the beginning."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._begin()

    def _begin(self) -> None:
        import zstandard  # hardly anybody has such logs

        self._file.seek(0)
        unpacking = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW_BYTES)
        self._stream, self._at = unpacking.stream_reader(self._file, read_across_frames=True), 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        try:
            size: int = self._stream.readinto(buffer)
        except Exception as error:  # the library is imported late
            raise OSError(f"a damaged archive: {error}") from error
        self._at += size
        if self._at > _MAX_UNPACKED_BYTES:
            raise OSError(f"an archive of more than {_MAX_UNPACKED_BYTES >> 20:,} MB")
        return size

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        if whence == os.SEEK_END:
            while self.read(_PIECE_BYTES):
                pass
        to = offset + (0 if whence == os.SEEK_SET else self._at)
        if to < self._at:
            self._begin()
        while self._at < to and self.read(min(_PIECE_BYTES, to - self._at)):
            pass
        return self._at
