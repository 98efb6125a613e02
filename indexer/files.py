"""Paths of our state, atomic writes, and safe reading of files that others write.

Whoever reads a file sees the old or the new one, also after a loss of power. Files are private, unless the one that
they replace was not. The folder can be moved by one environment variable.
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
    """Every system call of writing a file, one method each: tests let each of them fail, or the process die in it."""

    def create(self, path: Path) -> int:
        """A new private file, to be written."""
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, descriptor: int, data: bytes) -> None:
        """All of `data`."""
        view = memoryview(data)
        while view:
            view = view[os.write(descriptor, view) :]

    def like(self, descriptor: int, model: os.stat_result) -> None:
        """Give it mode and owner of the file that it replaces; the owner only where we may."""
        info = os.fstat(descriptor)
        if (info.st_uid, info.st_gid) != (model.st_uid, model.st_gid):
            with contextlib.suppress(PermissionError):
                os.fchown(descriptor, model.st_uid, model.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(model.st_mode))

    def sync(self, descriptor: int) -> None:
        """On the disk, or an error."""
        os.fsync(descriptor)

    def close(self, descriptor: int) -> None:
        """Close it."""
        os.close(descriptor)

    def look(self, path: Path) -> os.stat_result | None:
        """Return the file's current stat, or `None`."""
        try:
            return path.stat()
        except FileNotFoundError:
            return None

    def link(self, staging: Path, target: Path) -> None:
        """Give the new file its name, which nobody must have."""
        target.hardlink_to(staging)

    def replace(self, staging: Path, target: Path) -> None:
        """The one step in which the new file becomes the file."""
        staging.replace(target)

    def remove(self, path: Path) -> None:
        """Take it away, if it is there."""
        path.unlink(missing_ok=True)

    def sync_folder(self, folder: Path) -> None:
        """The name is as durable as the file system makes it."""
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


DISK = Disk()


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


def state_home() -> Path:
    """``SMART_FORK_HOME`` or ``~/.smart-fork``: everything that smart-fork writes."""
    return Path(os.environ.get("SMART_FORK_HOME") or Path.home() / ".smart-fork").expanduser()


def config_home() -> Path:
    """``XDG_CONFIG_HOME`` or ``~/.config``: where others keep their settings. A relative one is none."""
    said = os.environ.get("XDG_CONFIG_HOME", "")
    return Path(said) if os.path.isabs(said) else Path.home() / ".config"  # noqa: PTH117 - of a string


def private_dir(path: Path) -> Path:
    """Create `path` and its missing parents, each with mode 0700, and return it."""
    if not path.is_dir():
        private_dir(path.parent)  # `parents=True` would make them with the mode of any other folder
        path.mkdir(exist_ok=True, mode=0o700)
    return path


def file_name(session_id: str) -> str:
    """A name for what belongs to a session. Ids come from logs: whatever could leave a folder is replaced."""
    safe = re.sub(r"[^A-Za-z0-9._-]", "_", session_id).lstrip(".")[:120]
    if not safe or safe != session_id:  # no two sessions share a file
        safe += "-" + hashlib.blake2b(session_id.encode("utf-8", "replace"), digest_size=6).hexdigest()
    return safe


def index_root() -> Path:
    """The folder of the Markdown exports, one sub-folder an agent."""
    return state_home() / "index"


def checkpoints_dir() -> Path:
    """The folder of the lists of sessions that repositories keep themselves. They can always be made again."""
    return state_home() / "checkpoints"


def index_db() -> Path:
    """The search index. It can always be rebuilt from the logs."""
    return state_home() / "index.db"


#: How the name of a log ends that its agent has compressed.
COMPRESSED = ".jsonl.zst"
#: No log is larger, and none needs more memory to be unpacked.
_MOST_UNPACKED, _MOST_WINDOW = 2 << 30, 64 << 20
#: How much is unpacked at once of what is passed over.
_PIECE_BYTES = 1 << 20


def open_regular(path: Path | str) -> IO[bytes]:
    """Open `path` read-only; a FIFO, socket or directory is an `OSError` at once instead of a wait without end.

    A log that its agent has compressed is read as it was.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"not a regular file: {path}")
    file = os.fdopen(descriptor, "rb", buffering=1 << 16)
    return io.BufferedReader(_Unpacked(file), 1 << 16) if str(path).endswith(COMPRESSED) else file


class _Unpacked(io.RawIOBase):
    """A compressed log as it was. Nothing is written to a disk: going back begins again."""

    def __init__(self, file: IO[bytes]) -> None:
        self._file = file
        self._begin()

    def _begin(self) -> None:
        import zstandard  # hardly anybody has such logs

        self._file.seek(0)
        unpacking = zstandard.ZstdDecompressor(max_window_size=_MOST_WINDOW)
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
        """See `io.RawIOBase`.

        Raises:
            OSError: it is damaged, or larger than any log.
        """
        try:
            size: int = self._stream.readinto(buffer)
        except Exception as error:  # the library is imported late
            raise OSError(f"a damaged archive: {error}") from error
        self._at += size
        if self._at > _MOST_UNPACKED:
            raise OSError(f"an archive of more than {_MOST_UNPACKED >> 20:,} MB")
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
