"""The program of a team server: it starts the database, the request handlers, and the background process."""

from __future__ import annotations

import json
import logging
import os
import shlex
import signal
import ssl
import sys
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from pydantic import TypeAdapter

from indexer.environment import Setting
from smart_fork.errors import ProgramFailed, SmartForkError, Usage
from smart_fork.system.standard_error import nonblocking_stderr
from smart_fork.team.server import ServerOptions, data_folder, listening_sockets, public_url
from smart_fork.team.server.database import POOL_CONNECTIONS, embedded, external_database, roles_of
from smart_fork.team.server.metrics import shared_metrics_folder
from smart_fork.team.server.postgres_process import Programs, SystemUser, programs
from smart_fork.team.server.processes import ProcessSettings, ServerProcesses

log = logging.getLogger(__name__)


def serve(options: ServerOptions, ready: Callable[[dict[str, Any]], None]) -> None:
    """Run the server until a signal ends it. Call `ready` with its address and process ids when it can answer requests.

    Raises:
        Usage: an option is not acceptable.
        ProgramFailed: a part of the server could not be started.
    """
    if options.read_dsn is not None and options.dsn is None:
        raise Usage("--read-dsn needs --dsn.", "The server's own PostgreSQL has no replica.")
    found = Programs.at(options.programs) if options.programs else None
    account = SystemUser.named(options.run_as, "PostgreSQL" if options.dsn is None else "The team server")
    _try_certificate(options)
    with ExitStack() as parts:
        sockets = [parts.enter_context(one) for one in listening_sockets(options)]
        cluster = None
        if options.dsn is None:
            connections = options.workers * POOL_CONNECTIONS
            cluster = parts.enter_context(embedded(options.folder, account, connections, found))
            roles = roles_of(cluster)
        else:
            account.make(options.folder)
            roles = external_database(options.dsn)
        parts.enter_context(shared_metrics_folder(account))
        settings = ProcessSettings(options, roles, (account.uid, account.gid))

        def started(numbers: dict[str, list[int]]) -> None:
            ready({"url": public_url(sockets, options), "pid": os.getpid()} | numbers)

        ServerProcesses(settings, sockets, started, cluster).run()


def _try_certificate(options: ServerOptions) -> None:
    if options.tls_cert is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.tls_cert, options.tls_key)
    except OSError as error:  # what ssl raises is one, too
        raise ProgramFailed(
            f"The certificate and its key cannot be used: {error}", "Name others: --tls-cert F --tls-key F"
        ) from error


def parse_options(said: str) -> ServerOptions:
    """Parse the options from JSON, but take addresses of databases, which may have passwords, from the environment."""
    options = TypeAdapter(ServerOptions).validate_json(said)
    return replace(
        options, dsn=os.environ.get(Setting.TEAM_DSN) or None, read_dsn=os.environ.get(Setting.TEAM_READ_DSN) or None
    )


def _announce(options: ServerOptions, told: dict[str, Any]) -> None:
    if options.as_json:
        sys.stdout.write(json.dumps(told) + "\n")
        sys.stdout.flush()
        return
    more = f" --data {shlex.quote(str(options.folder))}" if options.folder != data_folder().absolute() else ""
    if options.dsn is not None:
        more = f", with the same --dsn or {Setting.TEAM_DSN}"
    sys.stderr.write(f"Serving at {told['url']}. Ctrl-C ends it.\nAdd people: smart-fork team user add NAME{more}\n")


def main() -> int:
    """Run the server, and return the exit code. The command ``smart-fork team serve`` replaces itself by this program.

    When the server can answer requests, print its address: with ``--json`` as a line of JSON, else in words.
    """
    with nonblocking_stderr():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # until all has begun, it ends what has
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        try:
            options = parse_options(sys.argv[1])
            if options.dsn is None and options.programs is None:
                programs()  # says what to install
            serve(options, partial(_announce, options))
        except KeyboardInterrupt:
            return 0
        except SmartForkError as error:
            sys.stderr.write(f"error: {error.message}\n" + (f"  {error.hint}\n" if error.hint else ""))
            return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
