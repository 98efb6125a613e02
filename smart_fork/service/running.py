"""``smart-fork serve``: the service from its start to its end."""

from __future__ import annotations

import logging
import os
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version

import uvicorn
from starlette.types import ASGIApp

from indexer.paths import private_dir, state_home
from smart_fork.errors import ProgramFailed, Usage
from smart_fork.service import crashes
from smart_fork.service.address import Address, keep_port, publish, token, wanted_port, withdraw
from smart_fork.service.client import Service, find_service
from smart_fork.service.guard import Guard
from smart_fork.service.records import log_to_file

LOOPBACK = ("127.0.0.1", "::1", "localhost")
#: Requests that are answered at the same time; more wait in the system's queue.
MAX_CONNECTIONS = 256
BACKLOG = 512
GRACE_SECONDS = 3

log = logging.getLogger(__name__)


def running() -> Service | None:
    """The service, if one is up (R-072)."""
    return find_service()


def listen(host: str, port: int | None) -> socket.socket:
    """A socket at `port`; without one, at the port that was chosen before, else 8766, else any that is free.

    Raises:
        ProgramFailed: the port that was asked for is taken.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (port,) if port is not None else (wanted_port(), 0):
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, wanted))
        except OSError as error:
            listening.close()
            if port is not None or wanted == 0:
                raise ProgramFailed(f"Port {wanted} of {host} is taken: {error}", "Choose another: --port N") from error
            log.warning("port %d is taken by another program", wanted)
        else:
            listening.listen(BACKLOG)
            return listening
    raise AssertionError("one of the two returns or raises")


def serve(host: str = "127.0.0.1", port: int | None = None, *, allow_remote: bool = False) -> None:
    """Run the service until it is told to end.

    Raises:
        Usage: `host` is not this machine alone, and that was not allowed.
        ProgramFailed: the port is taken.
    """
    if host not in LOOPBACK and not allow_remote:
        raise Usage(f"{host} can be reached from other machines", "Say so on purpose: --allow-remote.")
    state = private_dir(state_home())
    crashes.shorten(private_dir(state / "logs") / "service-crash.log")
    if not crashes.begin(state):
        return  # with 0: launchd starts again what ends with anything else
    # Our own files name their modes; what workers write in a repository is for everybody, as always.
    os.umask(0o022)
    log_to_file()
    _serve(host, port)
    crashes.end(state)


def _serve(host: str, port: int | None) -> None:
    from smart_fork.page.rendering import stranger
    from smart_fork.service.parts import Parts

    listening = listen(host, port)
    chosen = listening.getsockname()[1]
    keep_port(chosen)
    secret = token()
    parts = Parts()
    names = _names(host, chosen)
    app = Guard(parts.application(secret), secret=secret, hosts=names, public=parts.public, stranger=stranger)
    address = Address(host, chosen, os.getpid(), version("smart-fork"), datetime.now(UTC).isoformat(timespec="seconds"))
    parts.start()
    publish(address)
    log.info("serving at %s", address.url)
    try:
        _Server(_config(app)).run(sockets=[listening])
    finally:
        withdraw(address)
        parts.stop()
        log.info("ended")


class _Server(uvicorn.Server):
    """Ends at a signal, and lets us end then: uvicorn's own would raise the signal again."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are caught for as long as it runs."""
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _config(app: ASGIApp) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        limit_concurrency=MAX_CONNECTIONS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
        lifespan="on",
    )


def _names(host: str, port: int) -> list[str]:
    """What the Host of a request may be."""
    return [f"{name}:{port}" for name in {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}]
