"""The preloader: a process that has imported all modules, and keeps two forks of itself waiting for a command each.

A waiting process runs one command as the client's own process would, and ends. So no command sees what another one left
behind. See docs/decisions/010-preloader.md.
"""

from __future__ import annotations

import fcntl
import gc
import importlib
import os
import queue
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

from indexer import lazy_compilation
from indexer.default_embedder import LightEmbedder
from indexer.embedder import ModelUnavailableError
from indexer.masking import mask
from indexer.safe_files import private_dir
from smart_fork.cli.launcher import run
from smart_fork.cli.preload import client
from smart_fork.cli.service.upgrade import load_all
from smart_fork.system.peers import credentials
from smart_fork.system.processes import Processes

_NAMESPACES = ("mnt", "net", "pid", "user")
#: Lines of ``/proc/PID/status`` with the rights that a process has given up and never gets back.
_GIVEN_UP = ("NoNewPrivs", "Seccomp", "CapEff", "CapBnd", "Groups")


def may_ask(line: socket.socket) -> bool:
    """Return True if the client at the other end of `line` may hand its command over to this process.

    It must run as the same user, in the same namespaces, with the same restrictions. Otherwise a sandboxed process
    could run a command outside of its sandbox.
    """
    pid, user = credentials(line)
    try:
        return user == os.geteuid() and _confined(str(pid)) == _confined("self")
    except OSError:  # it has ended
        return False


def _confined(process: str) -> list[str]:
    of = Path("/proc", process)
    spaces = [str((of / "ns" / name).readlink()) for name in _NAMESPACES]
    status = (of / "status").read_text(encoding="utf-8", errors="replace").splitlines()
    given_up = [line for line in status if line.partition(":")[0] in _GIVEN_UP]
    return [*spaces, str((of / "root").readlink()), *given_up, _label(of)]


def _label(of: Path) -> str:
    """Return the security label, such as an AppArmor profile, of the process with the ``/proc`` folder `of`."""
    try:
        return (of / "attr" / "current").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


#: The number of waiting processes: the second one takes a command while the first one is being replaced.
WAITING = 2
#: Without a command for so long, the preloader ends.
IDLE_SECONDS = 600.0
#: How often it looks whether its code is still the installed one, and its socket still there.
LOOK_SECONDS = 20.0
#: The pause before a killed process is replaced, so that a process that cannot live does not restart endlessly.
KILLED_SECONDS = 1.0
#: The most bytes of a request: more than the arguments and variables that a system allows a program.
MAX_REQUEST_BYTES = 8 << 20
#: A text with secrets of every kind: masking it compiles the patterns.
_SAMPLE = (
    'export API_KEY="abc" # the password for it is: hunter2 https://a:b@example.com/?token=x $ mysql -u a -p b '
    "0123456789abcdef0123456789abcdef-us1 --token 0123456789abcdef0123456789abcdef01234567"
)
_HANGUP_SECONDS = 5.0
#: The number of descriptors in a request: stdin, stdout, stderr and the directory.
_DESCRIPTORS = 4
#: Packages that the preloader does not import: they run in other processes, or commands do not use them.
_NOT_LOADED = ("smart_fork.team.server", "smart_fork.page", "smart_fork.cli.service", "indexer.default_embedder")


def main() -> None:
    """Run the preloader until no command has come for a while, or smart-fork's code has changed."""
    path = client.socket_path()
    if path is None:
        return
    private_dir(Path(client.folder()))
    with open(f"{path}.lock", "wb") as lock:  # noqa: PTH123
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:  # there is one
            return
        own = client.code()
        _load()
        _Keeper(_listening(path), path, own).run()
        for name in (path, f"{path}.lock"):
            with suppress(OSError):
                os.unlink(name)  # noqa: PTH108


def _load() -> None:
    """Import the modules of all commands, compile patterns and dataclasses, and load the default embedding model."""
    load_all(but=_NOT_LOADED)
    for name in ("rich.table", "rich.padding", "rich.progress", "typer.rich_utils", "encodings.utf_16_be"):
        importlib.import_module(name)
    lazy_compilation.compile_all()
    mask(_SAMPLE)
    with suppress(ModelUnavailableError):  # the command says so
        LightEmbedder().embed(["a first text takes longer"])
    gc.collect()
    gc.freeze()


