"""Where the service listens, and how one tells it from a stranger on the same port.

The token is never sent to whoever happens to listen there: the service first proves that it has the same token.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import secrets
import stat
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from indexer.paths import private_dir, state_home
from smart_fork.errors import SmartForkError

TOKEN_BYTES = 32
#: Unless another one was chosen.
PORT = 8766
_TOKEN = re.compile(r"[0-9a-f]{64}")

log = logging.getLogger(__name__)


class TokenUnsafe(SmartForkError):
    """The token must not be used."""

    def __init__(self, path: Path, why: str) -> None:
        super().__init__(f"{path} {why}", "Remove it: the service makes another when it starts.")


@dataclass(frozen=True, slots=True)
class Address:
    """A service that runs. `version` is that of the program when it was started."""

    host: str
    port: int
    pid: int
    version: str
    started: str

    @property
    def url(self) -> str:
        """Its root."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def token() -> str:
    """What opens everything that is not public; made at the first call, private, and kept.

    Raises:
        TokenUnsafe: somebody else could have read or written it, or it is none.
    """
    path = private_dir(state_home()) / "service-token"
    try:
        return _private_token(path)
    except FileNotFoundError:
        made = secrets.token_hex(TOKEN_BYTES)
    from smart_fork.agents.staging import write_new  # who only asks writes nothing

    try:
        write_new(path, [made.encode()])
    except FileExistsError:  # another process was first
        return _private_token(path)
    return made


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


def cookie_value(secret: str) -> str:
    """What the cookie of a browser holds that was let in. Not the token: browsers show cookies to every port."""
    return hashlib.blake2b(b"a browser's cookie", key=secret.encode()[:64], digest_size=32).hexdigest()


def proof(nonce: str, secret: str, port: int) -> str:
    """What only somebody who has the token can answer to `nonce`, and only at this port.

    A stranger who has our question answered by a service at another port has no proof for his own.
    """
    return hmac.new(secret.encode(), f"{port} {nonce}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def publish(address: Address) -> None:
    """Say where the service listens."""
    from smart_fork.agents.staging import replace_file

    replace_file(_file(), orjson.dumps(asdict(address)))


def withdraw(address: Address) -> None:
    """Take that back, unless another service has said so since."""
    if announced() == address:
        _file().unlink(missing_ok=True)


def announced() -> Address | None:
    """Where a service said that it listens; it may have died since."""
    try:
        given: dict[str, Any] = orjson.loads(_file().read_bytes())
        address = Address(**given)
        sound = int(given["pid"]) > 0 and 0 < int(given["port"]) < 1 << 16 and "/" not in given["host"]
    except (OSError, ValueError, TypeError):
        return None
    return address if sound else None


def wanted_port(env: Mapping[str, str], installed: int | None = None, state: Path | None = None) -> int:
    """The port where no option names one: what `env` says, else what is installed, else what was kept, else 8766.

    It is chosen once: clients' settings name it, so that it must stay the same.
    """
    try:
        kept = ((state or state_home()) / "service-port").read_text("ascii")
    except (OSError, ValueError):
        kept = ""
    named = _port_in(env.get("SMART_FORK_PORT", ""), "SMART_FORK_PORT")
    return named or installed or _port_in(kept, "service-port") or PORT


def keep_port(port: int, state: Path | None = None) -> None:
    """Choose `port` for every later start."""
    from smart_fork.agents.staging import replace_file

    replace_file(private_dir(state or state_home()) / "service-port", str(port).encode())


def _port_in(text: str, source: str) -> int | None:
    text = text.strip()
    if text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16:
        return int(text)
    if text:
        log.warning("%s is no port: %r", source, text[:40])
    return None


def _file() -> Path:
    return private_dir(state_home()) / "service.json"
