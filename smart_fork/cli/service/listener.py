"""Listening addresses of the service: a literal one, or all those of a name of this machine.

Whoever names this machine is connected to any of its addresses. So a name is ours where we listen at each of them, and
not where somebody else has the same port of another: he would be told the token by programs that trust the name.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import socket
from pathlib import Path
from tempfile import mkdtemp

from indexer.lazy import dataclass
from indexer.safe_files import private_dir, state_home
from smart_fork.cli.service.address import remove_socket, wanted_port
from smart_fork.errors import ProgramFailed, Usage

#: What it stands for wherever it can be looked up, and where it cannot.
LOCALHOST, LOOPBACKS = "localhost", ("127.0.0.1", "::1")
BACKLOG = 512
#: An address that this machine has not: nobody can listen there.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)
_OTHER = "Choose an address of this machine, --host, and a port above 1023, --port N."

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Listening:
    """`sockets` that listen at one `port`, the first at `host`. A request may use any of `names` as its Host.

    The last socket is for our own programs, at the path `local`, which is empty without one.
    """

    sockets: tuple[socket.socket, ...]
    host: str
    port: int
    names: tuple[str, ...]
    local: str = ""

    def close(self) -> None:
        """Close and remove the sockets."""
        for one in self.sockets:
            one.close()
        if self.local:
            remove_socket(Path(self.local))


def addresses(host: str, *, allow_remote: bool) -> list[str]:
    """Return the literal addresses of `host`.

    Raises:
        Usage: it is not this machine alone, and that was not allowed; or nobody can ask for it.
        ProgramFailed: it is no address.
    """
    found = list(LOOPBACKS) if host.lower() == LOCALHOST else _looked_up(host)
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
    """Listen at `port`, else at the wanted one (see `wanted_port`), else at any free one.

    Raises:
        Usage: as `addresses`.
        ProgramFailed: the port that was asked for is taken, or nobody can listen at `host`.
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
    names = tuple(dict.fromkeys(_named(one, chosen) for one in hosts))
    if own is None:
        return Listening(tuple(sockets), literal, chosen, names)
    return Listening((*sockets, own), literal, chosen, names, own.getsockname())


def listen_locally(state: Path) -> socket.socket | None:
    """Listen for the user's own programs, on a socket in `state`. An old socket there belongs to a killed service.

    If the path is too long or the file system has no sockets, a private folder in ``/tmp`` has the socket. Return
    `None` if that fails too: our programs then work without the service.
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
    for wanted in (port,) if port is not None else (wanted_port(os.environ), 0):
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


def _named(host: str, port: int) -> str:
    """Return it as the Host of a request."""
    return f"[{host}]:{port}" if ":" in host else f"{host.lower()}:{port}"