def _listening(path: str) -> socket.socket:
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108 - of one that was killed: we have the lock
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(128)
    listener.setblocking(False)
    return listener


class _Keeper:
    """The main loop of the preloader. It keeps `WAITING` forked processes ready, each waiting for a command."""

    def __init__(self, listener: socket.socket, path: str, own: str) -> None:
        self._listener, self._path, self._own = listener, path, own
        self._address = os.stat(path).st_ino  # noqa: PTH116
        #: A pipe that is closed when this process ends, however it ends: the waiting processes then end, too.
        self._alive, self._held = os.pipe()
        #: Pipes from the waiting processes: one has data if its process took a command, and is closed if it was killed.
        self._waiting: set[int] = set()

    def run(self) -> None:
        """Fork waiting processes, and replace each one that has taken a command or was killed."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody asks how they ended
        asked = looked = time.monotonic()
        while True:
            while len(self._waiting) < WAITING:
                self._waiting.add(self._fork_waiting())
            for one in select.select(self._waiting, [], [], LOOK_SECONDS)[0]:
                if os.read(one, 1):
                    asked = time.monotonic()
                else:
                    time.sleep(KILLED_SECONDS)
                os.close(one)
                self._waiting.remove(one)
            if time.monotonic() - looked > LOOK_SECONDS:
                looked = time.monotonic()
                if looked - asked > IDLE_SECONDS or not self._is_current():
                    return

    def _is_current(self) -> bool:
        try:
            return os.stat(self._path).st_ino == self._address and client.code() == self._own  # noqa: PTH116
        except OSError:
            return False

    def _fork_waiting(self) -> int:
        """Fork a process that waits for a command. Return the reading end of a pipe from it.

        The pipe gets a byte when the process takes a command, and is closed when it ends.
        """
        taken, take = os.pipe()
        if os.fork() == 0:
            for one in (self._held, taken, *self._waiting):
                os.close(one)
            self._wait(take)
        os.close(take)
        return taken

    def _wait(self, take: int) -> NoReturn:
        """Wait in a forked process for a command, write a byte to the pipe `take`, run the command, and end."""
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        while True:
            if select.select([self._listener.fileno(), self._alive], [], [])[0] == [self._alive]:
                os._exit(0)
            try:
                line, _ = self._listener.accept()
            except OSError:  # another one was faster
                continue
            if (asked := _accepted(line)) is None:
                line.close()
                continue
            os.write(take, b"+")
            self._listener.close()
            for end in (self._alive, take):
                os.close(end)
            _Command(line, asked).run()


class _Request:
    """A client's request to run its command in this process, with its arguments, variables, streams and settings."""

    def __init__(self, fields: list[str], descriptors: Sequence[int]) -> None:
        self.package, mask, priority, ignored, self.errors, count, *rest = fields
        self.umask, self.priority, number = int(mask), int(priority), int(count)
        self.ignored = frozenset(map(int, ignored.split()))
        self.arguments = rest[:number]
        self.variables = dict(one.split("=", 1) for one in rest[number:])
        self.descriptors = descriptors


def _accepted(line: socket.socket) -> _Request | None:
    """Receive a request on `line`, and let the client confirm that this process runs its command.

    Return `None` if the client may not hand its command over, or has stopped waiting.
    """
    line.settimeout(_HANGUP_SECONDS)
    with suppress(OSError):
        if may_ask(line):
            line.sendall(client.READY)
            if (asked := _read_request(line)) is not None:
                line.sendall(client.READY)
                if line.recv(1) == client.GO:
                    line.settimeout(None)
                    return asked
                _close(asked.descriptors)
        line.sendall(client.REFUSED)
    return None


def _read_request(line: socket.socket) -> _Request | None:
    """Return the request that the client sends over `line`; `None` if it is incomplete or invalid."""
    head, descriptors, _, _ = socket.recv_fds(line, client.SIZE, _DESCRIPTORS)
    with suppress(ValueError, OSError):
        body = client.read_exactly(line, min(int.from_bytes(head), MAX_REQUEST_BYTES))
        asked = _Request(client.unpacked(body), descriptors)
        if len(descriptors) == _DESCRIPTORS:
            return asked
    _close(descriptors)
    return None


