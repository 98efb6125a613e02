"""How a browser gets in: a file that only its owner can read, which sends a code that works once and soon expires.

The code stands in no command line, which every user of the machine can read, and in no address, where the browser's
history would keep it.
"""

from __future__ import annotations

import os
import secrets
import stat
import threading
import time
from collections.abc import Callable
from pathlib import Path

from indexer.files import replace_file
from indexer.paths import private_dir
from indexer.shapes import dataclass
from smart_fork.page.renderer import way_in

CODE_SECONDS = 60.0
MAX_CODES = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """`file` is opened in a browser, and sends the `code`; `until` then. `project` is the one it was opened from."""

    code: str
    file: Path
    until: float
    project: str = ""


class Entries:
    """Those that were made and not used, to the page at `address`. In `folder` are their files alone."""

    def __init__(self, folder: Path, address: str, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self.address = address
        self._now = now
        self._open: dict[str, Entry] = {}
        self._lock = threading.Lock()

    def new(self, project: str = "") -> Entry:
        """One more way to the page, which is then asked about that project.

        Raises:
            OSError: the file cannot be written, or could be read by others.
        """
        self.sweep()
        _own(self._folder)
        code = secrets.token_urlsafe(24)
        entry = Entry(code, self._folder / f"open-{secrets.token_hex(8)}.html", self._now() + CODE_SECONDS, project)
        with self._lock:
            self._open[code] = entry
            first = next(iter(self._open)) if len(self._open) > MAX_CODES else ""
        self.use(first)
        replace_file(entry.file, [way_in(self.address, code)], durable=False)
        return entry

    def use(self, code: str) -> Entry | None:
        """The entry that `code` opens now; it never opens anything again."""
        with self._lock:
            entry = self._open.pop(code, None)
        if entry is None:
            return None
        entry.file.unlink(missing_ok=True)
        return entry if self._now() < entry.until else None

    def sweep(self) -> None:
        """Take away those whose time is over."""
        with self._lock:
            late = [code for code, entry in self._open.items() if entry.until <= self._now()]
        for code in late:
            self.use(code)

    def end(self) -> None:
        """Take away all, those of a service too that was killed."""
        with self._lock:
            self._open.clear()
        for file in () if self._folder.is_symlink() else self._folder.glob("*open-*.html*"):
            file.unlink(missing_ok=True)


def _own(folder: Path) -> None:
    about = private_dir(folder).lstat()
    if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not a folder of your own")
    if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        folder.chmod(0o700)
