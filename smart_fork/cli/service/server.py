"""The server of the service: it opens the sockets, and serves until a signal or an upgrade.

A program that connects to a host name may use any of its IP addresses. Another program that listens at one of them
would get the service's token. So the service accepts a host name in requests only if it listens at all addresses of the
name.
"""

from __future__ import annotations

import errno
import ipaddress
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
from pathlib import Path
from tempfile import mkdtemp

import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send

from indexer.errors import next_step
from indexer.lazy_compilation import dataclass
from indexer.safe_files import private_dir, state_home
from smart_fork.cli.service import instance
from smart_fork.cli.service.json_log import log_to_file
from smart_fork.cli.service.token import token
from smart_fork.cli.service.upgrade import Upgrade, adopt, become, load_service
from smart_fork.errors import ProgramFailed, Usage
from smart_fork.system.http_limits import Connection
from smart_fork.system.version import own_version

#: The name that stands for `LOOPBACKS`, even where it cannot be looked up.
LOCALHOST = "localhost"
BACKLOG = 512
#: Errors for an address that this machine does not have.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_OTHER = "Choose an address of this machine, --host, and a port above 1023, --port N."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """The open sockets of the service.

    The TCP `sockets` all have the port `port`, the first one at `host`. The last socket is a Unix socket at the path
    `local` for the user's own programs; without it, `local` is empty. A request's Host header must be one of `names`.
    """

    sockets: tuple[socket.socket, ...]
    host: str
    port: int
    names: tuple[str, ...]
    local: str = ""

    def close(self) -> None:
        """Close all sockets, and delete the file of the Unix socket."""
        for one in self.sockets:
            one.close()
        if self.local:
            instance.remove_socket(Path(self.local))


def addresses(host: str, *, allow_remote: bool) -> list[str]:
    """Return the IP addresses of `host`, a name or an address.

    Raises:
        Usage: other machines can reach `host` and `allow_remote` is false, or clients cannot use it.
        ProgramFailed: `host` has no address.
    """
    found = list(instance.LOOPBACKS) if host.lower() == LOCALHOST else _looked_up(host)
    if any(ipaddress.ip_address(one).is_unspecified for one in found):
        # A request has to name us, and under which names it may is not known.
        raise Usage(f"{host!r} is not an address that clients can use", "Give the address that other machines use.")
    if not allow_remote and not all(ipaddress.ip_address(one).is_loopback for one in found):
        raise Usage(f"{host} can be reached from other machines", "Allow that with --allow-remote.")
    return found


def _looked_up(host: str) -> list[str]:
    if not host:
        return ["0.0.0.0"]  # noqa: S104 - it is refused
    try:
        known = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ProgramFailed(f"The service cannot listen at {host}: {error}", _OTHER) from error
    literal = (ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in known)
    return list(dict.fromkeys(str(getattr(one, "ipv4_mapped", None) or one) for one in literal))


def listen(host: str, port: int | None, *, allow_remote: bool = False) -> Listening:
    """Open the service's sockets at `host` and `port`; without a port, at the usual one or else any free one.

    Raises:
        ProgramFailed: `port` is taken, or `host` is no address of this machine.
    """
    literal, *others = addresses(host, allow_remote=allow_remote)
    sockets = [_first(literal, host, port)]
    chosen = int(sockets[0].getsockname()[1])
    ours = True
    for other in others:
        try:
            sockets.append(_bound(other, chosen))
        except OSError as error:
            if error.errno not in _NOT_HERE:
                log.warning("port %d of %s is another program's: ask at %s, not at %s", chosen, other, literal, host)
                ours = False
    for one in sockets:
        one.listen(BACKLOG)
    hosts = [str(one.getsockname()[0]) for one in sockets] + ([host] if ours else [])
    own = listen_locally(private_dir(state_home()))
    names = tuple(dict.fromkeys(_host_header(one, chosen) for one in hosts))
    if own is None:
        return Listening(tuple(sockets), literal, chosen, names)
    return Listening((*sockets, own), literal, chosen, names, own.getsockname())


def listen_locally(state: Path) -> socket.socket | None:
    """Open a Unix socket in the folder `state` for the user's own programs, or else in a private folder in ``/tmp``.

    The path may be too long, or the file system may allow no sockets. Return `None` if both fail; then the user's own
    programs work without the service.
    """
    for folder in (state, None):
        made = socket.socket(socket.AF_UNIX)
        try:
            path = (folder or Path(mkdtemp(prefix="smart-fork-", dir="/tmp"))) / "service.sock"
            path.unlink(missing_ok=True)
            made.bind(str(path))
            made.listen(BACKLOG)
        except OSError as error:
            made.close()
            log.info("no socket in %s: %s", folder or "a folder of its own", error)
        else:
            return made
    log.warning("the service has no socket: smart-fork's own programs do without it")
    return None


def _first(literal: str, host: str, port: int | None) -> socket.socket:
    for wanted in (port,) if port is not None else (instance.wanted_port(os.environ), 0):
        try:
            return _bound(literal, wanted)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise ProgramFailed(f"The service cannot listen at {host}, port {wanted}: {error}", _OTHER) from error
            if port is not None:
                raise ProgramFailed(f"Port {wanted} of {host} is taken: {error}", "Choose another: --port N") from error
            log.warning("port %d is taken by another program", wanted)
    raise AssertionError("one of the two returns or raises")


def _bound(literal: str, port: int) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in literal else socket.AF_INET)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if made.family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        made.bind((literal, port))
    except OSError:
        made.close()
        raise
    return made


def _host_header(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host.lower()}:{port}"


#: A client sends several requests in a row. It is done if it sends none for so long.
QUIET_SECONDS = 5.0
#: How long a restart waits for requests, and for streams of clients, which connect again.
REQUEST_SECONDS, STREAM_SECONDS = 3600.0, 600.0


class Traffic:
    """A web application that counts running requests, and passes them on to `app`. Paths in `passing` do not count."""

    def __init__(
        self, app: ASGIApp, passing: Collection[str] = (), clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app = app
        self._passing = frozenset(passing)
        self._clock = clock
        self._requests = self._streams = 0
        self._last = clock()

    def may_end(self, waited: float) -> bool:
        """Return True if a restart need not wait for requests: none runs, or it waited too long (`waited` seconds)."""
        quiet = not self._requests and self._clock() - self._last >= QUIET_SECONDS
        return (quiet or waited >= REQUEST_SECONDS) and (not self._streams or waited >= STREAM_SECONDS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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


MAX_OPEN_FILES = 4 * Connection.MAX_CONNECTIONS
#: How long the end of the server waits for running requests.
GRACE_SECONDS = 1

#: A function that gets the address when the service listens.
OnReady = Callable[[instance.Address], None]


def serve(
    host: str = LOCALHOST, port: int | None = None, *, allow_remote: bool = False, on_ready: OnReady | None = None
) -> None:
    """Run the service until a signal ends it. After an upgrade of smart-fork, it restarts itself.

    `on_ready` is called with the address when the service listens.

    Raises:
        ProgramFailed: a service runs already, or its files cannot be written.
    """
    addresses(host, allow_remote=allow_remote)  # before anything is written
    try:
        state = private_dir(state_home())
        if not instance.hold():
            raise ProgramFailed("The service is already running", "End it: smart-fork service stop")
        instance.withdraw()  # what one that was killed has left
        instance.shorten_log(private_dir(state / "logs") / "service-crash.log")
        if not instance.note_start(state):
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
        newer_at = _serve(listening, on_ready)
    with suppress(OSError):  # what cannot be written at the end is no crash
        instance.forget_starts(state)
    if newer_at is not None:
        become(newer_at)


def allow_files() -> None:
    """Allow this process as many open files as it may need. macOS allows only 256 at first."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(MAX_OPEN_FILES, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # where it must not be, there are fewer
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _serve(listening: Listening, on_ready: OnReady | None) -> int | None:
    """Serve on the open sockets until the service ends. Return the port if it has to restart, else `None`."""
    from smart_fork.cli.service.app import PUBLIC, Entrance, ServiceParts
    from smart_fork.page import routes

    instance.keep_port(listening.port)
    restart = threading.Event()

    def end() -> None:
        restart.set()
        server.should_exit = True

    parts = ServiceParts(lambda: upgrade.pending)
    entrance = Entrance(state_home() / "page", listening.names[0])
    application, doors = parts.application(entrance)
    traffic = Traffic(
        application, (*PUBLIC, "/status", *routes.STREAMS)
    )  # a browser that listens connects again by itself
    upgrade = Upgrade(lambda waited: parts.idle(waited) and traffic.may_end(waited), end)
    server = _ServiceServer(_config(entrance.guard(traffic, listening.names, doors)), entrance.hang_up)
    started = datetime.now(UTC).isoformat(timespec="seconds")
    address = instance.Address(listening.host, listening.port, os.getpid(), own_version(), started, listening.local)
    stop = threading.Event()
    adopt()
    entrance.entries.end()  # of one that was killed
    parts.start()
    instance.publish(address)
    if on_ready:
        on_ready(address)
    threading.Thread(target=upgrade.run, args=(stop,), name="upgrade", daemon=True).start()
    threading.Thread(target=load_service, name="load all", daemon=True).start()
    log.info("serving at %s", address.url)
    try:
        server.run(sockets=list(listening.sockets))
    finally:
        stop.set()
        entrance.entries.end()
        with suppress(OSError):
            instance.withdraw()
        parts.stop()
        log.info("restarting" if restart.is_set() else "ended")
    return listening.port if restart.is_set() else None


class _ServiceServer(uvicorn.Server):
    """A uvicorn server that closes clients' open streams at its end, with `hang_up`; uvicorn would wait for them.

    Unlike uvicorn, it does not raise the signal again that has ended it.
    """

    def __init__(self, config: uvicorn.Config, hang_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._hang_up = hang_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start the server, and restore each socket's backlog, which asyncio lowers."""
        await super().startup(sockets)
        for one in sockets or ():
            one.listen(BACKLOG)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._hang_up()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM while the server runs. Restore the former handlers afterwards."""
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
