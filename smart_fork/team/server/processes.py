"""The processes of a server: Uvicorn's workers, which answer requests, and the background process.

Uvicorn's supervisor replaces a worker that has ended. If the background process or the database ends, the whole server
ends, and systemd or a container starts it again.
"""

from __future__ import annotations

import codecs
import importlib
import logging
import multiprocessing
import os
import pkgutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import uvicorn
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess

from indexer.embedder import ModelUnavailableError
from smart_fork.errors import ProgramFailed
from smart_fork.system.http_limits import Connection
from smart_fork.team.server import BACKLOG, ServerOptions
from smart_fork.team.server.database import Database, Roles
from smart_fork.team.server.metrics import disk_warning, requests
from smart_fork.team.server.postgres_process import JOBS, Cluster
from smart_fork.team.server.request_handling import ServerContext

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess
    from types import FrameType

    from starlette.types import ASGIApp, Receive, Scope, Send


#: Seconds that a stopping server waits for running requests and for a running job.
GRACE_SECONDS = 10
#: Seconds after which a worker is restarted if it has not started, or does not answer its supervisor.
SECONDS_TO_BEGIN, SECONDS_TO_ANSWER = 120.0, 60
#: Packages that are imported before the process gives up root's rights: it may not be able to read them afterwards.
_PACKAGES = (
    "smart_fork.team.server",
    "smart_fork.sharing",
    "smart_fork.agents",
    "indexer.masking",
    "indexer.transcripts",
    "indexer.store",
)
#: Libraries that import their own modules only when these are first used. Some modules do not work on every system.
_LIBRARIES = ("anyio", "uvicorn.loops", "zstandard")
#: Text encodings, which Python imports only when they are first used.
_CODECS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "ascii", "idna", "punycode")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProcessSettings:
    """The settings of the server's processes: options, connection strings, and user and group id to run as."""

    options: ServerOptions
    roles: Roles
    account: tuple[int, int]


class ServerProcesses(Multiprocess):
    """The supervisor that starts a server's processes and watches them, until a signal ends it.

    The signal SIGHUP replaces each worker by a new one, which reads the TLS certificate again. When all processes
    answer, `ready` is called with the process ids of the workers ("answer") and of the background process ("work").
    """

    def __init__(
        self,
        settings: ProcessSettings,
        sockets: Sequence[socket.socket],
        ready: Callable[[dict[str, list[int]]], None],
        cluster: Cluster | None = None,
    ) -> None:
        config = uvicorn.Config(
            partial(worker_app, settings),
            factory=True,
            workers=settings.options.workers,
            log_config=None,
            access_log=False,
            server_header=False,
            http=Connection,
            backlog=BACKLOG,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_worker_healthcheck=SECONDS_TO_ANSWER,
            ws="none",
            lifespan="on",
            ssl_certfile=settings.options.tls_cert,
            ssl_keyfile=settings.options.tls_key,
        )
        super().__init__(config, list(sockets))
        self._low_disk = False
        self._settings, self._ready, self._cluster = settings, ready, cluster
        self._work: BaseProcess | None = None
        self._ended = ""

    def run(self) -> None:
        """Start all processes of the server, watch them, and return when a signal ends the server.

        Raise `ProgramFailed` if a process could not start, or if the database or the background process has ended.
        """
        super().run()
        if self._ended:
            hint = "Start the server again. systemd and containers do so themselves: smart-fork team serve --help"
            raise ProgramFailed(f"{self._ended} has ended, so the server ends.", hint)
        if any(one.exitcode == STARTUP_FAILURE for one in self.processes):
            raise _cannot_begin()

    def init_processes(self) -> None:
        """Start all processes of the server, and return when they are ready."""
        super().init_processes()
        self._work = multiprocessing.get_context("spawn").Process(target=run_background, args=(self._settings,))
        self._work.start()
        for process in self.processes:
            if not process.wait_until_ready(SECONDS_TO_BEGIN, self.should_exit):
                self.terminate_all()
                raise _cannot_begin()
        self._ready({"answer": [one.pid for one in self.processes if one.pid], "work": [self._work.pid or 0]})

    def keep_subprocess_alive(self) -> None:
        if self.should_exit.is_set() or self.signal_queue:
            return  # a signal to the whole group ends the children, too
        if self._cluster is not None and self._cluster.postmaster() is None:
            self._ended = "PostgreSQL"
        elif self._work is not None and not self._work.is_alive():
            self._ended = "The background process"
        if self._ended:
            self.should_exit.set()
            return
        low = disk_warning(self._settings.options.folder)
        if low and not self._low_disk:
            log.warning("%s", low)
        self._low_disk = bool(low)
        super().keep_subprocess_alive()

    def terminate_all(self) -> None:
        super().terminate_all()
        if self._work is not None:
            self._work.terminate()

    def join_all(self) -> None:
        super().join_all()
        if self._work is not None:
            self._work.join()

    def handle_hup(self) -> None:
        """Replace the workers. In a terminal, where SIGHUP means that it was closed, end the server."""
        if sys.stdin is not None and sys.stdin.isatty():
            self.should_exit.set()
        else:
            super().handle_hup()


