"""Explains failures of the index or its disk, and what to do about them."""

from __future__ import annotations

import errno
import os
import re
import shutil
import tempfile
from pathlib import Path

import apsw

from indexer.files import NAMED, state_home
from indexer.state import StateUnavailable

_STORE = Path(__file__).with_name("store")
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
#: SQLite's files grow by no more than that at once.
_ROOM_BYTES = 1 << 18
_HALF = re.compile(r"\.(.+)\.[0-9a-f]{16}\.tmp")
_NOT_ALLOWED = (errno.EROFS, errno.EACCES, errno.EPERM)
#: What a log can cause by what is in it; all else that SQLite says is about the database, the disk or other processes.
_OF_A_LOG = (apsw.TooBigError, apsw.MismatchError, apsw.RangeError)


def is_damage(error: BaseException) -> bool:
    """Return True if the error shows that the database is damaged.

    Bytes that are no text where text was stored, and rows that contradict each other, are what SQLite itself finds
    last: nothing that is indexed can bring that about.
    """
    if isinstance(error, UnicodeDecodeError):
        return _is_raised_by_the_store(error)
    return isinstance(error, apsw.CorruptError | apsw.NotADBError | apsw.ConstraintError)


def is_of_the_store(error: BaseException) -> bool:
    """Return True if the index failed and not the log to store: the next log would fail as well."""
    return is_damage(error) or (isinstance(error, apsw.Error) and not isinstance(error, _OF_A_LOG))


def is_full(error: BaseException) -> bool:
    """Return True if the disk is full."""
    if isinstance(error, apsw.IOError | apsw.CantOpenError):  # what SQLite says when a file beside it cannot grow
        return _has_no_room(state_home())
    return isinstance(error, apsw.FullError) or (isinstance(error, OSError) and error.errno in _NO_ROOM)


def next_step(error: BaseException, *, indexing: bool = False) -> str:
    """Advise what to do about an error; empty if unknown. A process that is `indexing` continues by itself."""
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
    """Name the file that `error` is about, and what the system says of it; other errors by what they say."""
    if not isinstance(error, OSError) or error.strerror is None:
        return str(error) or type(error).__name__
    file = error.filename2 or error.filename
    named = f"{_meant(Path(os.fsdecode(file)))}: " if isinstance(file, str | bytes | Path) else ""
    return f"{named}{error.strerror}"


def _elsewhere(error: BaseException, home: Path) -> Path | None:
    """The file that the system says it is about, or the folder where it is to be; nothing where that is one of ours."""
    named = error.filename if isinstance(error, OSError) else None
    if not isinstance(named, str | Path):
        return None
    path = Path(named)
    if path.is_relative_to(home) or not path.is_absolute():
        return None
    return path if os.path.lexists(path) or not os.path.lexists(path.parent) else path.parent


def _meant(path: Path) -> Path:
    """The file that is replaced, where `path` is what is written first (see `files.replace_file`)."""
    found = _HALF.fullmatch(path.name)
    if found is None:
        return path
    return path.with_name(found[1]) if len(found[1]) < NAMED else path.parent


def _full_of(home: Path) -> Path:
    """Return a path on the full disk if the error names none: a temporary file may be on another disk than ours."""
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
