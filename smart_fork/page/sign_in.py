"""Sign-in of browsers: codes that work once, and cookies.

A private HTML file sends a code that works once. So the code is in no command line, which every user of the machine can
read, and in no address, which the browser's history would keep.
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
from typing import Any

import orjson

from indexer.lazy_compilation import dataclass
from indexer.safe_files import private_dir, replace_file
from smart_fork.page.forms import FORM_SECONDS, PageForms
from smart_fork.page.renderer import code_file, sign_in_page

#: A cookie expires after this time without use, and at this age.
IDLE_SECONDS, MAX_AGE_SECONDS = 12 * 3600.0, FORM_SECONDS
#: The time by which a clock may be set back without ending sign-ins.
SLACK_SECONDS = 300.0
#: The interval of storing a cookie's last use, and so the most that a restart takes from its lifetime.
NOTED_SECONDS = 600.0
#: The number of valid cookies. A further one replaces the cookie that was unused for longest.
MAX_VISITS = 64

log = logging.getLogger(__name__)


class SignInCookies:
    """The cookies, called `name`, of signed-in browsers, stored as digests in `file` to survive restarts.

    `token` returns the current token of the service. Another token makes all cookies invalid.
    """

    def __init__(self, name: str, file: Path, token: Callable[[], str], now: Callable[[], float] = time.time) -> None:
        self.name = name
        self._file = file
        self._token = token
        self._now = now
        self._seen = self._kept()
        self._noted = 0.0

    def begin(self) -> str:
        """Store a new cookie, which signs a browser in, and return its value."""
        value = secrets.token_urlsafe(32)
        now = self._now()
        self._seen = {key: times for key, times in self._seen.items() if self._lasts(*times)}
        while len(self._seen) >= MAX_VISITS:
            del self._seen[min(self._seen, key=lambda key: self._seen[key][1])]
        self._seen[self._key(value)] = (now, now)
        self._note()
        return value

    def good(self, values: Sequence[str]) -> bool:
        """Return True if one of the cookie `values` is valid, and extend its lifetime."""
        return any(self._use(value) for value in values)

    def end(self) -> None:
        """Make all cookies invalid, so that all browsers are signed out."""
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
        return -SLACK_SECONDS <= now - begun < MAX_AGE_SECONDS and -SLACK_SECONDS <= now - used < IDLE_SECONDS

    def _key(self, value: str) -> str:
        """Return the digest under which a cookie is stored: the time to find it reveals nothing about the cookie."""
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
class SignInCode:
    """A code with which one browser can sign in once. When a browser opens `file`, the file sends the `code`.

    `until` is when the code expires. `project` is the directory in which the user asked for it.
    """

    code: str
    file: Path
    until: float
    project: str = ""


class SignInCodes:
    """The unused sign-in codes of the page at `address`. Their files are in `folder`, which contains no other files."""

    def __init__(self, folder: Path, address: str, now: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self.address = address
        self._now = now
        self._open: dict[str, SignInCode] = {}
        self._lock = threading.Lock()

    def new(self, project: str = "") -> SignInCode:
        """Create a sign-in code and its file. The browser that signs in with it shows `project` from then on.

        Raises:
            OSError: the file cannot be written, or other users could read it.
        """
        self.sweep()
        _own(self._folder)
        code = secrets.token_urlsafe(24)
        file = self._folder / f"open-{secrets.token_hex(8)}.html"
        entry = SignInCode(code, file, self._now() + CODE_SECONDS, project)
        with self._lock:
            self._open[code] = entry
            first = next(iter(self._open)) if len(self._open) > MAX_CODES else ""
        self.use(first)
        replace_file(entry.file, [code_file(self.address, code)], durable=False)
        return entry

    def use(self, code: str) -> SignInCode | None:
        """Return the entry of a valid sign-in `code`, or `None`. It works only once, and its file is deleted."""
        with self._lock:
            entry = self._open.pop(code, None)
        if entry is None:
            return None
        entry.file.unlink(missing_ok=True)
        return entry if self._now() < entry.until else None

    def sweep(self) -> None:
        """Delete expired codes and their files."""
        with self._lock:
            late = [code for code, entry in self._open.items() if entry.until <= self._now()]
        for code in late:
            self.use(code)

    def end(self) -> None:
        """Delete all codes and their files, including files that a killed service has left."""
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


class SignIn:
    """The cookies, codes and forms of the page at `host`, a name with a port. Their files are in `folder`.

    Cookies and form names are signed with the current `token`, so that another token makes them invalid.
    """

    def __init__(self, folder: Path, host: str, token: Callable[[], str]) -> None:
        # Browsers give a cookie to every port of a machine: each service has a name of its own for it.
        self.visits = SignInCookies(f"smart-fork-{host.rpartition(':')[2]}", folder / "visits.json", token)
        self.entries = SignInCodes(folder, f"http://{host}/")
        self.forms: PageForms[Any] = PageForms(token, folder / "forms")

    sign_in_page = staticmethod(sign_in_page)
