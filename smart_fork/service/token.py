"""The token: who has it is let in. How it is kept, changed, and proved without being told.

Neither end of a connection sends it to the other: each shows that it can sign what the other has made up, together with
the address at which they are connected. Whoever passes our words on, at another address or port, gets nothing by it.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import logging
import os
import re
import secrets
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal

from indexer.paths import private_dir, state_home
from smart_fork.errors import SmartForkError

TOKEN_BYTES = 32
#: How a program of ours says that it knows the token; others, who have it in their settings, send it as ``Bearer``.
SCHEME = "Smart-Fork"
_TOKEN = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger(__name__)


class TokenUnsafe(SmartForkError):
    """The token must not be used."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}", "Change it: smart-fork service rotate")


def token() -> str:
    """What opens everything that is not public; made at the first call, private, and kept.

    Raises:
        TokenUnsafe: somebody else could have read or written it, or it is none.
    """
    path = _file()
    try:
        return _private_token(path)
    except FileNotFoundError:
        made = secrets.token_hex(TOKEN_BYTES)
    from indexer.files import write_new  # who only asks writes nothing

    try:
        write_new(path, [made.encode()])
    except FileExistsError:  # another process was first
        return _private_token(path)
    return made


def change() -> str | None:
    """Put another token in its place; the one before is given back, if there was one that could be used."""
    from indexer.files import replace_file

    path = _file()
    try:
        before = _private_token(path)
    except (TokenUnsafe, FileNotFoundError):
        before = None
    replace_file(path, [secrets.token_hex(TOKEN_BYTES).encode()])
    return before


class Token:
    """The token for as long as a service runs: when its file is changed, the next who asks has the new one.

    `changed` is told. A file that must not be used opens nothing: what is given instead, nobody knows.
    """

    def __init__(self, changed: Callable[[], None] = lambda: None) -> None:
        self._path = _file()
        self._changed = changed
        self._seen: tuple[int, ...] | None = None
        self._now = ""

    def __call__(self) -> str:
        """The token."""
        seen = self._look()
        if seen is None or seen != self._seen:
            before, self._now, self._seen = self._now, self._read(), seen
            if before and self._now != before:
                log.info("the token is another one now")
                self._changed()
        return self._now

    def _look(self) -> tuple[int, ...] | None:
        try:
            about = self._path.lstat()
        except OSError:
            return None
        return (about.st_ino, about.st_ctime_ns, about.st_mode, about.st_uid)

    def _read(self) -> str:
        try:
            return token()
        except (TokenUnsafe, OSError) as error:
            log.error("nobody is let in: %s", error)  # noqa: TRY400 - what is wrong is all said
            return secrets.token_hex(TOKEN_BYTES)


def proof(who: Literal["asks", "service", "client"], secret: str, at: str, nonce: str, challenge: str = "") -> str:
    """What only somebody who has the token can say, as the one or the other end of a connection to the service `at`.

    `nonce` is what the client has made up, and `challenge` what the service has. Who only ``asks`` has none yet.
    """
    said = f"{who} {at} {challenge} {nonce}".encode("utf-8", "replace")
    return hmac.new(secret.encode(), said, hashlib.sha256).hexdigest()


def endpoint(host: str, port: int) -> str:
    """The service's end of a connection, as both ends spell it."""
    literal = ipaddress.ip_address(host.partition("%")[0])
    return f"{getattr(literal, 'ipv4_mapped', None) or literal} {port}"


def here(scope: Mapping[str, Any]) -> str:
    """As `endpoint`, where a request is really asked, whatever its own Host says; empty where that is gone."""
    server = scope.get("server")
    return endpoint(*server) if server else ""


def same(given: str, right: str) -> bool:
    """Whether somebody gives what is right; how long it takes tells nothing of it."""
    return hmac.compare_digest(given.encode("utf-8", "replace"), right.encode())


def _file() -> Path:
    return private_dir(state_home()) / "service-token"


def _private_token(path: Path) -> str:
    # Not waited for, and not followed: it may be a pipe, or a link to what somebody else can write.
    try:
        opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise TokenUnsafe(path, f"cannot be opened: {error.strerror}") from error
    try:
        about = os.fstat(opened)
        if not stat.S_ISREG(about.st_mode) or about.st_uid != os.geteuid():
            raise TokenUnsafe(path, "is not your own file")
        if about.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
            raise TokenUnsafe(path, "can be read or written by others")
        text = os.read(opened, 2 * TOKEN_BYTES + 2).decode("ascii", "replace").strip()
    finally:
        os.close(opened)
    if not _TOKEN.fullmatch(text):  # an empty one would open everything to everybody
        raise TokenUnsafe(path, "holds no token")
    return text
