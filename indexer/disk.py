"""Every system call of writing a file, one method each: tests let each of them fail, or the process die in it."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path


class Disk:
    """The real one."""

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
        """What is there now."""
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
