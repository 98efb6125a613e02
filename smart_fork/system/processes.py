"""The one seam through which other programs are run: argument lists only, never a shell."""

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

from indexer.lazy import dataclass
from indexer.masking import Masked, beginning, mask
from smart_fork.errors import NotFound, ProgramFailed, ProgramMissing, SmartForkError

if TYPE_CHECKING:
    import psutil

#: How often, and after how long, a process without any environment is looked at again.
_LOOKS, _LOOK_SECONDS = 100, 0.01
_STATUS_SECONDS = 2.0
#: Ends a group of processes when its standard input is closed. Starting it costs processor time, so only a program that
#: may take longer than so many seconds gets one.
_BRIEF_SECONDS = 240.0
#: The servers and repositories that were silent, by their program: until when they are not asked again, and how long
#: they were waited for. An answer of many questions costs one time-out.
_SILENT_SECONDS = 60.0
_silent: dict[tuple[str, str], tuple[float, float]] = {}
_GUARD = "import os, sys; os.read(0, 1); os.killpg(int(sys.argv[1]), 9)"


@dataclass(frozen=True, slots=True)
class Completed:
    """A program that has ended."""

    argv: tuple[str, ...]
    returncode: int
    stdout: bytes
    stderr: bytes

    @property
    def ok(self) -> bool:
        """Return True if the exit status is 0."""
        return self.returncode == 0

    @property
    def ending(self) -> str:
        """Describe how it ended."""
        return self.in_words(self.returncode)

    @property
    def text(self) -> str:
        """Its standard output, without white space at the ends."""
        return self.stdout.decode("utf-8", "replace").strip()

    @property
    def complaint(self) -> Masked:
        """Return its error message, at most 500 characters."""
        said = self.stderr.strip() or self.stdout.strip()
        return beginning(mask(said.decode("utf-8", "replace")), 500)

    @staticmethod
    def in_words(status: int | None) -> str:
        """An exit status in words; negative for a signal, and empty where it is not known."""
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
    """Return whether an isolated interpreter finds us: in its packages, or by a line there that names our folder."""
    folders, ours = [Path(folder) for folder in site.getsitepackages()], Path(__file__).parents[2]
    lines = (line for folder in folders for file in folder.glob("*.pth") for line in file.read_bytes().splitlines())
    return ours in folders or os.fsencode(ours) in lines


class _CtrlC:
    """Keeps Ctrl-C until `counts`: while a program is being started nobody holds it yet, and could end it."""

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
        self.counts()

    def counts(self) -> None:
        """From now on it counts, also where it was pressed meanwhile."""
        handler, self._before = self._before, None
        if handler is None:
            return
        signal.signal(signal.SIGINT, handler)
        if self._pressed:
            handler(*self._pressed[0])


class Running(NamedTuple):
    """A process: the words of its command, when it began in seconds since the epoch, and the one that started it."""

    words: Sequence[str]
    born: float
    parent: int