def _close(descriptors: Sequence[int]) -> None:
    for one in descriptors:
        os.close(one)


class _Command:
    """A command that this child process of the preloader runs for a client. `line` is the socket to the client."""

    def __init__(self, line: socket.socket, asked: _Request) -> None:
        self._line, self._asked = line, asked
        self._pid, _ = credentials(line)
        self._failed: queue.SimpleQueue[int] = queue.SimpleQueue()
        self._becoming = False

    def run(self) -> NoReturn:
        """Take over the client's streams and settings, run its command, and send back the exit status."""
        _take_over(self._asked)
        _limit_as(self._pid)
        Processes.act_for(self._pid, self._become, self._end)
        threading.Thread(target=self._listen, name="signals", daemon=True).start()
        try:
            run(self._end)
        except SystemExit as ended:  # with a text
            sys.stderr.write(f"{ended.code}\n")
        self._end(1)

    def _end(self, status: int) -> NoReturn:
        with suppress(OSError):
            self._line.sendall(client.message(client.ENDED, str(status).encode()))
        os._exit(status)

    def _become(self, argv: Sequence[str], cwd: Path, env: Mapping[str, str]) -> NoReturn:
        """Have the client's process replaced by the program `argv`, and end this process.

        Raises:
            OSError: the program cannot be started.
        """
        variables = [f"{name}={value}" for name, value in env.items()]
        self._becoming = True
        self._line.sendall(client.message(client.BECOMES, client.packed([str(cwd), str(len(argv)), *argv, *variables])))
        number = self._failed.get()
        self._becoming = False
        if number == 0:
            os._exit(0)
        raise OSError(number, os.strerror(number))

    def _listen(self) -> None:
        """Raise each signal that the client passes on. If the client ends, end this process."""
        while True:
            try:
                said = self._line.recv(1)
            except OSError:
                said = b""
            if not said:
                if self._becoming:
                    self._failed.put(0)
                    return
                os.kill(os.getpid(), signal.SIGHUP)
                time.sleep(_HANGUP_SECONDS)
                os._exit(1)
            elif said[0] == client.FAILED:
                self._failed.put((self._line.recv(1) or b"\1")[0])
            else:
                os.kill(os.getpid(), said[0])


def _take_over(asked: _Request) -> None:
    os.setsid()
    for number, given in enumerate(asked.descriptors[:3]):
        os.dup2(given, number)
    os.fchdir(asked.descriptors[3])
    _close(asked.descriptors)
    os.umask(asked.umask)
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, asked.priority)
    os.environ.clear()
    os.environ.update(asked.variables)
    time.tzset()
    sys.argv = asked.arguments
    sys.modules["__main__"].__package__ = asked.package
    for number in client.PASSED_ON:  # the preloader may have been started by somebody who ignores others
        signal.signal(number, signal.SIG_IGN if number in asked.ignored else signal.SIG_DFL)
    if signal.SIGINT not in asked.ignored:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, encoding=sys.stdin.encoding, errors=asked.errors, closefd=False)  # noqa: SIM115
    sys.stdout = _text_stream(1, sys.stdout, asked.errors)
    sys.stderr = _text_stream(2, sys.stderr, sys.stderr.errors)


def _limit_as(process: int) -> None:
    """Set this process's resource limits and allowed processors to those of the process with the id `process`."""
    for name in (one for one in dir(resource) if one.startswith("RLIMIT_")):
        with suppress(OSError, ValueError):  # a limit that this user may not raise, or that this system has not
            resource.setrlimit(limit := getattr(resource, name), resource.prlimit(process, limit))
    with suppress(OSError):
        os.sched_setaffinity(0, os.sched_getaffinity(process))


def _text_stream(number: int, before: TextIO, errors: str | None) -> TextIO:
    """Return a text stream for the descriptor `number`, with the encoding of `before`, the stream that it replaces."""
    buffering = 1 if number == 2 or os.isatty(number) else -1
    return open(number, "w", buffering, before.encoding, errors, closefd=False)


if __name__ == "__main__":
    main()
