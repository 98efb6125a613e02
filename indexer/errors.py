"""The base classes of the errors of both packages, and advice on what to do after a failure."""

from __future__ import annotations

import errno
import os
import re
import shlex
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import ClassVar

from indexer.masking import mask
from indexer.safe_files import STAGING_NAME_CHARACTERS, state_home


class SmartForkError(Exception):
    """The base class of all errors that are meant for a person. Secrets in the message and in the hint are masked.

    `exit_code` is the exit status of the command line, and `http_status` the status of an HTTP answer. `code`
    identifies the error for programs: each class declares its own, so that a class can be renamed. `usual_hint` is the
    next step if the error was raised without a `hint`.
    """

    code: ClassVar[str] = "smart_fork_error"
    exit_code: ClassVar[int] = 1
    http_status: ClassVar[int] = 400
    usual_hint: ClassVar[str] = ""

    def __init__(self, message: str, hint: str = "") -> None:
        self.message, self.hint = mask(message), mask(hint or self.usual_hint)
        super().__init__(self.message)

    def preface(self, words: str) -> None:
        """Put `words` before the error's message, for example to say which of several requests failed."""
        self.message = mask(f"{words} {self.message}")
        self.args = (self.message,)


def joined(*parts: str) -> str:
    """Join a message and the texts after it, such as its hint, into one text. A text without a full stop gets one."""
    said = [part for part in parts if part]
    return " ".join([*(one if one.endswith((".", "?", "!", "…", ":")) else f"{one}." for one in said[:-1]), *said[-1:]])


class IndexerError(SmartForkError):
    """The base class of all errors of `indexer`, raised while logs are read, indexed or searched."""

    code = "indexer_error"
    http_status = 503


class StateUnavailable(OSError):
    """The state database (``state.db``) cannot be read or written. Callers that catch errors of files catch it, too."""


_STORE = Path(__file__).with_name("store")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: A disk with less free space counts as full. SQLite's files grow by at most this much at once.
_ROOM_BYTES = 1 << 18
_HALF = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")
_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)


def is_damage(error: BaseException) -> bool:
    """Return True if `error` shows that the index database is damaged, which the content of a log cannot cause."""
    import apsw  # most processes report no failure

    if isinstance(error, UnicodeDecodeError):
        return _is_raised_by_the_store(error)
    return isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.ConstraintError)


def is_of_the_store(error: BaseException) -> bool:
    """Return True if the index caused `error`, not the log that was being stored: the next log would fail, too."""
    import apsw

    # Only these can come of the content of a log. All others are about the database, the disk or other processes.
    of_a_log = isinstance(error, apsw.TooBigError | apsw.MismatchError | apsw.RangeError)
    return is_damage(error) or (isinstance(error, apsw.Error) and not of_a_log)


def is_full(error: BaseException) -> bool:
    """Return True if `error` says that the disk is full."""
    import apsw

    if isinstance(error, apsw.IOError | apsw.CantOpenError):  # what SQLite says when a file beside it cannot grow
        return _has_no_room(state_home())
    return isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno in _NO_ROOM)


def next_step(error: BaseException, *, indexing: bool = False) -> str:
    """Return advice on what a person can do about `error`, or "". `indexing`: the caller retries by itself."""
    import apsw

    home = state_home()
    if isinstance(error, StateUnavailable) and error.errno in (errno.EINVAL, errno.EIO):
        path = error.filename
        if error.errno == errno.EINVAL:
            return f"Restart what runs of the older version, or update it. To begin again without {path}, move it away."
        return f"Save its readable part: mv {path} {path}.damaged && sqlite3 {path}.damaged .recover | sqlite3 {path}"
    if isinstance(error, FileExistsError | NotADirectoryError) and home.exists() and not home.is_dir():
        return f"{home} is no folder. Move it away, or set SMART_FORK_HOME to a folder."
    elsewhere = None if indexing else _elsewhere(error, home)
    if is_full(error):
        then = "indexing then continues by itself" if indexing else "then try again"
        return f"Make room on the disk of {elsewhere or _full_of(home)}; {then}."
    if isinstance(error, apsw.BusyError | apsw.LockedError) or (
        isinstance(error, StateUnavailable) and error.errno == errno.EAGAIN
    ):
        return "Another process is writing to it; try again."
    if isinstance(error, apsw.ReadOnlyError | apsw.CantOpenError) or (
        isinstance(error, OSError) and error.errno in _NOT_ALLOWED
    ):
        if elsewhere is not None:
            return f"Make {elsewhere} readable and writable for you."
        return f"Make {home} writable, or set SMART_FORK_HOME to a writable folder."
    if isinstance(error, apsw.IOError | apsw.ProtocolError):
        return f"The disk of {home} failed: is it full, gone or broken?"
    return ""


