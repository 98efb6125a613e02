"""The client of the preloader: this process hands its command over to a waiting process with all modules imported.

The waiting process gets this process's streams, directory, variables and signals. The top of this module imports only
the standard library, because a process that hands its command over needs nothing else.
"""

from __future__ import annotations

import os
import sys
from _socket import AF_UNIX, SCM_RIGHTS, SOCK_STREAM, SOL_SOCKET
from _socket import socket as Socket  # noqa: N812 - the same without what `socket` imports for it
from zlib import crc32

from smart_fork.system.peers import is_ours

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Seconds to wait for an answer: a waiting process answers immediately.
SECONDS = 2.0
#: Messages from the waiting process: it can run the command, or cannot; exit status; the program to become.
READY, REFUSED, ENDED, BECOMES = b"+", b"-", b"=", b">"
#: Messages to the waiting process: begin, or the number of a signal; the program did not start, and the error's number.
GO, FAILED = b"\0", 255
SIZE = 8
_MAX_CHUNK = 1 << 16
_SEPARATOR = b"\0"
#: Signals that are passed on, by number: HUP, INT, QUIT, USR1, USR2, TERM.
PASSED_ON = (1, 2, 3, 10, 12, 15)
_sent: list[int] = []


def run(arguments: Sequence[str]) -> int | None:
    """Hand the command `arguments`, in the form of `sys.argv`, over to a waiting process.

    Return the command's exit status. Return `None` if no waiting process takes the command; then it has not run.
    """
    path = socket_path()
    if path is None:
        return None
    line = Socket(AF_UNIX, SOCK_STREAM)
    try:
        line.settimeout(SECONDS)
        line.connect(path)
        # Asked before it gets our streams: one that hangs would keep them open.
        if not is_ours(line) or line.recv(1) != READY:
            return None
        _hand_over(line, arguments)
        if line.recv(1) != READY:
            return None
        line.settimeout(None)
        _pass_signals_on(line)
        line.sendall(GO)
    except TimeoutError:
        sys.stderr.write("The preloader does not answer. Running without it.\n")
        return None
    except OSError:
        return None
    return _outcome(line)


def _hand_over(line: Socket, arguments: Sequence[str]) -> None:
    here = os.open(".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        mask = os.umask(0o077)
        os.umask(mask)
        package = sys.modules["__main__"].__package__ or ""  # messages name the program by it
        fields = [package, str(mask), str(os.getpriority(os.PRIO_PROCESS, 0)), _ignored(), sys.stdin.errors or "strict"]
        fields += [str(len(arguments)), *arguments]
        fields += [f"{name}={value}" for name, value in os.environ.items()]
        body = packed(fields)
        streams = [(SOL_SOCKET, SCM_RIGHTS, b"".join(one.to_bytes(4, sys.byteorder) for one in (0, 1, 2, here)))]
        line.sendmsg([len(body).to_bytes(SIZE)], streams)
        line.sendall(body)
    finally:
        os.close(here)


def _ignored() -> str:
    """Return the numbers of the signals that this process ignores, for example after ``nohup``, as one text.

    The process that runs the command has to ignore the same signals.
    """
    import signal

    return " ".join(str(number) for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN)


def packed(fields: Sequence[str]) -> bytes:
    """Return the texts `fields` as the body of one message, separated by NUL.

    The fields are arguments and environment variables, which cannot contain a NUL.
    """
    return _SEPARATOR.join(map(os.fsencode, fields))


def unpacked(body: bytes) -> list[str]:
    """Return the texts from which `packed` made the message `body`."""
    return [os.fsdecode(one) for one in body.split(_SEPARATOR)]


def _pass_signals_on(line: Socket) -> None:
    import signal

    for number in PASSED_ON:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda given, _: _send(line, given))


def _send(line: Socket, number: int) -> None:
    _sent.append(number)
    try:
        line.send(bytes([number]))
    except OSError:  # it has just ended
        return


def _outcome(line: Socket) -> int:
    """Wait until the process at the other end of `line` has run the command. Return the command's exit status.

    If the command starts an agent in this terminal, this process becomes the agent's program and does not return.
    """
    while True:
        try:
            kind, body = received(line)
        except OSError:
            return _killed()
        if kind == ENDED:
            return int(body)
        error = _become(unpacked(body))
        line.sendall(bytes([FAILED, error.errno or 0]))


def _killed() -> int:
    """End this process as the process that ran the command has ended: by the last signal that was passed on to it.

    If no signal was passed on, another process killed it: print an error and return 1.
    """
    import signal

    if _sent:
        signal.signal(_sent[-1], signal.SIG_DFL)
        os.kill(os.getpid(), _sent[-1])
    sys.stderr.write("error: The process that ran this command was killed\n  Run the command again.\n")
    return 1


def received(line: Socket) -> tuple[bytes, bytes]:
    """Return the kind and the body of the next message that comes over the connection `line`.

    Raises:
        ConnectionError: the other side is gone.
    """
    kind = exactly(line, 1)
    return kind, exactly(line, int.from_bytes(exactly(line, SIZE)))


