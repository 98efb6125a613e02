"""The start, observation and end of other programs, for all of smart-fork. Never through a shell."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import site
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from types import FrameType
from typing import IO, TYPE_CHECKING, Any, NamedTuple, NoReturn, Self, cast

from indexer.lazy_compilation import dataclass
from indexer.masking import Masked, beginning, mask
from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing

if TYPE_CHECKING:
    import psutil

#: The retries, and their interval, for a process that has no environment yet.
_LOOKS, _LOOK_SECONDS = 100, 0.01
_STATUS_SECONDS = 2.0
#: Programs with a longer timeout get a guard. Starting one costs processor time.
_BRIEF_SECONDS = 240.0
#: Servers and repositories that were silent, by program: when they may be asked again, and the timeout that passed.
#: So an answer that needs many requests waits for one timeout only.
_SILENT_SECONDS = 60.0
_silent: dict[tuple[str, str], tuple[float, float]] = {}
_GUARD = "import os, sys; os.read(0, 1); os.killpg(int(sys.argv[1]), 9)"


@dataclass(frozen=True, slots=True)
class Completed:
    """The result of a program that has ended: its arguments, exit status and output."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        """Return True if the program ended with exit status 0."""
        return self.returncode == 0

    @property
    def ending(self) -> str:
        """Return the program's end in words: "exit status 1", or "killed by SIGTERM"."""
        return self.in_words(self.returncode)

    @property
    def text(self) -> str:
        """Return the program's standard output as text, without white space at the ends."""
        return self.stdout.decode("utf-8", "replace").strip()

    @property
    def paths(self) -> list[str]:
        """Return the paths in the output of a git command that ran with the option ``-z``."""
        return [os.fsdecode(name) for name in self.stdout.split(b"\0") if name]

    @property
    def complaint(self) -> Masked:
        """Return the program's standard error, else its standard output, masked and shortened for an error message."""
        said = self.stderr.strip() or self.stdout.strip()
        return beginning(mask(said.decode("utf-8", "replace")), 500)

    @staticmethod
    def in_words(status: int | None) -> str:
        """Describe an exit status: "exit status 1". A negative status is a signal; `None` (unknown) gives ""."""
        if status is None:
            return ""
        if status >= 0:
            return f"exit status {status}"
        try:
            return f"killed by {signal.Signals(-status).name}"
        except ValueError:
            return f"killed by signal {-status}"


def _late(argv: Sequence[str], timeout: float) -> ProgramFailed:
    return ProgramFailed(f"{Path(argv[0]).name} did not answer within {timeout:g} seconds")


@cache
def _is_installed() -> bool:
    """Return True if Python finds smart-fork without PYTHONPATH: in site-packages, or by a .pth file there."""
    folders, ours = [Path(folder) for folder in site.getsitepackages()], Path(__file__).parents[2]
    lines = (line for folder in folders for file in folder.glob("*.pth") for line in file.read_bytes().splitlines())
    return ours in folders or os.fsencode(ours) in lines


class _CtrlC:
    """A context that delays Ctrl-C until `allow` is called, or until its end.

    Ctrl-C during the start of a program would leave a program that nothing ends.
    """

    def __init__(self) -> None:
        self._before: Any = None
        self._pressed: list[tuple[int, FrameType | None]] = []

    def __enter__(self) -> Self:
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler) and threading.current_thread() is threading.main_thread():
            self._before = handler
            signal.signal(signal.SIGINT, lambda *pressed: self._pressed.append(pressed))
        return self

    def __exit__(self, *_: object) -> None:
        self.allow()

    def allow(self) -> None:
        """Let Ctrl-C interrupt again. If it was pressed during the delay, interrupt now."""
        handler, self._before = self._before, None
        if handler is None:
            return
        signal.signal(signal.SIGINT, handler)
        if self._pressed:
            handler(*self._pressed[0])


class Running(NamedTuple):
    """A process: its command line, its start in seconds since the epoch, and the id of its parent."""

    words: Sequence[str]
    born: float
    parent: int


