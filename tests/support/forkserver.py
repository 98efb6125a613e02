"""Programs of ours as processes that need not import anything: forks of one process that has imported everything.

For tests of what such a process does. A test of what it imports, of its interpreter or of its memory starts a Python of its
own, and `Popen` does so as well where a fork would not be the same. Importing a service takes two seconds of the processor,
and forking one a fifth of a second: all processes of a run of the suite share the one that has imported it. The processes
of a team's server are forks of its first one, not interpreters that begin anew: that they begin as such is tried where one
is started as `subprocess` does it.
"""

from __future__ import annotations

import logging
import multiprocessing.context
import os
import runpy
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
#: A process that is started with other options is a new one. Each fork has a session of its own.
_OPTIONS = {"cwd", "env", "stdin", "stdout", "stderr", "text", "encoding", "bufsize", "start_new_session"}
#: Read by an interpreter at its start.
_AT_START = ("PYTHON", "LD_", "MALLOC_", "LC_", "LANG")
_SIZE, _DESCRIPTORS = 8, 5
#: Imported when it is first asked for: few tests start it.
_TEAM_SERVER = "smart_fork.team.server"
#: Before any test has set a variable of its own.
_BEGAN = {name: value for name, value in os.environ.items() if name.startswith(_AT_START)}


def _at_start(env: Mapping[str, str]) -> dict[str, str]:
    """What a process cannot take over later. Programs of this checkout are found without a variable."""
    given = {name: value for name, value in env.items() if name.startswith(_AT_START)}
    paths = given.pop("PYTHONPATH", "").split(os.pathsep)
    return given | {path: "" for path in paths if path not in ("", str(ROOT))}


class _Parent:
    """The process that has imported everything, as tests see it. Whichever process of the run needs it first starts it."""

    def __init__(self, began: Mapping[str, str]) -> None:
        self._lock = threading.Lock()
        run = os.environ.get("PYTEST_XDIST_TESTRUNUID") or f"alone-{os.getpid()}"
        code = repr([str(ROOT), sys.executable, sorted(began.items())])
        name = f"\0smart-fork-{run}-{sha256(code.encode()).hexdigest()[:16]}"
        self._process: subprocess.Popen[bytes] | None = None
        while (line := _connected(name)) is None:
            if self._process is not None:
                raise RuntimeError(f"the process that imports everything has ended with {self._process.wait()}")
            self._start(name, began)
        self._line = line

    def _start(self, name: str, began: Mapping[str, str]) -> None:
        """Start it, unless another process does so at this moment."""
        with socket.socket(socket.AF_UNIX) as listening:
            try:
                listening.bind(name)
            except OSError:
                return
            listening.listen()
            env = {name: value for name, value in os.environ.items() if not name.startswith(_AT_START)} | dict(began)
            # That of a test would go with the test, and so would whatever runs there. It removes its own at its end.
            env["HOME"] = tempfile.mkdtemp()
            self._begun, theirs = socket.socketpair()
            command = [sys.executable, "-m", "tests.support.forkserver", str(theirs.fileno()), str(listening.fileno())]
            fds = [theirs.fileno(), listening.fileno()]
            self._process = subprocess.Popen(command, cwd=ROOT, env=env, pass_fds=fds, stdin=subprocess.DEVNULL)
            theirs.close()

    def begin(self, words: list[str], env: Mapping[str, str], descriptors: list[int]) -> int:
        """Return the number of a process that runs that program."""
        from smart_fork.cli.preload.client import _ignored, packed

        os.umask(mask := os.umask(0o077))
        priority = os.getpriority(os.PRIO_PROCESS, 0)
        errors = getattr(sys.__stdin__, "errors", None) or "strict"
        fields = ["", str(mask), str(priority), _ignored(), errors, str(len(words)), *words]
        body = packed([*fields, *(f"{name}={value}" for name, value in env.items())])
        with self._lock:
            socket.send_fds(self._line, [len(body).to_bytes(_SIZE)], descriptors)
            self._line.sendall(body)
            return int.from_bytes(self._line.recv(_SIZE))


