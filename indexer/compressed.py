"""A compressed copy of a file that grows: a zstd stream to which what is new is appended as a frame of its own.

What is true of it, its size, digest and length, is kept by whoever asked for it. Bytes behind that length were left by
a process that was killed; they are not read, and written over.
"""

from __future__ import annotations

import hashlib
import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import IO, Any, Protocol, Self, cast

from indexer.errors import IndexerError
from indexer.shapes import dataclass
from indexer.transcripts.files import stamp_of
from indexer.transcripts.lines import open_regular

#: A copy of so many frames is made again as one, which is smaller.
MAX_FRAMES = 64
_LEVEL = 5
_PIECE = 1 << 20
_NAME = re.compile(r"[0-9a-f]{16}\.zst")


class DamagedCopyError(IndexerError, OSError):
    """A copy is not what was copied. To whoever reads logs it is a file that cannot be read."""

    code = "damaged_copy"


class _Hash(Protocol):
    def update(self, data: bytes, /) -> None: ...
    def hexdigest(self) -> str: ...
    def copy(self) -> _Hash: ...


@dataclass(frozen=True, slots=True)
class Compressed:
    """A copy: its file's `name`, the original's size, time, inode and digest, and the copy's length and frames."""

    name: str
    size: int
    mtime_ns: int
    inode: int
    digest: str
    length: int
    frames: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Tells an original that has not changed, as `LogFile.stamp` does."""
        return self.size, self.mtime_ns, self.inode

    def as_json(self) -> list[Any]:
        """The facts as JSON values."""
        return list(astuple(self))

    @classmethod
    def from_json(cls, facts: Any) -> Self:
        """The reverse of `as_json`.

        Raises:
            ValueError, TypeError: these are no such facts.
        """
        name, size, mtime_ns, inode, digest, length, frames = facts
        if not _NAME.fullmatch(name) or not isinstance(digest, str):
            raise ValueError("not the name of a copy")
        return cls(name, int(size), int(mtime_ns), int(inode), digest, int(length), int(frames))


def up_to_date(source: Path, folder: Path, before: Compressed | None) -> Compressed:
    """A copy in `folder` of `source` as it is now; `before`, where what it holds is what `source` begins with, is used.

    What `before` says stays true until the caller has kept what is returned; only then may its file be removed.

    Raises:
        OSError: `source` cannot be read, or the copy not be written.
    """
    with open_regular(source) as file:
        info = os.fstat(file.fileno())
        stamp = stamp_of(info)
        if before is not None and before.stamp == stamp:
            return before
        grown = before is not None and before.frames < MAX_FRAMES and info.st_size >= before.size
        digest: _Hash = hashlib.blake2b(digest_size=16)
        if before is not None and grown and _is_there(folder, before) and _read_into(digest, file, before.size):
            grown = digest.hexdigest() == before.digest
        else:
            grown = False
        if before is None or not grown:
            file.seek(0)
            digest = hashlib.blake2b(digest_size=16)
            start = Compressed(f"{secrets.token_hex(8)}.zst", 0, 0, 0, "", 0, 0)
        else:
            start = before
        copied, length = _append(file, info.st_size - start.size, digest, folder / start.name, start.length)
    return Compressed(
        start.name, start.size + copied, *stamp[1:], digest.hexdigest(), length, start.frames + bool(copied)
    )  # fmt: skip


def sampled(source: Path, most: int) -> tuple[int, int]:
    """How many bytes the beginning of a file has, at most `most`, and about how many they take in a copy.

    Raises:
        OSError: it cannot be read.
    """
    import zstandard

    with open_regular(source) as file:
        data = file.read(most)
    return len(data), len(zstandard.ZstdCompressor(level=_LEVEL).compress(data))


def pieces(folder: Path, copy: Compressed) -> Iterator[bytes]:
    """What was copied, piece by piece.

    Raises:
        DamagedCopyError: it is not what was copied. Said at the end: what came before must not be used either.
        OSError: it cannot be read.
    """
    import zstandard

    digest, size = hashlib.blake2b(digest_size=16), 0
    with open_regular(folder / copy.name) as file:
        beginning = cast("IO[bytes]", _Beginning(file, copy.length))
        stream = zstandard.ZstdDecompressor().stream_reader(beginning, read_across_frames=True)
        try:
            while size <= copy.size and (piece := stream.read(_PIECE)):
                size += len(piece)
                digest.update(piece)
                yield piece
        except zstandard.ZstdError as error:
            raise DamagedCopyError(f"{folder / copy.name} is damaged: {error}") from error
    if (size, digest.hexdigest()) != (copy.size, copy.digest):
        raise DamagedCopyError(f"{folder / copy.name} is damaged")


class _Beginning:
    """The first bytes of a file, as a file."""

    def __init__(self, file: IO[bytes], length: int) -> None:
        self._file, self._left = file, length

    def read(self, size: int = -1) -> bytes:
        data = self._file.read(self._left if size < 0 else min(size, self._left))
        self._left -= len(data)
        return data


def _is_there(folder: Path, copy: Compressed) -> bool:
    try:
        return (folder / copy.name).stat().st_size >= copy.length
    except OSError:
        return False


def _read_into(digest: _Hash, file: IO[bytes], size: int) -> bool:
    """Whether so many bytes could be read."""
    while size > 0 and (piece := file.read(min(size, _PIECE))):
        digest.update(piece)
        size -= len(piece)
    return size == 0


def _append(file: IO[bytes], size: int, digest: _Hash, target: Path, at: int) -> tuple[int, int]:
    """Append up to `size` bytes as a frame at byte `at` of the copy: how many there were, and the copy's new length."""
    import zstandard

    compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compressobj()
    copied = 0
    descriptor = os.open(target, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    with os.fdopen(descriptor, "r+b", buffering=0) as copy:
        copy.truncate(at)
        copy.seek(at)
        try:
            while copied < size and (piece := file.read(min(size - copied, _PIECE))):
                copied += len(piece)
                digest.update(piece)
                _write_all(copy, compressor.compress(piece))
            if copied:
                _write_all(copy, compressor.flush())
            os.fsync(copy.fileno())
        except OSError:
            copy.truncate(at)  # on a full disk it would take the last room from everything else
            raise
        return copied, copy.tell()


def _write_all(file: IO[bytes], data: bytes) -> None:
    """Write it without a buffer, which could not be emptied on a full disk."""
    while data:
        data = data[file.write(data) :]
