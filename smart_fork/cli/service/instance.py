"""The only service process of a smart-fork home: its published address, port and lock, its recorded starts, its end.

The process holds the lock as long as it lives. Starts are recorded to stop a loop of crashes: systemd stops restarting
a failing program, but launchd does not.
"""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import orjson

from indexer.environment import Setting
from indexer.lazy_compilation import dataclass
from indexer.locks import locked_by
from indexer.safe_files import private_dir, replace_file, state_home
from smart_fork.display_text import quoted
from smart_fork.errors import ProgramFailed

#: The service's port, unless another one was chosen.
PORT = 8766
#: The addresses of ``localhost``.
LOOPBACKS = ("127.0.0.1", "::1")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a running service.

    `host` is an IP address. `started` and `version` are those of its process. `socket` is the path of the Unix socket
    for the user's own programs; empty if this machine allows none.
    """

    host: str
    port: int
    pid: int
    version: str
    started: str
    socket: str = ""

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def publish(address: Address) -> None:
    """Write the service's address to a file in the smart-fork home, where other programs find it."""
    private_dir(state_home())
    replace_file(_address_file(), [orjson.dumps(asdict(address))])


def withdraw() -> None:
    """Delete the file with the service's address, and its Unix socket. Call it only while no other service runs."""
    if (address := announced()) is not None:
        _address_file().unlink(missing_ok=True)
        if address.socket:
            remove_socket(Path(address.socket))


def remove_socket(path: Path) -> None:
    """Delete the Unix socket at `path`, and its folder if it was made only for the socket."""
    path.unlink(missing_ok=True)
    if path.parent != state_home():
        with suppress(OSError):
            path.parent.rmdir()


def announced() -> Address | None:
    """Return the address that a service has published, even if it has ended since; `None` without a valid one."""
    try:
        given: dict[str, Any] = orjson.loads(_address_file().read_bytes())
        address = Address(**given)
        sound = int(given["pid"]) > 0 and 0 < int(given["port"]) < 1 << 16 and "/" not in given["host"]
    except (OSError, ValueError, TypeError):
        return None
    return address if sound else None


def wanted_port(
    env: Mapping[str, str], installed: int | None = None, state: Path | None = None, otherwise: int = PORT
) -> int:
    """Return the service's port: from `env`, else `installed`, else as kept in the folder `state`, else `otherwise`.

    It must stay the same, because clients' settings contain it.
    """
    try:
        kept = ((state or state_home()) / "service-port").read_text("ascii")
    except (OSError, ValueError):
        kept = ""
    named = _port_in(Setting.PORT.text(env), Setting.PORT)
    return named or installed or _port_in(kept, "service-port") or otherwise


def keep_port(port: int, state: Path | None = None) -> None:
    """Write `port` to a file in the folder `state`, so that later starts of the service use it."""
    replace_file(private_dir(state or state_home()) / "service-port", [str(port).encode()])


def _port_in(text: str, source: str) -> int | None:
    text = text.strip()
    if text.isascii() and text.isdigit() and 0 < int(text[:6]) < 1 << 16:
        return int(text)
    if text:
        log.warning("%s is no port: %r", source, quoted(text))
    return None


def _address_file() -> Path:
    return state_home() / "service.json"


_held: int | None = None


def hold() -> bool:
    """Take the lock of this home's service for this process. Return False if another process holds it.

    Raises:
        OSError: the state folder cannot be written.
    """
    global _held  # noqa: PLW0603 - the process has the lock, not an object
    descriptor = os.open(_lock_file(), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):  # as POSIX lets a system choose
        os.close(descriptor)
        return False
    _held = descriptor
    return True


def holder() -> int | None:
    """Return the id of the process that holds the lock of this home's service, or `None`.

    It is 0 for a process in another container or on another machine.
    """
    if _held is not None:  # to open the file and close it again would release the lock
        return os.getpid()
    return locked_by(_lock_file())


def _lock_file() -> Path:
    return state_home() / "service.lock"


#: How long the service may take to end after SIGTERM, and after SIGKILL.
GRACE_SECONDS, FORCE_SECONDS = 15.0, 5.0
LOOK_SECONDS = 0.05


def stop() -> bool:
    """End this home's service with SIGTERM, then with SIGKILL. Return False if none runs.

    Raises:
        ProgramFailed: the service does not end.
    """
    process = holder()
    if process is not None:
        _kill(process)
        forget_starts(state_home())  # it was told to end: that is no crash
    withdraw()
    return process is not None


def _kill(process: int) -> None:
    if not process:
        raise ProgramFailed("The service runs in another container or on another machine", "Stop it there.")
    for number, seconds in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, FORCE_SECONDS)):
        try:
            os.kill(process, number)
        except ProcessLookupError:
            pass
        except PermissionError as error:
            raise ProgramFailed(f"Process {process} is not yours to end") from error
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if holder() != process:
                return
            time.sleep(LOOK_SECONDS)
    raise ProgramFailed(f"Process {process} does not end")


#: The number of starts within a window of seconds, without a proper end, that counts as a loop of crashes.
LIMIT, WINDOW = 5, 600.0
#: The bytes that are kept of the crash log when it is larger than ten times as much.
KEPT_BYTES = 100_000
_STARTS = "service-starts.json"


def note_start(state: Path, now: Callable[[], float] = time.time) -> bool:
    """Note a start of the service in the folder `state`. Return False after too many starts in a short time.

    The service must then exit with 0, so that launchd does not start it again.
    """
    time_now = now()
    # A clock that was set back leaves starts in the future: they are not counted.
    starts = [start for start in _starts(state) if 0 <= time_now - start < WINDOW]
    if len(starts) >= LIMIT:
        log.error("%d crashes within %d minutes: the service gives up", len(starts), WINDOW // 60)
        return False
    replace_file(private_dir(state) / _STARTS, [orjson.dumps([*starts, time_now])])
    return True


def forget_starts(state: Path) -> None:
    """Delete the noted starts, which do not count as crashes after a stop, a restart, or an installation."""
    (state / _STARTS).unlink(missing_ok=True)


def shorten_log(crash_log: Path) -> None:
    """Delete all but the end of a large `crash_log`, in place, because launchd or systemd has it open."""
    with suppress(FileNotFoundError), crash_log.open("r+b") as file:
        if file.seek(0, 2) > 10 * KEPT_BYTES:
            file.seek(-KEPT_BYTES, 2)
            kept = file.read().partition(b"\n")[2]
            file.seek(0)
            file.truncate()
            file.write(kept)


def _starts(state: Path) -> list[float]:
    try:
        starts = orjson.loads((state / _STARTS).read_bytes())
        return [float(start) for start in starts]
    except (OSError, ValueError, TypeError):
        return []