def _connected(name: str) -> socket.socket | None:
    """Return a line to the process that listens under that name, once it has said that it does."""
    line = socket.socket(socket.AF_UNIX)
    try:
        line.connect(name)
        if line.recv(1):
            return line
    except OSError:
        pass
    line.close()
    return None


#: What interpreters were started with whose programs are forks, and the processes that have imported everything with that.
_known: list[dict[str, str]] = [_BEGAN]
_parents: dict[int, _Parent] = {}


def know(env: Mapping[str, str]) -> None:
    """Have programs with that environment be forks, too, of a process of their own."""
    began = {name: value for name, value in env.items() if name.startswith(_AT_START)}
    if _at_start(began) not in map(_at_start, _known):
        _known.append(began)


def _parent_of(env: Mapping[str, str]) -> _Parent | None:
    """Return the process of which a program with that environment can be a fork."""
    number = next((number for number, began in enumerate(_known) if _at_start(began) == _at_start(env)), None)
    if number is not None and number not in _parents:
        _parents[number] = _Parent(_known[number])
    return None if number is None else _parents[number]


def like(env: Mapping[str, str]) -> dict[str, str]:
    """Those variables, but what an interpreter reads at its start as the tests have it: so a fork can be made."""
    return {name: value for name, value in env.items() if not name.startswith(_AT_START)} | _BEGAN


class Popen(subprocess.Popen):
    """`subprocess.Popen` for ``python -m …`` and ``python -c …``."""

    def __init__(self, args: Any, **how: Any) -> None:
        self._status: int | None = None
        self._may_fork = sys.platform == "linux" and how.keys() <= _OPTIONS
        super().__init__(args, **how)

    def _execute_child(  # noqa: PLR0917
        self, args: Any, executable: Any, preexec: Any, close: Any, keep: Any, cwd: Any, env: Any, *rest: Any
    ) -> None:
        words = [os.fspath(word) for word in args]
        given = dict(os.environ if env is None else env)
        options = [word for word in words[1:3] if word not in ("-P", "-I")]
        if not (self._may_fork and words[0] == sys.executable and options[0] in ("-m", "-c")):
            return super()._execute_child(args, executable, preexec, close, keep, cwd, env, *rest)
        if (parent := _parent_of(given)) is None:
            return super()._execute_child(args, executable, preexec, close, keep, cwd, env, *rest)
        ends = rest[3:9]
        streams = [end if end >= 0 else own for own, end in enumerate((ends[0], ends[3], ends[5]))]
        here = os.open(cwd or ".", os.O_RDONLY | os.O_DIRECTORY)
        self._status, status = os.pipe()
        try:
            self.pid = parent.begin(words, given, [*streams, here, status])
            self._child_created = True
        finally:
            os.close(here)
            os.close(status)
            self._close_pipe_fds(*ends)

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if self._status is None:
            return super()._try_wait(wait_flags)
        if wait_flags and not select.select([self._status], [], [], 0)[0]:
            return 0, 0
        status = os.read(self._status, 64)
        os.close(self._status)
        return self.pid, int(status)

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self._status is None:
            return super()._internal_poll(_deadstate)
        if self.returncode is None and self._waitpid_lock.acquire(blocking=False):
            try:
                if self.returncode is None and (waited := self._try_wait(os.WNOHANG))[0]:
                    self._handle_exitstatus(waited[1])
            finally:
                self._waitpid_lock.release()
        return self.returncode


