"""Asking the service: is it there and ours, how it goes. Imported often: the standard library only."""

from __future__ import annotations

import http.client
import logging
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import orjson

from indexer.switches import is_off
from smart_fork.errors import SmartForkError, joined
from smart_fork.handshake import SCHEME, endpoint, proof, same
from smart_fork.release import own_version
from smart_fork.service.address import Address, announced
from smart_fork.service.status import IndexingStatus, ServiceStatus, WayIn
from smart_fork.service.token import TokenUnsafe, token

#: A service on this machine answers immediately, unless many ask; the system tries to connect again after a second.
HELLO_SECONDS = 1.5
#: One that has just answered may be busy.
PROOF_SECONDS = 5.0
WORK_SECONDS = 120.0
#: More than a service says about itself.
MAX_HELLO = 4096

log = logging.getLogger(__name__)


class ServiceGoneError(SmartForkError):
    """The service does not answer, or refuses."""

    code = "service_gone"
    http_status = 502
    usual_hint = "`smart-fork logs` says how it ended; `smart-fork serve` starts it."


class StrangerError(ServiceGoneError):
    """Somebody else listens there."""

    code = "stranger"
    usual_hint = "Another program has the port: `smart-fork serve --port N` takes another one."


class _Proved(NamedTuple):
    """A connection at whose other end is our service; `signed` shows it, and there alone, that we are its own."""

    connection: http.client.HTTPConnection
    version: str
    signed: str


class Service:
    """A service that has proved to be ours. It proves it again before each request: by now another may listen there."""

    def __init__(self, address: Address, version: str) -> None:
        self.address = address
        #: Of the program that it runs, which may be older than what is installed.
        self.version = version

    def status(self) -> ServiceStatus:
        """How indexing goes, the service's version, and which one it is going to become.

        Raises:
            ServiceGoneError: it does not answer.
        """
        answer = orjson.loads(self._ask("GET", "/status", {}))
        indexing = IndexingStatus(answer.get("indexing") or {})
        return ServiceStatus(answer.get("version") or "", indexing, answer.get("restart"))

    def way_in(self, project: str = "") -> WayIn:
        """What lets a browser in, once; where a `project` is named, it is asked about that one.

        Raises:
            ServiceGoneError: it does not answer.
        """
        answer = orjson.loads(self._ask("POST", "/code", {"project": project} if project else {}))
        return WayIn(answer["file"], answer["page"], answer["code"], answer["seconds"])

    def health(self) -> bool:
        """Whether it answers a real question.

        Raises:
            ServiceGoneError: it does not answer at all.
        """
        with self._connected(WORK_SECONDS) as (connection, headers):
            return _answer(connection, "GET", "/healthz", headers=headers)[0] == http.HTTPStatus.OK

    @contextmanager
    def _connected(self, seconds: float) -> Iterator[tuple[http.client.HTTPConnection, dict[str, str]]]:
        with _proved(self.address, seconds) as (connection, version, signed):
            if version != self.version:
                raise ServiceGoneError("it has another version")
            yield connection, {"Authorization": f"{SCHEME} {signed}", "Content-Type": "application/json"}

    def _ask(self, method: str, path: str, body: Any) -> bytes:
        with self._connected(WORK_SECONDS) as (connection, headers):
            status, content = _answer(connection, method, path, orjson.dumps(body), headers)
        if status != http.HTTPStatus.OK:
            raise ServiceGoneError(f"it answered {status}")
        return content


def find_service(*, any_version: bool = False) -> Service | None:
    """The service, if one runs that is ours and, unless any will do, of this version.

    ``SMART_FORK_SERVICE=false`` looks for none.
    """
    if is_off("SMART_FORK_SERVICE"):
        return None
    address = announced()
    if address is None or address.pid == os.getpid():
        return None
    try:
        service = service_at(address, HELLO_SECONDS)
    except StrangerError:
        log.warning("somebody else listens at %s", address.url)
        return None
    except (ServiceGoneError, OSError) as error:
        log.debug("no service at %s: %s", address.url, error)
        return None
    if not any_version and service.version != own_version():
        log.info("the service is of version %s", service.version)
        return None
    return service


def service_at(address: Address, seconds: float = PROOF_SECONDS) -> Service:
    """The service that listens at `address`.

    Raises:
        ServiceGoneError: none answers there; where it is a `StrangerError`, somebody else does.
    """
    with _proved(address, seconds) as proved:
        return Service(address, proved.version)


@contextmanager
def _proved(address: Address, seconds: float) -> Iterator[_Proved]:
    """A connection at whose other end is our service. Only over such a one anything is asked.

    Raises:
        ServiceGoneError: nobody answers there, or somebody else does.
    """
    proved = _connect(address, seconds)
    try:
        yield proved
    finally:
        proved.connection.close()


def _connect(address: Address, seconds: float) -> _Proved:
    secret = _secret()
    try:
        return _prove(address, seconds, secret)
    except StrangerError:
        if (changed := _secret()) == secret:
            raise
        return _prove(address, seconds, changed)  # just then it was


def _secret() -> str:
    try:
        return token()
    except TokenUnsafe as error:
        log.warning("the service is not asked: %s", joined(error.message, error.hint))
        raise ServiceGoneError(error.message) from error


def _prove(address: Address, seconds: float, secret: str) -> _Proved:
    connection = http.client.HTTPConnection(address.host, address.port, timeout=seconds)
    try:
        at = _reached(connection)
        nonce = secrets.token_hex(16)
        hello = f"/hello?nonce={nonce}&proof={proof('asks', secret, at, nonce)}"
        _, content = _answer(connection, "GET", hello, limit=MAX_HELLO)
        try:
            facts = orjson.loads(content)
            given, challenge = str(facts["proof"]), str(facts["challenge"])
            version = str(facts["version"])
        except (ValueError, KeyError, TypeError) as error:
            raise StrangerError("its answer is not a service's answer") from error
        if not same(given, proof("service", secret, at, nonce, challenge)):
            raise StrangerError("it does not know the token")
    except ServiceGoneError:
        connection.close()
        raise
    return _Proved(connection, version, proof("client", secret, at, nonce, challenge))


def _reached(connection: http.client.HTTPConnection) -> str:
    """Connect, once; to which address.

    Raises:
        ServiceGoneError: nobody listens there.
    """
    try:
        connection.connect()
        host, port, *_ = connection.sock.getpeername()
    except OSError as error:
        raise ServiceGoneError(str(error)) from error
    connection.auto_open = 0  # a new connection might reach somebody else
    return endpoint(host, port)


def _answer(
    connection: http.client.HTTPConnection, method: str, path: str, body: bytes | None = None,
    headers: dict[str, str] | None = None, *, limit: int | None = None,
) -> tuple[int, bytes]:  # fmt: skip
    """Status and content, of which at most `limit` bytes are read."""
    try:
        connection.request(method, path, body, headers or {})
        answer = connection.getresponse()
        return answer.status, answer.read(limit)
    except (OSError, http.client.HTTPException) as error:
        raise ServiceGoneError(str(error) or type(error).__name__) from error
