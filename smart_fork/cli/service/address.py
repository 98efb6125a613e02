"""The address of the running service."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from indexer.lazy import dataclass
from indexer.safe_files import private_dir, replace_file, state_home
from indexer.settings import Setting
from smart_fork.snippets import quoted

#: Unless another one was chosen.
PORT = 8766

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """A service that runs.

    `host` is a literal address, no name; `version` that of the program when it was started. `socket` is the path where
    the user's own programs ask it, empty where this machine lets it have none.
    """

    host: str
    port: int
    pid: int
    version: str
    started: str
    socket: str = ""

    @property
    def url(self) -> str:
        """Its root URL."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def publish(address: Address) -> None:
    """Write the address for other programs."""
    private_dir(state_home())
    replace_file(_file(), [orjson.dumps(asdict(address))])


def withdraw() -> None:
    """Remove the written address and the socket. Call it only while no other process runs this home's service."""
    if (address := announced()) is not None:
        _file().unlink(missing_ok=True)
        if address.socket:
            remove_socket(Path(address.socket))


def remove_socket(path: Path) -> None:
    """Remove the service's socket, with its folder where that was made for it."""
    path.unlink(missing_ok=True)
    if path.parent != state_home():
        with suppress(OSError):
            path.parent.rmdir()


def announced() -> Address | None:
    """Return the written address. Its service may have died since."""
    try:
        given: dict[str, Any] = orjson.loads(_file().read_bytes())
        address = Address(**given)
        sound = int(given["pid"]) > 0 and 0 < int(given["port"]) < 1 << 16 and "/" not in given["host"]
    except (OSError, ValueError, TypeError):
        return None
    return address if sound else None


def wanted_port(
    env: Mapping[str, str], installed: int | None = None, state: Path | None = None, otherwise: int = PORT
) -> int:
    """Return the port: from `env`, else the installed one, else the kept one, else 8766.

    It is chosen once: clients' settings name it, so that it must stay the same.
    """
    try:
        kept = ((state or state_home()) / "service-port").read_text("ascii")
    except (OSError, ValueError):
        kept = ""
    named = _port_in(Setting.PORT.text(env), Setting.PORT)
    return named or installed or _port_in(kept, "service-port") or otherwise


def keep_port(port: int, state: Path | None = None) -> None:
    """Keep `port` for every later start."""
    replace_file(private_dir(state or state_home()) / "service-port", [str(port).encode()])


def _port_in(text: str, source: str) -> int | None:
    text = text.strip()
    if text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16:
        return int(text)
    if text:
        log.warning("%s is no port: %r", source, quoted(text))
    return None


def _file() -> Path:
    return state_home() / "service.json"
