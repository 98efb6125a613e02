"""The server of a team: its database, the processes that answer, and the one that works in the background."""

from __future__ import annotations

import argparse
import json
import logging
import os
import shlex
import signal
import ssl
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from indexer.paths import state_home
from smart_fork.errors import ProgramFailed, SmartForkError, Usage
from smart_fork.system.standard_error import never_waiting
from smart_fork.teamserver.cluster import Account, Programs, programs

#: Where a password need not be seen by everybody who lists processes.
DSN_VARIABLE, READ_DSN_VARIABLE = "SMART_FORK_TEAM_DSN", "SMART_FORK_TEAM_READ_DSN"
MOST_WORKERS = 64
MOST_TOKEN_DAYS = 3650

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Options:
    """What is said of a server."""

    listen: str
    data: Path
    dsn: str | None = None
    read_dsn: str | None = None
    workers: int = 1
    certificate: str | None = None
    key: str | None = None
    behind_proxy: bool = False
    run_as: str | None = None
    open_projects: bool = True
    token_days: int = 0
    request_log: bool = False
    as_json: bool = False
    #: PostgreSQL's programs, where they are not those of the package.
    programs: Programs | None = field(default=None)


def data_folder() -> Path:
    """Where a server keeps its database unless it is told another place."""
    return state_home() / "team-server"


def serve(options: Options, told: Callable[[dict[str, Any]], None]) -> None:
    """Run the server until a signal ends it. `told` is given its address as soon as it answers.

    Raises:
        Usage: Something that was asked for cannot be.
        ProgramFailed: A part of it could not be started.
    """
    from smart_fork.teamserver.address import Transport, listening, written
    from smart_fork.teamserver.database import CONNECTIONS
    from smart_fork.teamserver.metrics import counted_together
    from smart_fork.teamserver.processes import Processes, Task
    from smart_fork.teamserver.tables import elsewhere, embedded, roles_of

    if not 1 <= options.workers <= MOST_WORKERS:
        raise Usage(f"--workers is a number from 1 to {MOST_WORKERS}.")
    if not 0 <= options.token_days <= MOST_TOKEN_DAYS:
        raise Usage(f"--token-days is a number from 0 to {MOST_TOKEN_DAYS}.", "With 0, tokens do not expire.")
    if options.read_dsn is not None and options.dsn is None:
        raise Usage("--read-dsn needs --dsn.", "The server's own PostgreSQL has no replica.")
    account = Account.named(options.run_as, "PostgreSQL" if options.dsn is None else "The team server")
    transport = Transport(options.certificate, options.key, options.behind_proxy)
    _try_certificate(options)
    with ExitStack() as parts:
        sockets = [parts.enter_context(one) for one in listening(options.listen, transport)]
        cluster = None
        if options.dsn is None:
            connections = options.workers * CONNECTIONS
            cluster = parts.enter_context(embedded(options.data, account, connections, options.programs))
            roles = roles_of(cluster)
        else:
            account.make(options.data)
            roles = elsewhere(options.dsn)
        task = Task(
            roles.app, roles.jobs, roles.owner, (account.uid, account.gid), CONNECTIONS, options.data,
            options.open_projects, timedelta(days=options.token_days) if options.token_days else None,
            options.request_log, options.read_dsn,
        )  # fmt: skip
        parts.enter_context(counted_together(account))
        Processes(
            task, sockets, lambda numbers: told({"url": written(sockets, transport), "pid": os.getpid()} | numbers),
            workers=options.workers, certificate=options.certificate, key=options.key, cluster=cluster,
        ).run()  # fmt: skip


def _try_certificate(options: Options) -> None:
    if options.certificate is None:
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(options.certificate, options.key)
    except OSError as error:  # what ssl raises is one, too
        raise ProgramFailed(
            f"The certificate and its key cannot be used: {error}", "Name others: --tls-cert F --tls-key F"
        ) from error


def options_of(arguments: Sequence[str]) -> Options:
    """What a command line says."""
    from smart_fork.teamserver.address import DEFAULT

    parser = argparse.ArgumentParser(prog="python -m smart_fork.teamserver", description=__doc__)
    parser.add_argument("--listen", default=DEFAULT, metavar="HOST:PORT")
    parser.add_argument("--data", type=Path, default=None, metavar="DIR")
    parser.add_argument("--dsn", default=os.environ.get(DSN_VARIABLE), help=f"or {DSN_VARIABLE}")
    parser.add_argument("--read-dsn", default=os.environ.get(READ_DSN_VARIABLE), help=f"or {READ_DSN_VARIABLE}")
    parser.add_argument("--workers", type=int, default=1, metavar="N")
    parser.add_argument("--tls-cert", dest="certificate", metavar="FILE")
    parser.add_argument("--tls-key", dest="key", metavar="FILE")
    parser.add_argument("--behind-proxy", action="store_true")
    parser.add_argument("--run-as", metavar="USER")
    parser.add_argument("--projects", choices=("open", "admins"), default="open")
    parser.add_argument("--token-days", type=int, default=0, metavar="N")
    parser.add_argument("--request-log", action="store_true")
    parser.add_argument("--programs", type=Path, metavar="DIR", help="PostgreSQL's own, with pgvector")
    parser.add_argument("--json", dest="as_json", action="store_true")
    said = vars(parser.parse_args(arguments))
    said |= {name: said[name] or None for name in ("dsn", "read_dsn")}
    said |= {"data": (said["data"] or data_folder()).absolute(), "open_projects": said.pop("projects") == "open"}
    return Options(**said | {"programs": Programs.at(said["programs"]) if said["programs"] else None})


def _print_json(told: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(told) + "\n")
    sys.stdout.flush()


def _words(options: Options) -> Callable[[dict[str, Any]], None]:
    more = f" --data {shlex.quote(str(options.data))}" if options.data != data_folder().absolute() else ""
    if options.dsn is not None:
        more = f", with the same --dsn or {DSN_VARIABLE}"

    def say(told: dict[str, Any]) -> None:
        sys.stderr.write(
            f"Serving at {told['url']}. Ctrl-C ends it.\nAdd people: smart-fork team user add NAME{more}\n"
        )

    return say


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. When it answers it says so: with --json in a line of its output, else in words."""
    with never_waiting():
        signal.signal(signal.SIGTERM, signal.default_int_handler)  # until all has begun, it ends what has
        logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
        return _served(sys.argv[1:] if arguments is None else arguments)


def _served(arguments: Sequence[str]) -> int:
    try:
        options = options_of(arguments)
        if options.dsn is None and options.programs is None:
            programs()  # says what to install
        serve(options, _print_json if options.as_json else _words(options))
    except KeyboardInterrupt:
        return 0
    except SmartForkError as error:
        sys.stderr.write(f"error: {error.message}\n" + (f"  {error.hint}\n" if error.hint else ""))
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
