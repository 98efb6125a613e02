"""A process of the server: it answers requests, or works in the background, for as long as whoever started it is there.

The other end of its standard input is held by that process, so it notices the end of it whatever ended it. Signals do
not end it: a terminal or a service manager sends them to all processes at once, and what is being answered is finished.
"""

from __future__ import annotations

import codecs
import importlib
import json
import logging
import os
import pkgutil
import signal
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from smart_fork.errors import ProgramFailed, SmartForkError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import uvicorn

#: So long the end waits for requests that are being answered, and for a job.
GRACE_SECONDS = 10
BACKLOG = 512
#: What is imported before the rights are given up: afterwards their folders may be closed to it.
_ROOMS = (
    "smart_fork.teamserver",
    "smart_fork.sharing",
    "smart_fork.agents",
    "indexer.masking",
    "indexer.transcripts",
    "indexer.store",
)
#: Libraries that import parts of themselves when these are first used. Some parts need what is not on every system.
_LIBRARIES = ("anyio", "uvicorn.loops", "zstandard")
#: What texts are read and written in, which Python imports when it is first asked for.
_CODECS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "ascii", "idna", "punycode")

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Task:
    """What a process is for: `sockets` are numbers of files that it inherits, `account` whom it becomes."""

    kind: Literal["answer", "work"]
    conninfo: str
    connections: int
    account: tuple[int, int] | None = None
    sockets: tuple[int, ...] = ()
    certificate: str | None = None
    key: str | None = None
    open_projects: bool = True
    journal: str | None = None
    #: As whom the tables are changed, for what works in the background.
    owner: str | None = None

    def written(self) -> bytes:
        """One line that `read` understands."""
        return json.dumps(asdict(self)).encode() + b"\n"

    @classmethod
    def read(cls, line: bytes) -> Task:
        """The one that was `written`."""
        told: dict[str, Any] = json.loads(line)
        account = told["account"]
        return cls(**told | {"sockets": tuple(told["sockets"]), "account": account and (account[0], account[1])})


def run(task: Task) -> None:
    """Do what the task is until standard input ends."""
    if task.kind == "answer":
        _answer(task)
    else:
        _work(task)


def _answer(task: Task) -> None:
    import uvicorn

    from smart_fork.service.connections import Connection
    from smart_fork.teamserver.app import application
    from smart_fork.teamserver.database import Database
    from smart_fork.teamserver.endpoints import Server
    from smart_fork.teamserver.journal import Journal

    database = Database(task.conninfo, task.connections)
    journal = Journal(Path(task.journal)) if task.journal is not None else None
    config = uvicorn.Config(
        application(Server(database, open_projects=task.open_projects, journal=journal)),
        log_config=None,
        access_log=False,
        server_header=False,
        http=Connection,
        backlog=BACKLOG,
        proxy_headers=False,
        timeout_graceful_shutdown=GRACE_SECONDS,
        ws="none",
        lifespan="off",
        ssl_certfile=task.certificate,
        ssl_keyfile=task.key,
    )
    try:
        config.load()
    except OSError as error:  # what ssl raises is one, too
        raise ProgramFailed(
            f"The certificate and its key cannot be used: {error}", "Name others: --tls-cert F --tls-key F"
        ) from error
    give_up_rights(task.account)
    server = _server(config)
    with database:
        _until_input_ends(lambda: setattr(server, "should_exit", True))
        server.run(sockets=[socket.socket(fileno=number) for number in task.sockets])
        os._exit(0)  # what still waits for the database, which may be gone, is not waited for


def _server(config: uvicorn.Config) -> uvicorn.Server:
    import uvicorn

    class Quiet(uvicorn.Server):
        """Leaves signals alone, and says when it listens."""

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            _ready()

        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    return Quiet(config)


def _work(task: Task) -> None:
    from smart_fork.teamserver.cluster import JOBS
    from smart_fork.teamserver.database import Database
    from smart_fork.teamserver.worker import graphs, work

    give_up_rights(task.account)
    busy = threading.Lock()

    def end() -> None:
        busy.acquire(timeout=GRACE_SECONDS)  # a job that takes longer is undone and run again: it is one transaction
        os._exit(0)

    with Database(task.conninfo, task.connections, JOBS) as database:
        _ready()
        _until_input_ends(end)
        if task.owner is not None:
            # What takes minutes is done beside the rest, and is not waited for: what was not finished is made again.
            kinds = graphs(task.owner)
            threading.Thread(target=work, args=(task.conninfo, database, threading.Lock(), kinds), daemon=True).start()
        work(task.conninfo, database, busy)


def give_up_rights(account: tuple[int, int] | None) -> None:
    """Become that user for good, if root runs this. What may be needed later is imported before."""
    if account is None or os.geteuid() != 0:
        return
    import_all()
    uid, gid = account
    os.setgroups([])
    os.setgid(gid)
    os.setuid(uid)


def import_all() -> None:
    """Import all that may be needed, codecs included, which Python imports when they are first used."""
    for room in (*_ROOMS, *_LIBRARIES):
        package = importlib.import_module(room)
        for module in pkgutil.walk_packages(package.__path__, f"{room}."):
            if not module.name.endswith(("__main__", "pytest_plugin")):
                with suppress(*[ImportError] if room in _LIBRARIES else ()):
                    importlib.import_module(module.name)
    for codec in _CODECS:
        codecs.lookup(codec)
    from indexer.embedder import ModelUnavailableError
    from smart_fork.teamserver.index import embedded

    "\u00e9".encode("idna")  # codecs are looked for when they are first used: of hosts that are not ASCII
    with suppress(ModelUnavailableError):
        embedded(["ready"])  # what it takes to embed is loaded as well


def _ready() -> None:
    os.write(1, b'{"ready": true}\n')


def _failed(message: str, hint: str) -> None:
    with suppress(OSError):  # whoever started this is gone
        os.write(1, json.dumps({"error": message, "hint": hint}).encode() + b"\n")


def _next_step(error: Exception) -> str:
    if isinstance(error, ImportError | PermissionError):
        needed = f"{Path(__file__).parents[2]}, {sys.prefix} and {sys.base_prefix}"
        return f"Let the user of --run-as read {needed}, or install smart-fork elsewhere."
    return "Its log says why."


def _until_input_ends(then: Callable[[], None]) -> None:
    def wait() -> None:
        try:
            while os.read(0, 4096):
                pass
        except OSError:
            pass  # whoever started this is gone, which is what is waited for
        then()

    threading.Thread(target=wait, daemon=True).start()


def _first_line() -> bytes:
    """What is read byte by byte leaves nothing of what follows in a buffer."""
    line = b""
    while not line.endswith(b"\n"):
        one = os.read(0, 1)
        if not one:
            break
        line += one
    return line


def main(arguments: Sequence[str] = ()) -> None:  # noqa: ARG001
    """Do what the first line of standard input says; the answer is one line of JSON."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    os.umask(0o077)
    try:
        run(Task.read(_first_line()))
    except SmartForkError as error:
        _failed(error.message, error.hint)
    except Exception as error:
        log.exception("a process of the server cannot do its work")
        _failed(f"A server process failed: {error}", _next_step(error))
    with suppress(OSError):  # whoever read it is gone
        sys.stderr.flush()
    os._exit(0)  # threads that wait for the database would else be waited for


if __name__ == "__main__":
    main()
