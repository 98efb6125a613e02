"""A compressed copy of a file: one zstd frame under a name of its own, which is never written again.

What is true of it, its size and the stamp of the original, is kept by whoever asked for it.
"""

from __future__ import annotations

import os
import re
import secrets
from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any, Self

from indexer.errors import IndexerError
from indexer.files import new_file
from indexer.shapes import dataclass
from indexer.transcripts.files import stamp_of
from indexer.transcripts.lines import open_regular

#: A session's log is compressed again whenever it has grown: 3 MB in a hundredth of a second.
_LEVEL = 3
_PIECE = 1 << 20
_NAME = re.compile(r"[0-9a-f]{16}\.zst")


class DamagedCopyError(IndexerError, OSError):
    """A copy is not what was copied. To whoever reads logs it is a file that cannot be read."""

    code = "damaged_copy"


@dataclass(frozen=True, slots=True)
class Compressed:
    """A copy: its file's `name`, the original's size, time and inode, and the copy's length."""

    name: str
    size: int
    mtime_ns: int
    inode: int
    length: int

    @property
    def stamp(self) -> tuple[int, int, int]:
        """Tells an original that has not changed, as `LogFile.stamp` does."""
        return self.size, self.mtime_ns, self.inode

    @classmethod
    def from_json(cls, facts: Any) -> Self:
        """Return the value of these fields.

        Raises:
            ValueError, TypeError: these are no such facts.
        """
        made = cls(**facts)
        if not _NAME.fullmatch(made.name) or any(not isinstance(number, int) for number in astuple(made)[1:]):
            raise ValueError("not the facts of a copy")
        return made


def up_to_date(source: Path, folder: Path, before: Compressed | None) -> Compressed:
    """Return a copy in `folder` of `source` as it is now; `before` if that is one.

    The file of `before` stays until the caller has kept what is returned; only then may it be removed.

    Raises:
        OSError: `source` cannot be read, or the copy not be written.
    """
    import zstandard

    with open_regular(source) as file:
        stamp = stamp_of(os.fstat(file.fileno()))
        if before is not None and before.stamp == stamp:
            return before
        name = f"{secrets.token_hex(8)}.zst"
        with new_file(folder / name) as copy:
            size, length = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).copy_stream(file, copy)
    return Compressed(name, size, *stamp[1:], length)


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

    size = 0
    with open_regular(folder / copy.name) as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file)
        try:
            while size <= copy.size and (piece := stream.read(_PIECE)):
                size += len(piece)
                yield piece
        except zstandard.ZstdError as error:
            raise DamagedCopyError(f"{folder / copy.name} is damaged: {error}") from error
    if size != copy.size:
        raise DamagedCopyError(f"{folder / copy.name} is damaged")