def _cannot_begin() -> ProgramFailed:
    needed = f"{Path(__file__).parents[3]}, {sys.prefix} and {sys.base_prefix}"
    return ProgramFailed(
        "A process of the server could not begin. Its log says why.",
        f"If it may not read a file: let the user of --run-as read {needed}, or install smart-fork elsewhere.",
    )


def worker_app(settings: ProcessSettings) -> ASGIApp:
    """Return the ASGI app of a worker process. If root started the worker, first give up root's rights.

    Uvicorn reads the TLS certificate before that, still with root's rights.
    """
    from smart_fork.team.server.routes import application

    _become_user(settings, lambda: os._exit(1))
    options = settings.options
    database = Database(settings.roles.app, replica=options.read_dsn)
    if options.request_log:
        requests.setLevel(logging.INFO)
    lifetime = timedelta(days=options.token_days) if options.token_days else None
    server = ServerContext(database, options.projects == "open", options.folder, lifetime)
    inner = application(server)

    async def outer(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await inner(scope, receive, send)
            return
        await receive()
        with database:
            await send({"type": "lifespan.startup.complete"})
            await receive()
            os._exit(0)  # what still waits for the database, which may be gone, is not waited for

    return outer


def run_background(settings: ProcessSettings) -> None:
    """Run the background process until a signal arrives or the parent process ends."""
    from smart_fork.team.server.jobs import kinds_for, work

    busy, ending = threading.Lock(), threading.Event()

    def end() -> None:
        ending.wait()
        busy.acquire(timeout=GRACE_SECONDS)  # a job that takes longer is undone and run again: it is one transaction
        os._exit(0)

    def told(_number: int, _frame: FrameType | None) -> None:
        ending.set()

    signal.signal(signal.SIGTERM, told)
    for number in (signal.SIGINT, signal.SIGHUP):  # a terminal sends them to all at once
        signal.signal(number, signal.SIG_IGN)
    threading.Thread(target=end, daemon=True).start()
    _become_user(settings, ending.set)
    with Database(settings.roles.jobs, 4, JOBS) as database:
        work(settings.roles.jobs, database, busy, kinds_for(settings.roles.owner))


def _become_user(settings: ProcessSettings, orphaned: Callable[[], None]) -> None:
    """If root runs this process, become another user for good. Call `orphaned` when the parent process ends."""
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    parent = multiprocessing.parent_process()
    assert parent is not None  # noqa: S101 - these are processes of `ServerProcesses`

    def wait() -> None:
        parent.join()
        orphaned()

    threading.Thread(target=wait, daemon=True).start()
    give_up_rights(settings.account)


def give_up_rights(account: tuple[int, int]) -> None:
    """If root runs this process, become the user `account` (user and group id) for good.

    All modules are imported before, since this user may not be able to read their files.
    """
    if os.geteuid() != 0:
        return
    import_all()
    uid, gid = account
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def import_all() -> None:
    """Import all modules and text encodings that the process may need later."""
    for room in (*_PACKAGES, *_LIBRARIES):
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not module.name.endswith(("__main__", "pytest_plugin")):
                with suppress(*[ImportError] if room in _LIBRARIES else ()):
                    importlib.import_module(module.name)
    for codec in _CODECS:
        codecs.lookup(codec)
    from smart_fork.team.server.search import embed_questions

    "\u00e9".encode("idna")  # codecs are looked for when they are first used: of hosts that are not ASCII
    with suppress(ModelUnavailableError):
        embed_questions(["ready"])  # what it takes to embed is loaded as well