class Processes:
    """Starts other programs, looks at running processes, and ends them. Tests use a replacement for this class."""

    def __init__(self) -> None:
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    @staticmethod
    def not_asked_again() -> list[str]:
        """Return the names of programs that are not run now, because they were too slow within the last minute."""
        return sorted({Path(program).name for (program, _), (until, _) in _silent.items() if time.monotonic() < until})

    @staticmethod
    def python(module: str, *words: str) -> list[str]:
        """Return the command line that runs a Python module of smart-fork, never a file in the current directory.

        If smart-fork is found without PYTHONPATH, that variable and Python's startup files are ignored, too.
        """
        return [sys.executable, "-I" if sys.flags.isolated or _is_installed() else "-P", "-m", module, *words]

    def run(
        self,
        argv: Sequence[str],
        *,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float,
        input: bytes = b"",  # noqa: A002 - what subprocess calls it
        whom: str = "",
    ) -> Completed:
        """Run a program, wait for its end, and return its output; `timeout` is in seconds.

        If it does not end in time, or the wait is interrupted, it and everything it started are killed. With a timeout
        of minutes it is also killed if this process ends in any way. `whom` is the server or repository that the
        program contacts. For a minute after a timeout, the same program with the same `whom` fails immediately, unless
        its timeout is longer.

        Raises:
            ProgramMissing: the program does not exist.
            ProgramFailed: the program cannot be started, or did not end in time.
            NotFound: `cwd` does not exist.
        """
        until, waited = _silent.get((argv[0], whom), (0.0, 0.0))
        if time.monotonic() < until and timeout <= waited:
            raise _late(argv, timeout)
        with _CtrlC() as ctrl_c:
            pipe = subprocess.PIPE
            with _starting(argv, cwd, env):
                process = subprocess.Popen(
                    argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
                )
            with process, _ended_with_us(process.pid) if timeout > _BRIEF_SECONDS else contextlib.nullcontext():
                try:
                    ctrl_c.allow()
                    stdout, stderr = process.communicate(input, timeout=timeout)
                except subprocess.TimeoutExpired as error:
                    # Not until its output ends: a server that hangs has that as well.
                    self.end(process.pid, force=True)
                    if whom:
                        _silent[argv[0], whom] = time.monotonic() + _SILENT_SECONDS, timeout
                    raise _late(argv, timeout) from error
                except BaseException:  # such as Ctrl-C, which the program itself does not get
                    if process.returncode is None:  # else its number may be another's by now
                        self.end(process.pid, force=True)
                    raise
        return Completed(tuple(argv), process.returncode, stdout, stderr)

    def start(
        self,
        argv: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        log: Path,
        input: bytes = b"",  # noqa: A002
    ) -> int:
        """Start a program that outlives this process, with `input` on its standard input. Return the process id.

        Its output is appended to the private file `log`.
        """
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            output = os.open(log, flags, 0o600)
        except OSError as error:
            raise ProgramFailed(f"The log cannot be written: {error}") from error
        try:
            with _starting(argv, cwd, env), _file_of(input) as given:
                process = subprocess.Popen(
                    argv, cwd=cwd, env=env, stdin=given, stdout=output, stderr=subprocess.STDOUT, start_new_session=True
                )
        finally:
            os.close(output)
        # Waited for, so that a worker that has ended is gone and not a zombie that looks alive.
        threading.Thread(target=process.wait, name=f"wait-{process.pid}", daemon=True).start()
        self._started[process.pid] = process
        return process.pid

    def converse(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> subprocess.Popen[bytes]:
        """Start a program to talk to over its input and output. Its standard error is discarded."""
        pipe = subprocess.PIPE
        with _starting(argv, cwd, env):
            return subprocess.Popen(argv, cwd=cwd, env=env, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL)

    def alive(self, pid: int) -> bool:
        """Return True if the process is running."""
        import psutil  # takes a while, and most questions ask of no process

        try:
            return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:  # it is there, and somebody else's
            return True

    def running(self) -> dict[int, Running]:
        """Return all running processes of this machine by process id."""
        import psutil

        found = {}
        for one in self.each():
            with contextlib.suppress(psutil.Error, OSError), one.oneshot():
                try:
                    words = one.cmdline()
                except psutil.AccessDenied:  # somebody else's
                    words = [one.name()]
                if words:  # else it has ended, or is the system's own
                    found[one.pid] = Running(words, one.create_time(), one.ppid())
        return found

    def exit_status(self, pid: int) -> int | None:
        """Return the exit status of a process that `start` started, negative for a signal; `None` if unknown.

        This waits up to two seconds, since the status may be late.
        """
        process = self._started.get(pid)
        if process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=_STATUS_SECONDS)
        return None

    def environment(self, pid: int) -> Mapping[str, str] | None:
        """Return the environment variables with which a running process was started; `None` if unknown.

        A caller uses them to notice that the system has given the id of an ended process to another one.
        """
        import psutil

        for _ in range(_LOOKS):
            try:
                process = psutil.Process(pid)
                env = None if process.status() == psutil.STATUS_ZOMBIE else process.environ()
            except (psutil.Error, OSError, ValueError):
                return None
            if env is None or env:
                return env
            time.sleep(_LOOK_SECONDS)  # one that is just becoming another program has none for a moment
        return {}

    def end(self, pid: int, *, force: bool) -> None:
        """Send SIGTERM, or SIGKILL with `force`, to the process group of `pid`, even if `pid` itself has ended."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL if force else signal.SIGTERM)

    def replace(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> NoReturn:
        """Replace this process (or the client of `act_for`) with another program, as `exec` does."""
        with _starting(argv, cwd, env):
            if _client_process is not None:
                _client_process.become(argv, cwd, env)
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - no shell is what we want

    @staticmethod
    def each() -> Iterator[psutil.Process]:
        """Yield the processes of this machine as they are now.

        psutil's own iterator would return a cached process for a reused process id.
        """
        import psutil  # takes a while

        for number in psutil.pids():
            try:
                process = psutil.Process(number)
            except (psutil.Error, OSError):  # it has ended meanwhile
                continue
            yield process

    @staticmethod
    def at_this_terminal(argv: Sequence[str], given: bytes) -> str:
        """Run an interactive program at this terminal with `given` on its standard input, and return its output.

        Return "" if the user left the program without a result.
        """
        with _starting(argv), subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            told, _ = process.communicate(given)
        return told.decode("utf-8", "replace") if process.returncode == 0 else ""

    @staticmethod
    @contextlib.contextmanager
    def pager(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[IO[bytes]]:
        """Start a pager at this terminal and yield its standard input. After the block, wait until the user leaves it.

        Ctrl-C goes to the pager.
        """
        before = signal.getsignal(signal.SIGINT)
        with _starting(argv, None, env), subprocess.Popen(argv, stdin=subprocess.PIPE, env=env) as process:
            signal.signal(signal.SIGINT, lambda *_: None)
            try:
                with contextlib.suppress(BrokenPipeError), cast("IO[bytes]", process.stdin) as given:  # they have left
                    yield given
                process.wait()
            finally:
                signal.signal(signal.SIGINT, before)

    @staticmethod
    def act_for(pid: int, become: Become, end: Callable[[int], NoReturn]) -> None:
        """Act for the client process `pid`: replacing or ending this process then means the client.

        `become` replaces the client by another program, and `end` ends it.
        """
        global _client_process  # noqa: PLW0603 - a process stands in for one
        _client_process = ClientProcess(pid, become, end)

    @staticmethod
    def own_pid() -> int:
        """Return the id of the process that the user or an agent started: this one, or the client of `act_for`."""
        return _client_process.pid if _client_process is not None else os.getpid()

    @staticmethod
    def leave(status: int) -> NoReturn:
        """Exit immediately with `status`, without waiting for other threads. Also end the client of `act_for`."""
        if _client_process is not None:
            _client_process.end(status)
        os._exit(status)


class Clock:
    """The system's clock. Tests use a replacement for this class."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait for `seconds`."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Machine:
    """The machine's processes, environment variables and clock. Tests replace them."""

    processes: Processes = field(default_factory=lambda: Processes())  # noqa: PLW0108 - tests put another one here
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Clock = field(default_factory=lambda: Clock())  # noqa: PLW0108