def what_failed(error: BaseException) -> str:
    """Return the path and the system's message if `error` is about a file; otherwise return the error's message."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    file = error.filename2 or error.filename
    named = f"{_meant(Path(os.fsdecode(file)))}: " if isinstance(file, str | bytes | Path) else ""
    return f"{named}{error.strerror}"


def _elsewhere(error: BaseException, home: Path) -> Path | None:
    """Return the path outside `home` that `error` names, or the parent of a missing one; `None` if it names none."""
    named = error.filename if isinstance(error, OSError) else None
    if not isinstance(named, str | Path):
        return None
    path = Path(named)
    if path.is_relative_to(home) or not path.is_absolute():
        return None
    return path if os.path.lexists(path) or not os.path.lexists(path.parent) else path.parent


def _meant(path: Path) -> Path:
    """Return the file for which `replace_file` writes the temporary file `path`; another `path` is returned as is."""
    found = _HALF.fullmatch(path.name)
    if found is None:
        return path
    return path.with_name(found[1]) if len(found[1]) < STAGING_NAME_CHARACTERS else path.parent


def _full_of(home: Path) -> Path:
    """Return a path on the full disk: `home`, or the folder for temporary files, which may be on another disk."""
    import tempfile  # takes a while to import

    temporary = Path(tempfile.gettempdir())
    return temporary if _has_no_room(temporary) and not _has_no_room(home) else home


def _has_no_room(folder: Path) -> bool:
    try:
        return shutil.disk_usage(folder).free < _ROOM_BYTES
    except OSError:
        return False


def _is_raised_by_the_store(error: BaseException) -> bool:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return trace is not None and Path(trace.tb_frame.f_code.co_filename).parent == _STORE


#: Files by which uv and pipx mark their environments.
_UV, _PIPX = "uv-receipt.toml", "pipx_metadata.json"
_PACKAGE = "smart-fork"


def packages_of(extra: str) -> tuple[str, ...]:
    """Return the packages of an extra (optional dependencies) of smart-fork with versions, or the extra if unknown."""
    from importlib.metadata import PackageNotFoundError, requires  # takes a while to import

    try:
        named = [one.split(";") for one in requires(_PACKAGE) or ()]
    except PackageNotFoundError:
        named = []
    wanted = (f"extra == '{extra}'", f'extra == "{extra}"')
    found = tuple(one[0].strip() for one in named if one[-1].strip() in wanted)
    return found or (f"{_PACKAGE}[{extra}]",)


def install_extra(extra: str) -> str:
    """Return the shell command that adds the packages of an extra to the environment of this smart-fork."""
    return install_command(*packages_of(extra))


def install_command(*packages: str) -> str:
    """Return the shell command that adds `packages` to the environment of this smart-fork, with uv, pipx or pip."""
    root = Path(sys.prefix)
    if (receipt := root / _UV).is_file():
        # Without a choice uv takes PyTorch with GPU libraries: 3 GB on Linux.
        backend = ("--torch-backend", "auto") if any(one.startswith("torch") for one in packages) else ()
        added = (word for one in packages for word in ("--with", one))
        return shlex.join(("uv", "tool", "install", *backend, *added, *_source(receipt)))
    if (root / _PIPX).is_file():
        return shlex.join(("pipx", "inject", root.name, *packages))
    if find_spec("pip") is None:  # an environment of uv's has none
        return shlex.join(("uv", "pip", "install", "--python", sys.executable, *packages))
    return shlex.join((sys.executable, "-m", "pip", "install", *packages))


def _source(receipt: Path) -> tuple[str, ...]:
    """Return how `uv tool install` names this smart-fork, by uv's `receipt`: a checkout's directory, or the package."""
    import tomllib

    try:
        own = tomllib.loads(receipt.read_text(encoding="utf-8"))["tool"]["requirements"][0]
        return ("--editable", str(own["editable"])) if "editable" in own else (str(own.get("directory", _PACKAGE)),)
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return (_PACKAGE,)
