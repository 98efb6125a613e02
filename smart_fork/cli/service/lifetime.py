"""``smart-fork serve``: the service from its start to its end."""

from __future__ import annotations

import logging
import os
import resource
import signal
import socket
import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from indexer.errors import next_step
from indexer.safe_files import private_dir, state_home
from smart_fork.cli.service import crashes
from smart_fork.cli.service.address import Address, keep_port, publish, withdraw
from smart_fork.cli.service.listener import BACKLOG, LOCALHOST, Listening, addresses, listen
from smart_fork.cli.service.lock import hold
from smart_fork.cli.service.records import log_to_file
from smart_fork.cli.service.token import token
from smart_fork.cli.service.upgrade import Upgrade, adopt, become, load_service
from smart_fork.errors import ProgramFailed
from smart_fork.system.http_limits import Connection
from smart_fork.system.release import own_version

#: A client asks several things in a row; it is done when it has asked nothing for so long.
QUIET_SECONDS = 5.0
#: So long the end waits for a request, and for a client that only listens: it connects again.
REQUEST_SECONDS, STREAM_SECONDS = 3600.0, 600.0


class Traffic:
    """An application that counts the requests it is answering, except those for the paths in `passing`."""

    def __init__(
        self, app: ASGIApp, passing: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._passing = frozenset(passing)
        self._clock = clock
        self._requests = self._streams = 0
        self._last = clock()

    def may_end(self, waited: float) -> bool:
        """Return whether it is idle, or has `waited` long enough."""
        quiet = not self._requests and self._clock() - self._last >= QUIET_SECONDS
        return (quiet or waited >= REQUEST_SECONDS) and (not self._streams or waited >= STREAM_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        counts = scope["type"] == "http" and scope["path"] not in self._passing
        # What a client of MCP keeps open to be told something.
        stream = counts and scope["method"] == "GET" and scope["path"] == "/mcp"
        self._streams += stream
        self._requests += counts and not stream
        try:
            await self._app(scope, receive, send)
        finally:
            self._streams -= stream
            self._requests -= counts and not stream
            self._last = self._clock() if counts else self._last


FILES = 4 * Connection.MAX_CONNECTIONS
#: So long the end waits for answers that are being given.
GRACE_SECONDS = 1

#: Who is told the address.
Told = Callable[[Address], None]

log = logging.getLogger(__name__)


def serve(
    host: str = LOCALHOST, port: int | None = None, *, allow_remote: bool = False, told: Told | None = None
) -> None:
    """Run the service until a signal ends it. It restarts itself as a newer version.

    It calls `told` with its address as soon as it listens.

    Raises:
        Usage: `host` is not this machine alone, and that was not allowed; or it is no single address.
        ProgramFailed: it runs already, the port is taken, or the state folder cannot be written.
    """
    addresses(host, allow_remote=allow_remote)  # before anything is written
    try:
        state = private_dir(state_home())
        if not hold():
            raise ProgramFailed("The service is already running", "End it: smart-fork service stop")
        withdraw()  # what one that was killed has left
        crashes.shorten(private_dir(state / "logs") / "service-crash.log")
        if not crashes.begin(state):
            return  # with 0: launchd starts again what ends with anything else
        # While it is not up yet it ends immediately when it is told to, and that is no failure.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        token()
        log_to_file()
    except OSError as error:
        raise ProgramFailed(f"The service cannot write its files: {error}", next_step(error)) from error
    allow_files()
    # Our own files name their modes; what workers write in a repository is for everybody, as always.
    os.umask(0o022)
    with closing(listen(host, port, allow_remote=allow_remote)) as listening:
        newer_at = _serve(listening, told)
    with suppress(OSError):  # what cannot be written at the end is no crash
        crashes.end(state)
    if newer_at is not None:
        become(newer_at)


def allow_files() -> None:
    """Allow as many open files as the connections and the index need: macOS begins with 256."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = FILES if hard == resource.RLIM_INFINITY else min(FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # where it must not be, there are fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _serve(listening: Listening, told: Told | None) -> int | None:
    """Serve until the end. Return the port if the service is to restart."""
    from smart_fork.cli.service.app import PUBLIC, Entrance, ServiceParts
    from smart_fork.page import routes

    keep_port(listening.port)
    restart = threading.Event()

    def end() -> None:
        restart.set()
        server.should_exit = True

    parts = ServiceParts(lambda: upgrade.pending)
    entrance = Entrance(state_home() / "page", listening.names[0])
    application, doors = parts.application(entrance)
    traffic = Traffic(application, (*PUBLIC, "/status", routes.LIVE))  # a browser that listens connects again by itself
    upgrade = Upgrade(lambda waited: parts.idle(waited) and traffic.may_end(waited), end)
    server = _Server(_config(entrance.guard(traffic, listening.names, doors)), entrance.hang_up)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    address = Address(listening.host, listening.port, os.getpid(), own_version(), started, listening.local)
    stop = threading.Event()
    adopt()
    entrance.entries.end()  # of one that was killed
    parts.start()
    publish(address)
    if told:
        told(address)
    threading.Thread(target=upgrade.run, args=(stop,), name="upgrade", daemon=True).start()
    threading.Thread(target=load_service, name="load all", daemon=True).start()
    log.info("serving at %s", address.url)
    try:
        server.run(sockets=list(listening.sockets))
    finally:
        stop.set()
        entrance.entries.end()
        with suppress(OSError):
            withdraw()
        parts.stop()
        log.info("restarting" if restart.is_set() else "ended")
    return listening.port if restart.is_set() else None


class _Server(uvicorn.Server):
    """Ends at a signal without raising it again, as uvicorn's own server does.

    It calls `hang_up` to close streams: it would wait for them.
    """

    def __init__(self, config: uvicorn.Config, hang_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._hang_up = hang_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Set the backlog again: asyncio uses one number for it and for how many connections it accepts at a time."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close the streams before the other answers are complete."""
        self._hang_up()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Catch signals while it runs."""
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
        limit_concurrency=2 * Connection.MAX_CONNECTIONS,  # by then none of them only waits, or is a stranger's
        backlog=Connection.MAX_ACCEPTED,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
        lifespan="on",
    )
