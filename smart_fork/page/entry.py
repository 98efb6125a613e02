"""How a browser gets in, and stays: a file that only its owner can read sends a code that works once and soon expires.

The code stands in no command line, which every user of the machine can read, and in no address, where the browser's
history would keep it.
"""

from __future__ import annotations

import hashlib
import logging
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import orjson

from indexer.files import replace_file
from indexer.paths import private_dir
from indexer.shapes import dataclass
from smart_fork.page.renderer import way_in

#: A cookie ends when it was not used for so long, and when it is so old.
IDLE_SECONDS, LONGEST_SECONDS = 12 * 3600.0, 30 * 86_400.0
#: What a clock may be set back without anybody having to come in again.
SLACK_SECONDS = 300.0
#: When it was last used is written down so often: a restart takes no longer from it.
NOTED_SECONDS = 600.0
#: The one that was not used for longest gives way.
MAX_VISITS = 64

log = logging.getLogger(__name__)


class Visits:
    """The cookies called `name` that are good, kept in `file` over a restart. `token` gives the token of now."""

    def __init__(self, name: str, file: Path, token: Callable[[], str], now: Callable[[], float] = time.time) -> None:
        self.name = name
        self._file = file
        self._token = token
        self._now = now
        self._seen = self._kept()
        self._noted = 0.0

    def begin(self) -> str:
        """Let a browser in: what its cookie holds."""
        value = secrets.token_urlsafe(32)
        now = self._now()
        self._seen = {key: times for key, times in self._seen.items() if self._lasts(*times)}
        while len(self._seen) >= MAX_VISITS:
            del self._seen[min(self._seen, key=lambda key: self._seen[key][1])]
        self._seen[self._key(value)] = (now, now)
        self._note()
        return value

    def good(self, values: Sequence[str]) -> bool:
        """Whether one of these is a cookie of ours that has not ended; it is being used."""
        return any(self._use(value) for value in values)

    def end(self) -> None:
        """End all of them."""
        self._seen.clear()
        self._note()

    def _use(self, value: str) -> bool:
        key = self._key(value)
        times = self._seen.get(key)
        if times is None:
            return False
        if not self._lasts(*times):
            del self._seen[key]
            return False
        self._seen[key] = (times[0], self._now())
        if self._now() - self._noted >= NOTED_SECONDS:
            self._note()
        return True

    def _lasts(self, begun: float, used: float) -> bool:
        now = self._now()
        return -SLACK_SECONDS <= now - begun < LONGEST_SECONDS and -SLACK_SECONDS <= now - used < IDLE_SECONDS

    def _key(self, value: str) -> str:
        """What of a cookie is kept: what is looked up by it tells nothing by how long it takes."""
        return hashlib.blake2b(value.encode("utf-8", "replace"), key=self._token().encode()[:64]).hexdigest()

    def _note(self) -> None:
        self._noted = self._now()
        try:
            replace_file(private_dir(self._file.parent) / self._file.name, [orjson.dumps(self._seen)], durable=False)
        except OSError as error:  # a restart will end them, which is the safe side
            log.warning("who was let in cannot be written down: %s", error)

    def _kept(self) -> dict[str, tuple[float, float]]:
        try:
            given = orjson.loads(self._file.read_bytes())
            return {str(key): (float(begun), float(used)) for key, (begun, used) in given.items()}
        except (OSError, ValueError, TypeError, AttributeError):
            return {}


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