Become = Callable[[Sequence[str], Path, Mapping[str, str]], NoReturn]


class ClientProcess(NamedTuple):
    """The process that handed its command over to this process: its id, and functions to replace and to end it."""

    pid: int
    become: Become
    end: Callable[[int], NoReturn]


_client_process: ClientProcess | None = None


@contextlib.contextmanager
def _ended_with_us(group: int) -> Iterator[None]:
    """Kill a process group if this process ends inside the block, in any way.

    A guard process does this: the system closes its standard input when this process is gone.
    """
    argv = (sys.executable, "-I", "-S", "-c", _GUARD, str(group))
    try:
        guard = subprocess.Popen(
            argv, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
        )
    except OSError:  # no room for one more
        yield
        return
    with guard:
        try:
            yield
        finally:
            guard.kill()


@contextlib.contextmanager
def _starting(argv: Sequence[str], cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Iterator[None]:
    """Turn an operating system error at the start of the program `argv` into an error of smart-fork."""
    try:
        yield
    except (OSError, ValueError) as error:
        name, is_missing = Path(argv[0]).name, isinstance(error, FileNotFoundError)
        if cwd is not None and not cwd.is_dir():
            raise NotFound(f"No such directory: {cwd}") from error
        if is_missing and Path(argv[0]).is_absolute() and Path(argv[0]).is_file():
            why = f"{name} cannot be started: the interpreter in its first line is missing: {argv[0]}"
            raise ProgramFailed(why) from error
        # A folder on PATH that this user may not look into is reported as a program that he may not run.
        path = None if env is None else env.get("PATH", os.defpath)
        hidden = isinstance(error, PermissionError) and name == argv[0] and shutil.which(name, os.F_OK, path) is None
        if is_missing or hidden:
            raise ProgramMissing(f"{name} is not installed", f"Install {name}, or put it on PATH.") from error
        raise ProgramFailed(f"{name} cannot be started: {error}") from error


@contextlib.contextmanager
def _file_of(text: bytes) -> Iterator[IO[bytes] | int]:
    """Yield a private, nameless file with `text`, as standard input of a program that outlives this process."""
    if not text:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.seek(0)
        yield file
