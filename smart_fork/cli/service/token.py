"""The token (a secret text) that clients of the service need over TCP: its private file, and its change."""

from __future__ import annotations

import logging
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from indexer.json_values import Value, record
from indexer.safe_files import private_dir, replace_file, state_home, write_new
from smart_fork.agents import AGENTS
from smart_fork.cli.service.client import find_service
from smart_fork.cli.service.instance import holder
from smart_fork.errors import ProgramFailed, SmartForkError

TOKEN_BYTES = 32

log = logging.getLogger(__name__)


class TokenUnsafe(SmartForkError):
    """An error: the token's file must not be used, because others can read or write it, or it is damaged."""

    code = "token_unsafe"

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}", "Change it: smart-fork service rotate")


def token() -> str:
    """Return the token of this home's service. If there is none yet, make one.

    Raises:
        TokenUnsafe: others could read or write the token's file, or it is damaged.
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
    """Replace the token. Return the old one; `None` if it was missing or unsafe."""
    path = _file()
    try:
        before = _private_token(path)
    except (TokenUnsafe, FileNotFoundError):
        before = None
    replace_file(path, [secrets.token_hex(TOKEN_BYTES).encode()])
    return before


class Token:
    """The current token of a running service, read from its file at each call. After a change, `changed` is called.

    While its file is unsafe, the token is a random text that no client has.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._changed = changed
        self._unknown = secrets.token_hex(TOKEN_BYTES)
        self._now = ""

    def __call__(self) -> str:
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


#: The most bytes of a file in which the old token is searched for: no settings file is larger.
MAX_SETTINGS = 64 * 1024 * 1024


@record
class Rotated(Value):
    """The answer of ``service rotate``. `holders` are agents' settings files that still have the old token."""

    rotated: bool = True
    service: str | None
    holders: tuple[str, ...]


def rotate() -> Rotated:
    """Replace the token. The old token and its cookies stop working.

    Raises:
        ProgramFailed: the token is changed, but the running service does not answer.
    """
    before = (change() or "").encode()
    service = find_service()  # a running service reads the new token at each request
    if service is None and (process := holder()) is not None:
        what = f"The token was changed, but the running service (process {process}) did not accept it"
        raise ProgramFailed(what, "End it: smart-fork service stop")
    files = dict.fromkeys(file.absolute() for way in AGENTS.registrations() for file in way.holders())
    holders = tuple(str(file) for file in files if before and _has(file, before))
    return Rotated(service=service.address.url if service else None, holders=holders)


def _has(file: Path, text: bytes) -> bool:
    try:
        return file.is_file() and file.stat().st_size <= MAX_SETTINGS and text in file.read_bytes()
    except OSError:
        return False