def run(
    args: Any,
    *,
    input: Any = None,  # noqa: A002 - as there
    timeout: float | None = None,
    check: bool = False,
    capture_output: bool = False,
    **how: Any,
) -> subprocess.CompletedProcess:
    """`subprocess.run` with a `Popen` of ours."""
    how |= {"stdin": subprocess.PIPE} if input is not None else {}
    how |= {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} if capture_output else {}
    with Popen(args, **how) as process:
        try:
            out, err = process.communicate(input, timeout)
        except BaseException:
            process.kill()
            raise
    done = subprocess.CompletedProcess(args, process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class _Forking:
    """Forks a process for each program until nobody is at the other end of any line."""

    def __init__(self, line: socket.socket, listening: socket.socket) -> None:
        self._lines, self._listening, self._running = [line], listening, dict[int, int]()
        self._woken, self._wake = os.pipe()
        os.set_blocking(self._wake, False)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wake)

    def run(self) -> None:
        while self._lines:
            ready = select.select([*self._lines, self._listening, self._woken], [], [])[0]
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._tell()
            if self._listening in ready:
                self._accept()
            for line in ready:
                if line in self._lines and not self._begin(line):
                    self._lines.remove(line)
                    line.close()

    def _accept(self) -> None:
        """Take up a line of another process of this user."""
        line, _ = self._listening.accept()
        _, user, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
        if user != os.getuid():
            line.close()
            return
        with suppress(OSError):  # who has come is gone
            line.send(b"!")
        self._lines.append(line)

    def _tell(self) -> None:
        """Say of each process that has ended how."""
        for pid in [*self._running]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                with suppress(OSError):  # nobody wants to know
                    os.write(self._running[pid], str(status).encode())
                os.close(self._running.pop(pid))

    def _begin(self, line: socket.socket) -> bool:
        from smart_fork.cli.preload.client import read_exactly, unpacked

        try:
            head, descriptors, _, _ = socket.recv_fds(line, _SIZE, _DESCRIPTORS)
        except ConnectionError:
            return False
        if not head:
            return False
        fields = unpacked(read_exactly(line, int.from_bytes(head)))
        if _TEAM_SERVER in fields:
            _load_team_server()
        if (pid := os.fork()) == 0:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            lines = [one.fileno() for one in (*self._lines, self._listening)]
            for one in (*lines, self._woken, self._wake, descriptors.pop(), *self._running.values()):
                os.close(one)
            _become(fields, descriptors)
        self._running[pid] = descriptors.pop()
        for one in descriptors:
            os.close(one)
        with suppress(OSError):  # who has asked is gone
            line.sendall(pid.to_bytes(_SIZE))
        return True


@cache
def _load_team_server() -> None:
    from smart_fork.team.server.processes import import_all

    import_all()


def _fork_processes() -> None:
    """Have this process fork those that it starts with `multiprocessing`."""
    forking = multiprocessing.get_context("fork")
    multiprocessing.context._concrete_contexts["spawn"] = forking  # type: ignore[attr-defined]
    sys.modules["uvicorn._subprocess"].spawn = forking  # type: ignore[attr-defined]


def _become(fields: list[str], descriptors: list[int]) -> NoReturn:
    """Run that program here, and end as an interpreter does."""
    from smart_fork.cli.launcher import _leave
    from smart_fork.cli.preload import server

    status = 0
    try:
        logging.getLogger().handlers.clear()  # what a library has set up in the process that has imported everything
        if _TEAM_SERVER in fields:
            _fork_processes()
        server._take_over(server._Request(fields, descriptors))
        sys.orig_argv = [*sys.argv]
        words = [word for word in sys.argv[1:2] if word not in ("-P", "-I")] + sys.argv[2:]
        if words[0] == "-m":
            sys.modules.pop(f"{words[1]}.__main__", None)
            sys.argv = words[1:]
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = ["-c", *words[2:]]
            exec(words[1], {"__name__": "__main__"})  # noqa: S102
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        sys.stderr.write(f"{ended.code}\n" if isinstance(ended.code, str) else "")
    except BaseException:  # noqa: BLE001
        sys.excepthook(*sys.exc_info())
        status = 1
    with suppress(OSError):  # nobody reads it any more
        _leave(status, os._exit)
    os._exit(status)


if __name__ == "__main__":
    from smart_fork import server as tools
    from smart_fork.cli.preload import server
    from smart_fork.cli.service.upgrade import load_all
    from tests.smart_fork import tool_server

    server._load()
    load_all(but=("smart_fork.team.server",))
    tools.strict = tool_server._with_known_schema
    tools.Server()
    _Forking(*(socket.socket(fileno=int(number)) for number in sys.argv[1:])).run()
    shutil.rmtree(os.environ["HOME"], ignore_errors=True)
