"""Asking the service: is it there and ours, for vectors, to index. Imported often: the standard library only."""

from __future__ import annotations

import hmac
import http.client
import logging
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import orjson

from indexer.embedding import Embedder
from smart_fork.service.address import Address, TokenUnsafe, announced, proof, token

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

#: A service on this machine answers at once, or is not to be waited for.
HELLO_SECONDS = 0.5
WORK_SECONDS = 120.0
#: Texts in one request.
BATCH = 64
#: How long nobody looks for a service where there was none.
AGAIN_SECONDS = 30.0

log = logging.getLogger(__name__)


class ServiceGoneError(Exception):
    """The service does not answer, or refuses."""


class Service:
    """A service that has proved to be ours."""

    def __init__(self, address: Address, model: str) -> None:
        self.address = address
        self.model = model

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder.embed`, by the service's model.

        Raises:
            ServiceGoneError: it does not answer.
        """
        import numpy as np

        parts = []
        for first in range(0, len(texts), BATCH):
            some = list(texts[first : first + BATCH])
            answer = self._ask("POST", "/embed", {"texts": some})
            parts.append(np.frombuffer(answer, np.float32).reshape(len(some), -1))
        return np.concatenate(parts)

    def index(self) -> None:
        """Have it read what has changed.

        Raises:
            ServiceGoneError: it does not answer.
        """
        self._ask("POST", "/index", {})

    def status(self) -> dict[str, Any]:
        """How indexing goes, and the service's version.

        Raises:
            ServiceGoneError: it does not answer.
        """
        answer: dict[str, Any] = orjson.loads(self._ask("GET", "/status", {}))
        return answer

    def code(self) -> str:
        """A code that lets a browser in, once.

        Raises:
            ServiceGoneError: it does not answer.
        """
        return self._ask("POST", "/code", {}).decode("ascii", "replace")

    def _ask(self, method: str, path: str, body: Any) -> bytes:
        try:
            headers = {"Authorization": f"Bearer {token()}", "Content-Type": "application/json"}
        except TokenUnsafe as error:
            raise ServiceGoneError(error.message) from error
        return _request(self.address, f"{method} {path}", WORK_SECONDS, orjson.dumps(body), headers)


class SharedEmbedder:
    """An `Embedder` that asks the service, as long as there is one, and else works alone: one model for everybody."""

    def __init__(self, local: Embedder, find: Callable[[], Service | None] | None = None) -> None:
        self._local = local
        self._find = find or find_service
        self._service: Service | None = None
        self._look_at = 0.0

    @property
    def model(self) -> str:
        """As `Embedder.model`."""
        return self._local.model

    @property
    def dimensions(self) -> int:
        """As `Embedder.dimensions`."""
        return int(self.embed(["how long?"]).shape[1])

    def embed(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """As `Embedder.embed`."""
        service = self._there() if texts else None
        if service is not None:
            try:
                return service.embed(texts)
            except ServiceGoneError as error:
                log.info("working without the service: %s", error)
                self._service = None
        return self._local.embed(texts)

    def _there(self) -> Service | None:
        if self._service is None and time.monotonic() >= self._look_at:
            found, self._look_at = self._find(), time.monotonic() + AGAIN_SECONDS
            self._service = found if found is not None and found.model == self._local.model else None
        return self._service


def find_service() -> Service | None:
    """The service, if one runs that is ours and of this version. ``SMART_FORK_SERVICE=false`` looks for none."""
    if os.environ.get("SMART_FORK_SERVICE", "").strip().lower() in ("0", "false", "no", "off"):
        return None
    address = announced()
    if address is None or address.pid == os.getpid():
        return None
    nonce = secrets.token_hex(16)
    try:
        said = orjson.loads(_request(address, f"GET /hello?nonce={nonce}", HELLO_SECONDS))
        ours = hmac.compare_digest(str(said["proof"]), proof(nonce, token()))
    except (ServiceGoneError, ValueError, KeyError, TypeError, OSError) as error:
        log.debug("no service at %s: %s", address.url, error)
        return None
    except TokenUnsafe as error:
        log.warning("the service is not asked: %s. %s", error.message, error.hint)
        return None
    if not ours:
        log.warning("somebody else listens at %s", address.url)
        return None
    if said.get("version") != version("smart-fork"):
        log.info("the service is of version %s", said.get("version"))
        return None
    return Service(address, str(said.get("model")))


def _request(
    address: Address, line: str, seconds: float, body: bytes | None = None, headers: Mapping[str, str] | None = None
) -> bytes:
    method, path = line.split(" ")
    connection = http.client.HTTPConnection(address.host, address.port, timeout=seconds)
    try:
        connection.request(method, path, body, dict(headers or {}))
        answer = connection.getresponse()
        content = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise ServiceGoneError(str(error) or type(error).__name__) from error
    finally:
        connection.close()
    if answer.status != http.HTTPStatus.OK:
        raise ServiceGoneError(f"it answered {answer.status}")
    return content