def exactly(line: Socket, size: int) -> bytes:
    """Return the next `size` bytes that come over the connection `line`.

    Raises:
        ConnectionError: the other side is gone.
    """
    said = b""
    while len(said) < size:
        part = line.recv(min(size - len(said), _MAX_CHUNK))
        if not part:
            raise ConnectionError
        said += part
    return said


def message(kind: bytes, body: bytes) -> bytes:
    """Return a message of this `kind` with this `body`, encoded as `received` decodes it."""
    return kind + len(body).to_bytes(SIZE) + body


def _become(fields: list[str]) -> OSError:
    """Replace this process by an agent's program, so that the agent gets the person's terminal.

    `fields` has the working directory, the number of arguments, the arguments, and the environment variables. If the
    program cannot be started, return the error.
    """
    import signal

    directory, count, *rest = fields
    argv, variables = rest[: int(count)], rest[int(count) :]
    before = os.open(".", os.O_RDONLY | os.O_CLOEXEC)
    handlers = {number: signal.getsignal(number) for number in PASSED_ON}
    for number, handler in handlers.items():
        if handler != signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    try:
        os.chdir(directory)
        os.execvpe(argv[0], argv, dict(one.split("=", 1) for one in variables))  # noqa: S606 - no shell
    except OSError as error:
        os.fchdir(before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
        return error
    finally:
        os.close(before)


#: Longest path of a Unix socket that every system accepts.
MAX_PATH_BYTES = 100
#: Prefixes of variables that are read only when a process starts, by Python (unless it is isolated) or by libraries of
#: the system. Of the locale, Python reads the encoding then.
_READ_AT_START = ("PYTHON", "LD_", "DYLD_", "MALLOC_", "OMP_", "OPENBLAS_")
_PACKAGES = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))  # noqa: PTH100, PTH118, PTH120


def folder() -> str:
    """Return the folder with the sockets of preloaders (processes that run commands faster), in the state folder."""
    state = os.environ.get("SMART_FORK_HOME") or "~/.smart-fork"
    return os.path.join(os.path.expanduser(state), "preload")  # noqa: PTH111, PTH118


def socket_path() -> str | None:
    """Return the socket path of the preloader that has imported the same code as this process.

    Return `None` if the path is too long for a Unix socket.
    """
    path = os.path.join(folder(), code())  # noqa: PTH118
    return path if len(os.fsencode(path)) <= MAX_PATH_BYTES else None


def code() -> str:
    """Return a checksum of smart-fork's code and of all settings that Python reads only when a process starts.

    Two processes with another installation, version, edited file, encoding or library path have different checksums.
    """
    newest = max(_changed(f"{_PACKAGES}/{name}") for name in ("smart_fork", "indexer"))
    read = _READ_AT_START[sys.flags.ignore_environment :]
    fixed = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(read))
    runs = f"{sys.executable} {sys.version} {_PACKAGES} {newest} {sys.getfilesystemencoding()} {fixed}"
    return f"{crc32(os.fsencode(runs)):08x}"


def _changed(package: str) -> int:
    """Return the time of the last change in the folder `package`, in nanoseconds.

    For an installed package this is the modification time of the folder itself. In a source checkout, it is the time
    of the newest Python file below the folder.
    """
    if "site-packages" in package:
        return os.stat(package).st_mtime_ns  # noqa: PTH116
    newest = 0
    with os.scandir(package) as entries:
        for entry in entries:
            if entry.is_dir():
                newest = max(newest, _changed(entry.path) if entry.name != "__pycache__" else 0)
            elif entry.name.endswith(".py"):
                newest = max(newest, entry.stat().st_mtime_ns)
    return newest


def start_preloader() -> None:
    """Start the preloader (the process that keeps waiting processes ready) in the background.

    Do nothing if a preloader runs already, if smart-fork has no state folder yet, or with ``SMART_FORK_BACKGROUND=0``.
    """
    from contextlib import suppress

    from indexer.safe_files import private_dir, state_home
    from indexer.settings import Setting
    from smart_fork.errors import SmartForkError
    from smart_fork.system.processes import Processes

    path = None if Setting.BACKGROUND.is_off() else socket_path()
    if path is None or not state_home().is_dir() or _listens(path):
        return
    with suppress(SmartForkError, OSError):  # the command has done its work all the same
        output = private_dir(state_home() / "logs") / "preload.log"
        command = Processes.python("smart_fork.cli.preload.server")
        if not sys.flags.isolated and any(name.startswith("PYTHON") for name in os.environ):
            command[1] = "-P"  # it is found by who has read the same variables
        Processes().start(command, cwd=state_home(), env=dict(os.environ), log=output)


def _listens(path: str) -> bool:
    """Return True if a preloader listens on the socket `path`.

    That the socket's file exists proves nothing: a killed preloader leaves its file.
    """
    import errno
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(path) not in (errno.ENOENT, errno.ECONNREFUSED)
