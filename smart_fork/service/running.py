"""``smart-fork serve``: the service from its start to its end."""

from __future__ import annotations

import errno
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime

import uvicorn
from starlette.types import ASGIApp

from indexer.failures import next_step
from indexer.paths import private_dir, state_home
from smart_fork.errors import ProgramFailed, Usage
from smart_fork.release import own_version
from smart_fork.service import crashes
from smart_fork.service.address import Address, keep_port, publish, token, wanted_port, withdraw
from smart_fork.service.client import Service, find_service
from smart_fork.service.connections import MAX_CONNECTIONS, Connection
from smart_fork.service.guard import Guard
from smart_fork.service.records import log_to_file
from smart_fork.service.traffic import Traffic
from smart_fork.service.upgrade import Upgrade, adopt, become, load_all

LOOPBACK = ("127.0.0.1", "::1", "localhost")
EVERYWHERE = ("0.0.0.0", "::", "")  # noqa: S104 - they are refused
BACKLOG = 512
FILES = 4 * MAX_CONNECTIONS
GRACE_SECONDS = 3

log = logging.getLogger(__name__)


def running() -> Service | None:
    """The service, if one is up (R-072), of whichever version."""
    return find_service(any_version=True)


def listen(host: str, port: int | None) -> socket.socket:
    """A socket at `port`; without one, at the port that is wanted (see `wanted_port`), else at any that is free.

    Raises:
        ProgramFailed: the port that was asked for is taken, or nobody can listen at `host`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (port,) if port is not None else (wanted_port(os.environ), 0):
        listening = socket.socket(family)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listening.bind((host, wanted))
        except OSError as error:
            listening.close()
            if error.errno != errno.EADDRINUSE:
                step = "Choose an address of this machine, --host, and a port above 1023, --port N."
                raise ProgramFailed(f"The service cannot listen at {host}, port {wanted}: {error}", step) from error
            if port is not None:
                raise ProgramFailed(f"Port {wanted} of {host} is taken: {error}", "Choose another: --port N") from error
            log.warning("port %d is taken by another program", wanted)
        else:
            listening.listen(BACKLOG)
            return listening
    raise AssertionError("one of the two returns or raises")


def serve(host: str = "127.0.0.1", port: int | None = None, *, allow_remote: bool = False) -> None:
    """Run the service until it is told to end; one that finds a newer version of itself becomes that.

    Raises:
        Usage: `host` is not this machine alone, and that was not allowed; or it is no single address.
        ProgramFailed: the port is taken, or the state folder cannot be written.
    """
    if host not in LOOPBACK and not allow_remote:
        raise Usage(f"{host} can be reached from other machines", "Say so on purpose: --allow-remote.")
    if host in EVERYWHERE:  # a request has to name us, and under which names it may is not known
        raise Usage(f"{host} is no address that a client can ask for", "Say by which one others reach this machine.")
    try:
        state = private_dir(state_home())
        crashes.shorten(private_dir(state / "logs") / "service-crash.log")
        if not crashes.begin(state):
            return  # with 0: launchd starts again what ends with anything else
        token()
        log_to_file()
    except OSError as error:
        raise ProgramFailed(f"The service cannot write its files: {error}", next_step(error)) from error
    allow_files()
    # Our own files name their modes; what workers write in a repository is for everybody, as always.
    os.umask(0o022)
    newer_at = _serve(host, port)
    with suppress(OSError):  # what cannot be written at the end is no crash
        crashes.end(state)
    if newer_at is not None:
        become(newer_at)


def allow_files() -> None:
    """Have as many files open as connections, and the index for those who ask, need: macOS begins with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # where it must not be, there are fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _serve(host: str, port: int | None) -> int | None:
    """Serve until the end; where it is to be started anew, the port."""
    from smart_fork.page.rendering import stranger
    from smart_fork.service.app import PUBLIC
    from smart_fork.service.parts import Parts

    listening = listen(host, port)
    chosen = listening.getsockname()[1]
    keep_port(chosen)
    secret = token()
    restart = threading.Event()

    def end() -> None:
        restart.set()
        server.should_exit = True

    parts = Parts(lambda: upgrade.pending)
    traffic = Traffic(parts.application(secret), PUBLIC)
    upgrade = Upgrade(lambda waited: parts.idle(waited) and traffic.close(waited), end)
    guard = Guard(traffic, secret=secret, hosts=_names(host, chosen), public=parts.public, stranger=stranger)
    server = _Server(_config(guard))
    address = Address(host, chosen, os.getpid(), own_version(), datetime.now(UTC).isoformat(timespec="seconds"))
    stop = threading.Event()
    adopt()
    parts.start()
    publish(address)
    threading.Thread(target=upgrade.run, args=(stop,), name="upgrade", daemon=True).start()
    threading.Thread(target=load_all, name="load all", daemon=True).start()
    log.info("serving at %s", address.url)
    try:
        server.run(sockets=[listening])
    finally:
        stop.set()
        with suppress(OSError):
            withdraw(address)
        parts.stop()
        log.info("starting anew" if restart.is_set() else "ended")
    return chosen if restart.is_set() else None


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
        http=Connection,
        limit_concurrency=MAX_CONNECTIONS + 1,  # by then none of them only waits
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
        lifespan="on",
    )


def _names(host: str, port: int) -> list[str]:
    """What the Host of a request may be."""
    return [f"{name}:{port}" for name in {"127.0.0.1", "localhost", "[::1]", f"[{host}]" if ":" in host else host}]
