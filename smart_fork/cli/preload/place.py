"""Where the preloader listens, and for which code. Every command imports this: it imports next to nothing."""

from __future__ import annotations

import os
import sys
from zlib import crc32

#: Switches the preloader off, as all switches of `indexer.settings`; to import that takes as long as all else here.
VARIABLE = "SMART_FORK_PRELOAD"
_OFF = ("0", "false", "no", "off", "never")
#: Longest path of a Unix socket that every system accepts.
LONGEST = 100
#: Read by the interpreter or the system's libraries when a process starts, and never again.
READ_AT_START = ("PYTHON", "LD_", "DYLD_", "MALLOC_", "OMP_", "OPENBLAS_", "LC_", "LANG")
_PACKAGES = os.path.abspath(os.path.join(os.path.dirname(__file__), "../../.."))  # noqa: PTH100, PTH118, PTH120


def is_wanted() -> bool:
    """Return whether commands may ask a preloader. macOS may not fork a process that has used its frameworks.

    A Python that was started with options of its own, such as ``-W error``, runs its command itself.
    """
    options = sys.warnoptions or sys._xoptions or sys.flags.optimize  # noqa: SLF001 - its documented name
    return sys.platform == "linux" and not options and os.environ.get(VARIABLE, "").strip().lower() not in _OFF


def folder() -> str:
    """Return the folder of the sockets, below the state's folder."""
    state = os.environ.get("SMART_FORK_HOME") or "~/.smart-fork"
    return os.path.join(os.path.expanduser(state), "preload")  # noqa: PTH111, PTH118


def socket_path() -> str | None:
    """Return where the preloader of this code listens; `None` where the path is too long for a socket."""
    path = os.path.join(folder(), code())  # noqa: PTH118
    return path if len(os.fsencode(path)) <= LONGEST else None


def code() -> str:
    """Return a name for the code that this process runs: another installation, version or edit has another one."""
    newest = max(_changed(f"{_PACKAGES}/{name}") for name in ("smart_fork", "indexer"))
    return f"{crc32(os.fsencode(f'{sys.executable} {sys.version} {_PACKAGES} {newest}')):08x}"


def _changed(package: str) -> int:
    """Return when a file of `package` changed last, in nanoseconds. Only a checkout is edited in place."""
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


def fixed_at_start(environment: dict[str, str]) -> dict[str, str]:
    """Return the variables that a process cannot take over after its start."""
    return {name: value for name, value in environment.items() if name.startswith(READ_AT_START)}
