"""The token: it lets foreign clients in over TCP. How it is kept and changed."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from indexer.safe_files import private_dir, replace_file, state_home, write_new
from indexer.values import Value, record
from smart_fork.agents import AGENTS
from smart_fork.cli.service.client import find_service
from smart_fork.cli.service.lock import holder
from smart_fork.errors import ProgramFailed, SmartForkError

TOKEN_BYTES = 32

log = logging.getLogger(__name__)


class TokenUnsafe(SmartForkError):
    """The token must not be used."""

    code = "token_unsafe"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}", "Change it: smart-fork service rotate")


def token() -> str:
    """Return the token. The first call makes it.

    Raises:
        TokenUnsafe: others could read or write it, or it is damaged.
    """
    path = _file()
    try:
        return _private_token(path)
    except FileNotFoundError:
        made = secrets.token_hex(TOKEN_BYTES)
    try:
        write_new(path, [made.encode()])
    except FileExistsError:  # another process was first
        return _private_token(path)
    return made


def change() -> str | None:
    """Write a new token. Return the old one if it was usable."""
    path = _file()
    try:
        before = _private_token(path)
    except (TokenUnsafe, FileNotFoundError):
        before = None
    replace_file(path, [secrets.token_hex(TOKEN_BYTES).encode()])
    return before


class Token:
    """The token of a running service. It reads the file at each request and calls `changed` after a change.

    An unsafe file opens nothing: a random token takes its place.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._unknown = secrets.token_hex(TOKEN_BYTES)
        self._now = ""

    def __call__(self) -> str:
        """The token."""
        before = self._now
        try:
            self._now = token()
        except (TokenUnsafe, OSError) as error:
            self._now = self._unknown
            if before != self._now:
                log.error("nobody is let in: %s", error)  # noqa: TRY400 - what is wrong is all said
        if before and self._now != before:
            log.info("the token is another one now")
            self._changed()
        return self._now


def _file() -> Path:
    return private_dir(state_home()) / "service-token"


def _private_token(path: Path) -> str:
    # Not waited for, and not followed: it may be a pipe, or a link to a file that others can write.
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TokenUnsafe(path, f"cannot be opened: {error.strerror}") from error
    try:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise TokenUnsafe(path, "belongs to another user")
        if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise TokenUnsafe(path, "can be read or written by others")
        text = os.read(opened, 2 * TOKEN_BYTES + 2).decode("ascii", "replace").strip()
    finally:
        os.close(opened)
    # An empty one would open everything to everybody.
    if len(text) != 2 * TOKEN_BYTES or text.strip("0123456789abcdef"):
        raise TokenUnsafe(path, "holds no token")
    return text


#: Larger than any file of settings.
MAX_SETTINGS = 64 * 1024 * 1024


@record
class Rotated(Value):
    """`service` is the address of the running service, `holders` are settings files with the old token."""

    rotated: bool = True
    service: str | None
    holders: tuple[str, ...]


def rotate() -> Rotated:
    """Change the token. The old one and its cookies stop working.

    Raises:
        OSError: it cannot be written; the old token stays.
        ProgramFailed: it is changed, but the running service does not answer.
    """
    before = change()
    return Rotated(service=_taken(), holders=tuple(str(one) for one in _holders(before)))


def _taken() -> str | None:
    """Return the address of a service that has the new token: it reads the file at each request."""
    if (service := find_service()) is not None:
        return service.address.url
    if (process := holder()) is not None:
        what = f"The token was changed, but the running service (process {process}) did not accept it"
        raise ProgramFailed(what, "End it: smart-fork service stop")
    return None


def _holders(token: str | None) -> list[Path]:
    """Return the agents' settings files that contain `token`."""
    files = [file for way in AGENTS.registrations() for file in way.holders()]
    return [file for file in dict.fromkeys(one.absolute() for one in files) if token and _has(file, token.encode())]


def _has(file: Path, text: bytes) -> bool:
    try:
        return file.is_file() and file.stat().st_size <= MAX_SETTINGS and text in file.read_bytes()
    except OSError:
        return False
