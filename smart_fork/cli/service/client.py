"""The client of the service, over its Unix socket.

It needs no token: it checks that a process of the same user listens there.
"""

from __future__ import annotations

import http.client
import logging
import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from indexer.environment import Setting
from indexer.json_values import Value, value
from smart_fork.cli.service.instance import LOOK_SECONDS, Address, announced, holder
from smart_fork.errors import SmartForkError
from smart_fork.system.peers import SERVICE, is_ours


@value
class ServiceStatus(Value):
    """The report of a running service, perhaps of another version, about itself.

    `indexing` is an `indexer.runs.Freshness`, perhaps with more keys. If a restart after an upgrade is pending,
    `restart` has the versions ``from`` and ``to``.
    """

    version: str
    indexing: Mapping[str, Any]
    restart: Mapping[str, str] | None = None

    @property
    def change(self) -> str:
        """The versions of a pending restart, such as ``1.0 -> 1.1``; else empty."""
        return "{from} -> {to}".format_map(self.restart) if self.restart else ""


@value
class WayIn(Value):
    """A way to sign a browser in within `seconds`: open `file`, or enter `code` at the address `page`."""

    file: str
    page: str
    code: str
    seconds: float


#: How long to wait for the service's status: a service on this machine answers immediately.
STATUS_SECONDS = 1.5
#: How long to wait for a starting service. It accepts connections seconds before it answers, while it loads.
START_SECONDS = 30.0
WORK_SECONDS = 120.0

log = logging.getLogger(__name__)


class ServiceGoneError(SmartForkError):
    """Error: the service does not answer, or has refused a request."""

    code = "service_gone"
    http_status = 502
    usual_hint = "`smart-fork logs` says how it ended; `smart-fork serve` starts it."


class _Connection(http.client.HTTPConnection):
    def __init__(self, path: str, seconds: float) -> None:
        super().__init__(SERVICE, timeout=seconds)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
        if not is_ours(self.sock):
            raise PermissionError("another user listens there")


class Service:
    """A running service: its `address`, and the `status` that it reported when it was found."""

    def __init__(self, address: Address, status: ServiceStatus) -> None:
        self.address = address
        #: The status may come from a service that is older than the installed version.
        self.status = status

    def way_in(self, project: str = "") -> WayIn:
        """Ask the service for a way to open its page in a browser, once. The page then shows `project`.

        Raises:
            ServiceGoneError: the service does not answer.
        """
        status, content = _answer(self.address, "POST", "/code", {"project": project} if project else {})
        if status != http.HTTPStatus.OK:
            raise ServiceGoneError(f"it answered {status}")
        answer = orjson.loads(content)
        return WayIn(answer["file"], answer["page"], answer["code"], answer["seconds"])

    def health(self) -> bool:
        """Return True if the service answers a test search.

        Raises:
            ServiceGoneError: the service does not answer at all.
        """
        return _answer(self.address, "GET", "/healthz")[0] == http.HTTPStatus.OK


def find_service() -> Service | None:
    """Return the running service of this smart-fork home, of any version; `None` if no service answers.

    With ``SMART_FORK_SERVICE=false``, always return `None`.
    """
    address = None if Setting.SERVICE.is_off() else announced()
    if address is None or address.pid == os.getpid():
        return None
    try:
        _, content = _answer(address, "GET", "/status", seconds=STATUS_SECONDS)
        said = orjson.loads(content)
        status = ServiceStatus(said["version"], dict(said["indexing"]), said["restart"])
    except (ServiceGoneError, ValueError, LookupError, TypeError) as error:
        log.info("no service answers at %s: %s", address.socket, error)
        return None
    return Service(address, status)


def started_service(starts: Callable[[], bool] = lambda: False) -> Service | None:
    """Return the running service of this home, or `None`. Wait for a service that is just starting.

    A starting service holds a lock. `starts` returns True while a newly started process may still take the lock.
    """
    deadline = time.monotonic() + START_SECONDS
    while (service := find_service()) is None and not Setting.SERVICE.is_off():
        if not (holder() or starts()) or time.monotonic() > deadline:
            break
        time.sleep(LOOK_SECONDS)
    return service


def _answer(
    address: Address, method: str, path: str, body: dict[str, Any] | None = None, *, seconds: float = WORK_SECONDS
) -> tuple[int, bytes]:
    """Send a request to the service at `address`. Return the answer's HTTP status and content.

    Raises:
        ServiceGoneError: the service does not answer.
    """
    connection = _Connection(address.socket, seconds)
    try:
        connection.request(method, path, None if body is None else orjson.dumps(body))
        answer = connection.getresponse()
        return answer.status, answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ServiceGoneError(str(error) or type(error).__name__) from error
    finally:
        connection.close()