class Processes:
    """Running other programs."""

    def __init__(self) -> None:
        self._started: dict[int, subprocess.Popen[bytes]] = {}

    @staticmethod
    def not_asked_again() -> list[str]:
        """Return the names of programs that were late in this minute: what they know is missing from answers."""
        return sorted({Path(program).name for (program, _), (until, _) in _silent.items() if time.monotonic() < until})

    @staticmethod
    def python(module: str, *words: str) -> list[str]:
        """Return the command that runs a module of ours, whatever is in its directory, PYTHONPATH and start files.

        Where only PYTHONPATH or a person's own packages have us, ``-P`` leaves out the directory alone.
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
        """Run to the end; `timeout` in seconds.

        A program that is late, or is waited for no more, is ended with everything it started. One that may take minutes
        ends with us as well, however we end. `whom` is the server or repository that the program asks: where it was
        silent, it is not asked again for a minute, unless it is waited for longer.

        Raises:
            ProgramMissing: there is no such program.
            ProgramFailed: it cannot be started, or did not end in time.
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
                    ctrl_c.counts()
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
        """Start detached, in a session of its own, with this input; gives the process id.

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
        """Start a program that is talked to, over its input and output. What it complains of goes nowhere.

        Raises:
            ProgramMissing, ProgramFailed, NotFound: as `run`.
        """
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
        """Return all processes of this machine that have not ended, by number."""
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
        """Return the exit status of a process started here, negative for a signal; `None` if unknown.

        Whoever waits for it may learn of its end a moment later than others.
        """
        process = self._started.get(pid)
        if process is None:
            return None
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(timeout=_STATUS_SECONDS)
        return None

    def environment(self, pid: int) -> Mapping[str, str] | None:
        """Return a running process's initial environment, since its number may have been reused. `None` if unknown."""
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
        """Tell the group that a process leads to end, or have the system end it.

        A group may outlive the process that it is named after.
        """
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL if force else signal.SIGTERM)

    def replace(self, argv: Sequence[str], *, cwd: Path, env: Mapping[str, str]) -> NoReturn:
        """Become that program."""
        with _starting(argv, cwd, env):
            if _caller is not None:
                _caller.become(argv, cwd, env)
            os.chdir(cwd)
            os.execvpe(argv[0], list(argv), dict(env))  # noqa: S606 - no shell is what we want

    @staticmethod
    def each() -> Iterator[psutil.Process]:
        """The processes of this machine, each as it is now.

        psutil's own walk keeps what it has once told, and tells it of whoever has the number of one that has ended.
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
        """Return what a program printed that a person used at this terminal; empty where they left it.

        It has `given` on its stdin.

        Raises:
            ProgramMissing: there is no such program.
            ProgramFailed: it cannot be started.
        """
        with _starting(argv), subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            told, _ = process.communicate(given)
        return told.decode("utf-8", "replace") if process.returncode == 0 else ""

    @staticmethod
    @contextlib.contextmanager
    def pager(argv: Sequence[str], env: Mapping[str, str]) -> Iterator[IO[bytes]]:
        """Give the stdin of a program in which a person reads at this terminal until they leave it. Ctrl-C is its own.

        Raises:
            ProgramMissing, ProgramFailed: as `run`.
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
    def own_pid() -> int:
        """Return the id of the process that a person or an agent has started: it is what becomes an agent."""
        return _caller.pid if _caller is not None else os.getpid()

    @staticmethod
    def leave(status: int) -> NoReturn:
        """End at once, whatever other threads still do."""
        if _caller is not None:
            _caller.end(status)
        os._exit(status)


class Clock:
    """Time, for whoever waits."""

    def now(self) -> float:
        """Return the seconds since the epoch."""
        return time.time()

    def sleep(self, seconds: float) -> None:
        """Wait."""
        time.sleep(seconds)


@dataclass(frozen=True, slots=True)
class Machine:
    """The means to start and watch workers: programs, environment, and time. Tests may pass their own."""

    processes: Processes = field(default_factory=lambda: Processes())  # noqa: PLW0108 - tests put another one here
    env: Mapping[str, str] = field(default_factory=lambda: os.environ)
    clock: Clock = field(default_factory=lambda: Clock())  # noqa: PLW0108


class Caller(NamedTuple):
    """The process for which this one runs a command: its id, how it becomes another program, and how it ends."""

    pid: int
    become: Callable[[Sequence[str], Path, Mapping[str, str]], NoReturn]
    end: Callable[[int], NoReturn]


_caller: Caller | None = None


def stand_in(caller: Caller) -> None:
    """Run a command for another process from here on."""
    global _caller  # noqa: PLW0603 - a process stands in for one
    _caller = caller


@contextlib.contextmanager
def _ended_with_us(group: int) -> Iterator[None]:
    """End this group of processes if we end meanwhile, however we do.

    Another process waits for that: the system closes its standard input when we are gone.
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
    """Raise what keeps a program from being started as an error of ours."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise _not_started(argv, error, cwd, env) from error


def _not_started(
    argv: Sequence[str], error: Exception, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> SmartForkError:
    name = Path(argv[0]).name
    if cwd is not None and not cwd.is_dir():
        return NotFound(f"No such directory: {cwd}")
    if isinstance(error, FileNotFoundError) and Path(argv[0]).is_absolute() and Path(argv[0]).is_file():
        return ProgramFailed(f"{name} cannot be started: the interpreter in its first line is missing: {argv[0]}")
    # A folder on PATH that this user may not look into is reported as a program that he may not run.
    path = None if env is None else env.get("PATH", os.defpath)
    hidden = isinstance(error, PermissionError) and name == argv[0] and shutil.which(name, os.F_OK, path) is None
    if isinstance(error, FileNotFoundError) or hidden:
        return ProgramMissing(f"{name} is not installed", f"Install {name}, or put it on PATH.")
    return ProgramFailed(f"{name} cannot be started: {error}")


@contextlib.contextmanager
def _file_of(text: bytes) -> Iterator[IO[bytes] | int]:
    """Yield a private, nameless file with this text as input for a program that outlives this one."""
    if not text:
        yield subprocess.DEVNULL
        return
    with tempfile.TemporaryFile() as file:
        file.write(text)
        file.seek(0)
        yield file
