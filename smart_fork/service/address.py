"""Where the service listens, and how one tells it from a stranger on the same port.

The token is never sent to whoever happens to listen there: the service first proves that it has the same token.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import orjson

from indexer.paths import private_dir, state_home
from smart_fork.staging import replace_file, write_new

TOKEN_BYTES = 32
#: Unless another one was chosen.
PORT = 8766

log = logging.getLogger(__name__)


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
    """What opens everything that is not public; made at the first call, private, and kept."""
    path = private_dir(state_home()) / "service-token"
    try:
        return path.read_text("ascii").strip()
    except FileNotFoundError:
        made = secrets.token_hex(TOKEN_BYTES)
    try:
        write_new(path, [made.encode()])
    except FileExistsError:  # another process was first
        return path.read_text("ascii").strip()
    return made


def proof(nonce: str, secret: str, port: int) -> str:
    """What only somebody who has the token can answer to `nonce`, and only at this port.

    A stranger who has our question answered by a service at another port has no proof for his own.
    """
    return hmac.new(secret.encode(), f"{port} {nonce}".encode("utf-8", "replace"), hashlib.sha256).hexdigest()


def publish(address: Address) -> None:
    """Say where the service listens."""
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
        return address if int(given["pid"]) and 0 < int(given["port"]) < 1 << 16 and "/" not in given["host"] else None
    except (OSError, ValueError, TypeError):
        return None


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
