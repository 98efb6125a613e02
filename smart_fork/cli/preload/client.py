"""The client of the preloader: this process hands its command over to a waiting process with all modules imported.

That process gets this one's streams, directory, variables and signals. The top of this module imports only the standard
library, because handing over needs nothing else.
"""

from __future__ import annotations

import os
import signal
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
    """Hand the command `arguments` (as `sys.argv`) over to a waiting process, and return its exit status.

    Return `None` if no waiting process takes the command; then it has not run.
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
    return _wait_for_exit(line)


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
    """Return the numbers of the signals that this process ignores, as text: the command must ignore them, too."""
    return " ".join(str(number) for number in PASSED_ON if signal.getsignal(number) == signal.SIG_IGN)


def packed(fields: Sequence[str]) -> bytes:
    """Return `fields` (texts without NUL, such as arguments and variables) as one message, separated by NUL."""
    return _SEPARATOR.join(map(os.fsencode, fields))


def unpacked(body: bytes) -> list[str]:
    """Return the fields of a message that `packed` made."""
    return [os.fsdecode(one) for one in body.split(_SEPARATOR)]


def _pass_signals_on(line: Socket) -> None:
    for number in PASSED_ON:
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, lambda given, _: _send(line, given))


def _send(line: Socket, number: int) -> None:
    _sent.append(number)
    try:
        line.send(bytes([number]))
    except OSError:  # it has just ended
        return


def _wait_for_exit(line: Socket) -> int:
    """Wait until the process at the other end of `line` has run the command. Return the exit status.

    If the command starts an agent in this terminal, replace this process by the agent's program.
    """
    while True:
        try:
            kind, body = received(line)
        except OSError:
            return _end_by_signal()
        if kind == ENDED:
            return int(body)
        error = _become(unpacked(body))
        line.sendall(bytes([FAILED, error.errno or 0]))


def _end_by_signal() -> int:
    """End this process by the signal that it passed on last, because that signal killed the command.

    If it passed none on, another process killed the command: print an error and return 1.
    """
    if _sent:
        signal.signal(_sent[-1], signal.SIG_DFL)
        os.kill(os.getpid(), _sent[-1])
    sys.stderr.write("error: The process that ran this command was killed\n  Run the command again.\n")
    return 1


def received(line: Socket) -> tuple[bytes, bytes]:
    """Return the kind and the body of the next message on `line`."""
    kind = read_exactly(line, 1)
    return kind, read_exactly(line, int.from_bytes(read_exactly(line, SIZE)))


def read_exactly(line: Socket, size: int) -> bytes:
    """Return the next `size` bytes on `line`.

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
    """Encode a message: its `kind` (one byte), the length of its `body`, and the body."""
    return kind + len(body).to_bytes(SIZE) + body


def _become(fields: list[str]) -> OSError:
    """Replace this process by a program, such as an agent's, in the same terminal. Return the error if that fails.

    `fields`: directory, number of arguments, arguments, environment variables.
    """
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
    """Return the folder with the sockets of preloaders (processes that run commands faster)."""
    state = os.environ.get("SMART_FORK_HOME") or "~/.smart-fork"
    return os.path.join(os.path.expanduser(state), "preload")  # noqa: PTH111, PTH118


def socket_path() -> str | None:
    """Return the socket of the preloader with the same code as this process; `None` if its path is too long."""
    path = os.path.join(folder(), code())  # noqa: PTH118
    return path if len(os.fsencode(path)) <= MAX_PATH_BYTES else None


def code() -> str:
    """Return a checksum of smart-fork's code and of the settings that Python reads only when a process starts.

    It differs for another installation, version, edited file, encoding or library path.
    """
    newest = max(_last_change(f"{_PACKAGES}/{name}") for name in ("smart_fork", "indexer"))
    read = _READ_AT_START[sys.flags.ignore_environment :]
    fixed = sorted(f"{name}={value}" for name, value in os.environ.items() if name.startswith(read))
    runs = f"{sys.executable} {sys.version} {_PACKAGES} {newest} {sys.getfilesystemencoding()} {fixed}"
    return f"{crc32(os.fsencode(runs)):08x}"


def _last_change(package: str) -> int:
    """Return the time of the last change in the folder `package`, in nanoseconds.

    For an installed package this is the folder's own time; in a checkout, the time of the newest Python file.
    """
    if "site-packages" in package:
        return os.stat(package).st_mtime_ns  # noqa: PTH116
    newest = 0
    with os.scandir(package) as entries:
        for entry in entries:
            if entry.is_dir():
                newest = max(newest, _last_change(entry.path) if entry.name != "__pycache__" else 0)
            elif entry.name.endswith(".py"):
                newest = max(newest, entry.stat().st_mtime_ns)
    return newest


def start_preloader() -> None:
    """Start the preloader (the process that keeps waiting processes ready) in the background.

    Do nothing if one runs, if smart-fork has no state folder yet, or with ``SMART_FORK_BACKGROUND=0``.
    """
    from contextlib import suppress

    from indexer.environment import Setting
    from indexer.safe_files import private_dir, state_home
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
    """Return True if a preloader listens on the socket `path`. The file alone is no proof: a killed one leaves it."""
    import errno
    import socket

    with socket.socket(socket.AF_UNIX) as line:
        return line.connect_ex(path) not in (errno.ENOENT, errno.ECONNREFUSED)
