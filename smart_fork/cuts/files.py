"""Transcripts as files, which a cut reads and replaces. An agent without files of its own overrides all of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from indexer.disk import DISK, Disk
from indexer.files import replace_file
from smart_fork.cuts.lines import stamp_of
from smart_fork.cuts.model import Stamp
from smart_fork.errors import ForkRefused

_PIECE = 1 << 20


class Files:
    """The transcripts of an agent."""

    def has(self, path: Path) -> bool:
        """Return whether there is such a transcript."""
        return path.is_file()

    def stamp(self, path: Path, disk: Disk = DISK) -> Stamp | None:
        """Return what tells this version of a transcript from another; `None` without a transcript."""
        return stamp_of(now) if (now := disk.look(path)) else None

    def content(self, path: Path) -> Iterator[bytes]:
        """Return the bytes of a transcript, in pieces."""
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                yield piece

    def begins_with(self, path: Path, before: Iterable[bytes]) -> bool:
        """Return whether a transcript still has everything that it had before."""
        with path.open("rb") as file:
            return all(piece == file.read(len(piece)) for piece in before)

    def replace(self, path: Path, pieces: Iterable[bytes], expected: Stamp | None, disk: Disk = DISK) -> None:
        """Write a transcript again, completely or not at all. `expected` is the version to replace.

        Raises:
            ForkRefused: The transcript has changed.
            OSError: The transcript is as it was.
        """

        def unchanged() -> None:
            if expected is not None and self.stamp(path, disk) != expected:
                raise ForkRefused(
                    f"The transcript changed during reading: {path}", "Its agent is working. End it and try again."
                )

        replace_file(path, pieces, like_before=True, ready=unchanged, disk=disk)

    def remove(self, path: Path) -> None:
        """Delete a transcript."""
        path.unlink(missing_ok=True)

    def finish(self, path: Path) -> None:
        """Finish `replace` after its process was killed."""
